"""Reviews of state runs: whether a merge of one or two runs would keep little of them, estimated from a sample of their states
and, where their owners do not know it without a merge, from one of the rows of large states.

A merge of all their rows, to find out, would cost as much as the merge: every other epoch has a run that is due for review. Spilled rows do not count:
they are on disk, and what is merged moves there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import SLOTS, ints
from headrace.operators.base.operator import SLOT, Operator
from headrace.operators.base.query_failures import of_query
from headrace.operators.joins.probing.spilled_rows import are_spilled
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.runtime.tasks.state.agenda import Agenda
from headrace.runtime.tasks.state.compaction import due_for_review, reviewed_at
from headrace.runtime.tasks.state.state_runs import TaskRun, sections_of
from headrace.runtime.tasks.timing import Ledger

_MOST_STATES: Final = 16
"""States of which a review computes what they need; of more, a sample."""
MOST_ROWS: Final = 1 << 12
"""Rows of a state that it reads, about; of more, those of some slots."""
_LIVE_SHARE: Final = 0.6
"""Runs are rewritten when less than this share of them is still needed."""


@dataclass(frozen=True, slots=True)
class RunReviews:
    """The reviews of one epoch of a state task.

    `unexpired` is how many rows of a state's sections a merge would keep, where that is known without one; `needed` is how many
    bytes a merge of sections keeps.
    """

    index: PlanIndex
    agenda: Agenda | None
    epoch: int
    ledger: Ledger
    unexpired: Callable[[Sequence[Operator], Mapping[str, Sequence[pa.Table]]], Mapping[str, int]]
    needed: Callable[[Sequence[Operator], Mapping[str, Sequence[pa.Table]]], int]

    def obsolete(self, runs: Sequence[TaskRun]) -> set[str]:
        """Names of the runs to rewrite, of those that are due for review."""
        by_name = {run.ref.name: run for run in runs}
        due = due_for_review([run.ref for run in runs], self.epoch)
        return {
            name for names in due if self._are_obsolete([by_name[name] for name in names]) for name in names
        }

    def _are_obsolete(self, runs: Sequence[TaskRun]) -> bool:
        """Whether a merge of these runs would keep little of them.

        States that rest since the runs were written need all of it; of many others a sample is read.
        """
        if self._are_as_reviewed(runs):
            return False
        since = min(run.ref.epoch for run in runs)
        touched = None if self.agenda is None else self.agenda.touched_since(since)
        here = frozenset[str]().union(*(run.states for run in runs))
        states = self.index.in_order(here if touched is None else here.intersection(touched))
        every = -(-len(states) // _MOST_STATES) or 1
        obsolete = 0.0
        for name in states[self.epoch % every :: every]:
            with self.ledger.timed(name):
                try:
                    obsolete += every * self._obsolete_bytes(name, runs)
                except Exception as failure:  # noqa: BLE001 - the merge records whose it is
                    of_query(failure)
                    return False
        dropped = [
            table
            for run in runs
            for name in run.states - self.index.by_state.keys()
            for table in run.of(name).values()
        ]
        stored = sum(run.bytes_but_spilled for run in runs)
        needed = stored - obsolete - sum(table.nbytes for table in dropped)
        return needed < _LIVE_SHARE * stored

    def _obsolete_bytes(self, state: str, runs: Sequence[TaskRun]) -> float:
        sections, operators = sections_of(runs, state), self.index.by_state[state]
        kept, obsolete = self.unexpired(operators, sections), 0.0
        for name, rows in kept.items():
            tables = sections.pop(name)
            share = rows / (sum(table.num_rows for table in tables) or 1)
            obsolete += bytes_but_spilled([(name, tables)]) * (1 - share)
        return obsolete + self._obsolete_in_sample(operators, sections) if sections else obsolete

    def _obsolete_in_sample(
        self, operators: Sequence[Operator], sections: Mapping[str, Sequence[pa.Table]]
    ) -> float:
        """Obsolete bytes of sections that must be merged to show them, estimated from a merge of some of their rows."""
        sample = sample_of(sections, self.epoch)
        read = bytes_but_spilled(sample.items())
        share = self.needed(operators, sample) / read if read else 1.0
        return bytes_but_spilled(sections.items()) * (1 - share)

    def _are_as_reviewed(self, runs: Sequence[TaskRun]) -> bool:
        """Whether a former review has read these runs, and nothing of theirs may have expired since."""
        former = reviewed_at([run.ref for run in runs], self.epoch)
        touched = None if self.agenda is None or former is None else self.agenda.touched_since(former)
        return touched is not None and not _stores_any(runs, touched)


def sample_of(sections: Mapping[str, Sequence[pa.Table]], turn: int) -> Mapping[str, Sequence[pa.Table]]:
    """The rows of some slots in all sections of a state, about `MOST_ROWS` of them; all where there are no more.

    Rows that a merge makes one are in one slot. Other turns begin with another slot.
    """
    tables = [table for of_section in sections.values() for table in of_section]
    if sum(table.num_rows for table in tables) <= MOST_ROWS:
        return sections
    rows = np.bincount(np.concatenate([ints(table, SLOT) for table in tables]), minlength=SLOTS)
    slots = np.roll(np.flatnonzero(rows), -turn)
    chosen = np.zeros(SLOTS, bool)
    chosen[slots[: 1 + np.searchsorted(np.cumsum(rows[slots]), MOST_ROWS)]] = True
    return {
        name: [table.filter(pa.array(chosen[ints(table, SLOT)])) for table in of_section]
        for name, of_section in sections.items()
    }


def bytes_but_spilled(sections: Iterable[tuple[str, Sequence[pa.Table]]]) -> int:
    """Bytes of the tables of sections whose rows are searched."""
    return sum(table.nbytes for name, tables in sections if not are_spilled(name) for table in tables)


def _stores_any(runs: Sequence[TaskRun], states: Iterable[str]) -> bool:
    here = frozenset[str]().union(*(run.states for run in runs))
    return any(state in here for state in states)
