"""State runs of earlier epochs as a state task reads them: its own slots, by state and for the queries of a cohort, with
their sizes.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import SLOT, Operator, Sections
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import QueryRowCounts, state_name
from headrace.operators.families.numbering import number_of
from headrace.operators.families.scan_output import gathered
from headrace.operators.joins.probing.spilled_rows import are_spilled
from headrace.runtime.home.run_cache import known_sizes, of_run, open_run, query_row_counts_of, views_of
from headrace.runtime.messages.exchange_blob import by_state
from headrace.runtime.messages.task_messages import RunRef
from headrace.store.files.filesystem import Store


@dataclass(frozen=True)
class TaskRun:
    """A run's sections, named `state/section`, cut to one task's slots; `covers_task` when nothing was cut.

    What counts rows and bytes does not read them.
    """

    store: Store
    ref: RunRef
    sections: Mapping[str, pa.Table]
    covers_task: bool

    @property
    def rows(self) -> int:
        """Rows of all sections."""
        return sum(table.num_rows for table in self._views.values())

    @property
    def bytes(self) -> int:
        """Bytes of all sections, in memory."""
        if not self.covers_task:
            return sum(table.nbytes for table in self._views.values())
        total = lambda: sum(table.nbytes for table in self._views.values())  # noqa: E731 - computed once
        return of_run(self.store, self.ref.name, "bytes", total)

    @property
    def bytes_but_spilled(self) -> int:
        """The same without rows that joins have spilled."""
        spilled = lambda: sum(table.nbytes for name, table in self._views.items() if are_spilled(name))  # noqa: E731 - computed once
        known = of_run(self.store, self.ref.name, "spilled bytes", spilled) if self.covers_task else spilled()
        return self.bytes - known

    def bytes_of(self, state: str) -> int:
        """Bytes of one state, in memory."""
        known = known_sizes(self.store, self.ref.name) if self.covers_task else {}
        if state not in known:
            known[state] = sum(table.nbytes for table in self._by_state.get(state, {}).values())
        return known[state]

    def share_of_others(self, owners: Mapping[str, Sequence[Operator]]) -> float:
        """The share of the rows that belongs to none of the `owners` of states."""
        rows, dead = self.rows, 0
        for state, sections in self._by_state.items():
            operators = owners.get(state, ())
            if not operators:
                dead += sum(table.num_rows for table in sections.values())
            elif operators[0].family_key is not None:
                queries = np.sort([number_of(operator.id) for operator in operators])
                for name in sections:
                    query_row_counts = self.query_row_counts(f"{state}/{name}")
                    dead += int(query_row_counts.rows.sum() - query_row_counts.among(queries).sum())
        return dead / rows if rows else 0.0

    def query_row_counts(self, section: str) -> QueryRowCounts:
        """Row counts by query of a family's table."""
        if not self.covers_task:
            return QueryRowCounts.of(self.sections[section])
        return query_row_counts_of(self.store, self.ref.name, section)

    def of_cohort(self, state: str, cohort: Cohort) -> tuple[Sections, Ints]:
        """The rows of a cohort's queries in their family's state, and how many each has; kept for the next epoch."""
        known: dict[str, tuple[Ints, Sections, Ints]] = {}
        if self.covers_task:
            known = of_run(self.store, self.ref.name, "cohorts", dict)
        last = known.get(state)
        if last is None or not np.array_equal(last[0], cohort.numbers):
            counts = {name: self.query_row_counts(f"{state}/{name}") for name in self.of(state)}
            rows = np.zeros_like(cohort.numbers)
            for of_section in counts.values():
                rows += of_section.among(cohort.numbers)
            last = known[state] = cohort.numbers, rows_of_cohort(self.of(state), counts, cohort), rows
        return last[1:]

    def of(self, state: str) -> Sections:
        """The sections of one state."""
        views = self._by_state.get(state, {})
        if not self.covers_task or not views:
            return views
        read: dict[str, Sections] = of_run(self.store, self.ref.name, "states read", dict)
        if state not in read:
            read[state] = {name: self.sections[f"{state}/{name}"] for name in views}
        return read[state]

    @property
    def states(self) -> KeysView[str]:
        """The states with rows."""
        return self._by_state.keys()

    @property
    def _views(self) -> Mapping[str, pa.Table]:
        return views_of(self.sections)

    @cached_property
    def _by_state(self) -> Mapping[str, Sections]:
        if not self.covers_task:
            return by_state(self.sections)
        return of_run(self.store, self.ref.name, "states", lambda: by_state(self._views))


def rows_of_cohort(sections: Sections, counts: Mapping[str, QueryRowCounts], cohort: Cohort) -> Sections:
    """The rows of a cohort's queries, without sections that have none."""
    of_cohort = {name: cohort.only(table, counts[name]) for name, table in sections.items()}
    return {name: table for name, table in of_cohort.items() if table.num_rows}


def with_families(run: TaskRun, operators: Mapping[str, Operator]) -> TaskRun:
    """The run, with the states of operators that had no family when it was written among those of their families.

    It then counts as one that does not cover the task, so it is rewritten by the next merge.
    """
    alone = [
        name
        for name in run.states
        if (operator := operators.get(name)) is not None and operator.family_key is not None
    ]
    if not alone:
        return run
    moved: dict[str, list[pa.Table]] = {}
    for section, table in run.sections.items():
        state, _, name = section.partition("/")
        if state not in alone:
            moved.setdefault(section, []).append(table)
            continue
        for rows in operators[state].for_family({name: table}).values():
            moved.setdefault(f"{state_name(operators[state])}/{name}", []).append(rows)
    sections = {section: gathered(tables) for section, tables in moved.items()}
    return TaskRun(run.store, run.ref, sections, False)


def sections_of(runs: Sequence[TaskRun], state: str) -> dict[str, list[pa.Table]]:
    """The tables of one state in several runs, by section."""
    by_section: dict[str, list[pa.Table]] = {}
    for run in runs:
        for section, table in run.of(state).items():
            by_section.setdefault(section, []).append(table)
    return by_section


def open_task_run(
    store: Store, ref: RunRef, low: int, high: int, plan: str, operators: Mapping[str, Operator]
) -> TaskRun:
    """The slots [low, high) of a run under the plan in the file `plan`, which has these operators; once for each plan."""
    opened = lambda: with_families(_cut(store, ref, low, high), operators)  # noqa: E731
    return of_run(store, ref.name, f"slots {low} to {high} under {plan}", opened)


def _cut(store: Store, ref: RunRef, low: int, high: int) -> TaskRun:
    """A run with other slots is filtered, once; that happens only after the number of tasks changed."""
    if low <= ref.low and ref.high <= high:
        return TaskRun(store, ref, open_run(store, ref.name), True)
    part = of_run(store, ref.name, f"slots {low} to {high}", lambda: _slots_of(store, ref, low, high))
    return TaskRun(store, ref, part, False)


def _slots_of(store: Store, ref: RunRef, low: int, high: int) -> dict[str, pa.Table]:
    sections = open_run(store, ref.name)
    sections_of_task = {}
    for name, table in sections.items():
        slots = ints(table, SLOT)
        rows = table.filter(pa.array((slots >= low) & (slots < high)))
        if rows.num_rows:  # operators get no section without rows
            sections_of_task[name] = rows
    return sections_of_task
