"""What does a state task see of a run of earlier epochs? Its own slots, by the state they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import SLOT, Operator, Sections
from headrace.operators.families.family import QueryRowCounts, number_of
from headrace.runtime.home.run_cache import open_run, query_row_counts_of
from headrace.runtime.messages.exchange_blob import by_state
from headrace.runtime.messages.task_messages import RunRef
from headrace.store.files.filesystem import Store


@dataclass(frozen=True)
class TaskRun:
    """A run's sections, named `state/section`, cut to one task's slots; `whole` when nothing had to be cut."""

    store: Store
    ref: RunRef
    sections: Mapping[str, pa.Table]
    covers_task: bool

    @property
    def rows(self) -> int:
        """Rows of all sections."""
        return sum(table.num_rows for table in self.sections.values())

    def share_of_others(self, alive: Mapping[str, Ints | None]) -> float:
        """Which part of the rows belongs to operators that are not `alive`, which is as `members_of` says."""
        rows, dead = self.rows, 0
        for state, sections in self._by_state.items():
            members = alive.get(state)
            for name, table in sections.items():
                if state not in alive:
                    dead += table.num_rows
                elif members is not None:
                    query_row_counts = self.query_row_counts(f"{state}/{name}")
                    dead += int(query_row_counts.rows.sum() - query_row_counts.among(members).sum())
        return dead / rows if rows else 0.0

    def query_row_counts(self, section: str) -> QueryRowCounts:
        """Whose rows a family's table holds."""
        if not self.covers_task:
            return QueryRowCounts.of(self.sections[section])
        return query_row_counts_of(self.store, self.ref.name, section)

    def of(self, state: str) -> Sections:
        """The sections of one state."""
        return self._by_state.get(state, {})

    @cached_property
    def _by_state(self) -> Mapping[str, Sections]:
        return by_state(self.sections)


def query_numbers_of(owners: Mapping[str, Sequence[Operator]]) -> dict[str, Ints | None]:
    """The numbers of each family's members, ascending, by the name of its state; None for a state that is nobody else's."""
    return {
        name: None if operators[0].family_key is None else np.sort([number_of(each.id) for each in operators])
        for name, operators in owners.items()
    }


def sections_of(runs: Sequence[TaskRun], state: str) -> dict[str, list[pa.Table]]:
    """The tables of one state in several runs, by section."""
    found: dict[str, list[pa.Table]] = {}
    for run in runs:
        for section, table in run.of(state).items():
            found.setdefault(section, []).append(table)
    return found


def open_task_run(store: Store, ref: RunRef, low: int, high: int) -> TaskRun:
    """The slots [low, high) of a run.

    One that also holds slots of others is filtered; that happens only after the number of tasks changed.
    """
    sections = open_run(store, ref.name)
    if low <= ref.low and ref.high <= high:
        return TaskRun(store, ref, sections, True)
    cut = {}
    for name, table in sections.items():
        slots = ints(table, SLOT)
        mine = table.filter(pa.array((slots >= low) & (slots < high)))
        if mine.num_rows:  # operators are never shown a section without rows
            cut[name] = mine
    return TaskRun(store, ref, cut, False)
