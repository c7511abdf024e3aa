"""Merging of a task's state runs: which of them are merged now, and what is in the merged run.

The choice is made between epochs where the process stays, see `MergedAhead`, and else in the epoch itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Operator
from headrace.operators.time_windows.group_punctuation import GroupAdvance
from headrace.runtime.tasks.state.agenda import Agenda
from headrace.runtime.tasks.state.compaction import (
    Merged,
    Owners,
    before_merge,
    compacted,
    due_for_merge,
    level_after,
)
from headrace.runtime.tasks.state.round_progress import RoundProgress
from headrace.runtime.tasks.state.run_reviews import RunReviews, bytes_but_spilled
from headrace.runtime.tasks.state.state_runs import TaskRun, sections_of
from headrace.runtime.tasks.timing import Ledger

_DEAD_SHARE: Final = 0.2
"""A run is rewritten when more than this share of its rows belongs to dropped queries."""


class MergeFailed(Exception):
    """The rows of some operators cannot be merged, because of a failure that is theirs."""

    def __init__(self, operators: Sequence[Operator], failure: Exception) -> None:
        super().__init__(", ".join(operator.id for operator in operators))
        self.operators, self.failure = operators, failure


@dataclass(frozen=True, slots=True)
class RunMerging:
    """The runs of a task at the progress of a round; the time of each state is added to the ledger."""

    progress: RoundProgress
    agenda: Agenda | None
    runs: Sequence[TaskRun]
    ledger: Ledger

    def due(self, epoch: int) -> set[str]:
        """Names of the runs to merge in an epoch: those of one size class, those with many rows of dropped queries, whose state this frees,
        and those of which most rows have expired or were superseded.
        """
        whole = [run for run in self.runs if run.covers_task]
        measures = self._unexpired_rows, self._needed_bytes
        reviews = RunReviews(self.progress.index, self.agenda, epoch, self.ledger, *measures)
        return {*due_for_merge([run.ref for run in whole]), *self._dead(whole), *reviews.obsolete(whole)}

    def divided(self) -> set[str]:
        """Names of the runs that are rewritten because they are not of this task's slots alone.

        A run with slots of several tasks is rewritten by all of them in one epoch, or by none.
        """
        message = self.progress.message
        return {
            run.ref.name
            for run in self.runs
            if not run.covers_task
            and (message.rewrites or (message.low <= run.ref.low and run.ref.high <= message.high))
        }

    def merged(self, names: Collection[str], fresh: Mapping[str, pa.Table]) -> Merged:
        """Some runs and the fresh sections of an epoch as one run. Raises `MergeFailed`."""
        merging, sections = [run for run in self.runs if run.ref.name in names], dict(fresh)
        by_state = self.progress.index.by_state
        states = {state for run in merging for state in run.states} | {
            section.partition("/")[0] for section in sections
        }
        for name in self.progress.index.in_order(states):
            with self.ledger.timed(name):
                try:
                    self._merge(name, merging, by_state[name], sections)
                except Exception as failure:  # of any kind: it is theirs
                    raise MergeFailed(by_state[name], failure) from failure
        rows = sum(table.num_rows for table in sections.values())
        level = level_after([(run.ref.level, run.rows) for run in merging], rows)
        return Merged(sections, level, tuple(run.ref.name for run in merging if run.ref.name))

    def _dead(self, runs: Sequence[TaskRun]) -> set[str]:
        """Runs with many rows of dropped queries, which a plan's runs are checked for once."""
        checked = set() if self.agenda is None else self.agenda.checked
        unchecked = [run for run in runs if run.ref.name not in checked]
        by_state = self.progress.index.by_state
        dead = {run.ref.name for run in unchecked if run.share_of_others(by_state) > _DEAD_SHARE}
        checked.intersection_update(run.ref.name for run in runs)
        checked.update(run.ref.name for run in unchecked)
        checked.difference_update(dead)
        return dead

    def _owning(self, operators: Sequence[Operator]) -> Owners:
        """The owners of one state; rows of each expire by its own advance, and rows of dropped queries have no owner."""
        return operators[0].owners(operators, self.progress.after)

    def _merge(
        self,
        name: str,
        merging: Sequence[TaskRun],
        operators: Sequence[Operator],
        into: dict[str, pa.Table],
    ) -> None:
        """Merge one state's sections of the runs and of `into`; the state of operators that rest this epoch is unchanged."""
        owners = self._owning(operators)
        sections = sections_of(merging, name)
        _move(into, name, sections, list(sections))
        ready = before_merge(owners, sections)
        _move(into, name, ready, [section for section in ready if section not in sections])
        for section, needed in self._needed(operators, owners, ready):
            if needed.num_rows:
                into[f"{name}/{section}"] = needed

    def _needed(
        self, operators: Sequence[Operator], owners: Owners, sections: Mapping[str, Sequence[pa.Table]]
    ) -> Iterator[tuple[str, pa.Table]]:
        """The rows of a state that are still needed; of an operator with its own state without groups that have emitted all."""
        groups = self._groups_of(operators)
        for section, merged in compacted(owners, sections):
            yield section, merged if groups is None else operators[0].without_done(section, merged, groups)

    def _groups_of(self, operators: Sequence[Operator]) -> GroupAdvance | None:
        """The advance of groups beyond their stream, of an operator with its own state."""
        return self.progress.groups(operators[0]) if operators[0].family_key is None else None

    def _unexpired_rows(
        self, operators: Sequence[Operator], sections: Mapping[str, Sequence[pa.Table]]
    ) -> dict[str, int]:
        """How many rows of a state's sections a merge would keep, where that shows without one."""
        owners, aggregate = self._owning(operators), operators[0].together(operators).over_panes
        if aggregate is None or len(owners) > 1 or self._groups_of(operators) is not None:
            return {}
        ((_, advance),) = owners
        rows = {name: aggregate.unexpired_rows(name, tables, advance) for name, tables in sections.items()}
        return {name: count for name, count in rows.items() if count is not None}

    def _needed_bytes(self, operators: Sequence[Operator], sections: Mapping[str, Sequence[pa.Table]]) -> int:
        """Bytes that a merge of a state's sections would keep, but for rows on disk."""
        owners = self._owning(operators)
        ready = before_merge(owners, sections)
        return bytes_but_spilled((name, [table]) for name, table in self._needed(operators, owners, ready))


def _move(
    sections: dict[str, pa.Table],
    state: str,
    merging: dict[str, list[pa.Table]],
    names: Sequence[str],
) -> None:
    """Move tables of a state to those to be merged."""
    for name in names:
        table = sections.pop(f"{state}/{name}", None)
        if table is not None:
            merging[name].append(table)
