"""Local driver: an operator run in this process, epoch by epoch as the runtime does, without Spark.

The laws and the tests of operators use it. Rows arrive as epochs of splits; each split has its own scanner, each task its own slots.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import SLOTS, ints
from headrace.operators.base.operator import SLOT, Advance, Operator, Sections
from headrace.operators.panes.damage import Damage
from headrace.time import BEGINNING, FOREVER, Instant


@dataclass(frozen=True, slots=True)
class DriveResult:
    """The output of an operator over all epochs: result rows (None: never any), rejects, and the remaining state."""

    results: pa.Table | None
    rejected: tuple[Rejected, ...]
    runs: tuple[Sections, ...]
    visits: tuple[int, ...] = ()
    """The epochs without rows in which it was visited."""
    due: Instant = BEGINNING
    """When it is due after the last epoch."""

    @property
    def state_rows(self) -> int:
        """Number of rows of the remaining state."""
        return sum(table.num_rows for run in self.runs for table in run.values())


def answer(
    operator: Operator,
    epochs: Sequence[Sequence[Batch]],
    punctuations: Sequence[Instant],
    tasks: int | Sequence[int] = 1,
    *,
    final: bool = True,
    relations: Mapping[str, pa.Table] | None = None,
    compact_after: Collection[int] | Mapping[int, int] = (),
) -> pa.Table | None:
    """All result rows; None if no epoch gave a table. See `drive`."""
    driven = drive(
        operator, epochs, punctuations, tasks, final=final, relations=relations, compact_after=compact_after
    )
    return driven.results


def drive(
    operator: Operator,
    epochs: Sequence[Sequence[Batch]],
    punctuations: Sequence[Instant],
    tasks: int | Sequence[int] = 1,
    *,
    final: bool = True,
    relations: Mapping[str, pa.Table] | None = None,
    compact_after: Collection[int] | Mapping[int, int] = (),
    keeping: Mapping[int, int] | None = None,
    when_due: bool = False,
) -> DriveResult:
    """Run the operator over epochs (each a sequence of splits), with the punctuation after each.

    `tasks`: state tasks, one number or one per epoch. `compact_after`: epochs, counted from 0, after which runs are
    merged into one per task: all of them, or as many of the newest as the mapping gives. `keeping`: row layout limits
    by epoch. `final` closes what is open, as if the stream ended there. `when_due`: an epoch without rows visits the operator
    only if it is due.
    """
    state = DrivenState(operator, relations or {}, keeping or {}, when_due)
    for number, (splits, punctuation) in enumerate(zip(epochs, punctuations, strict=True)):
        state.epoch(number, splits, punctuation, tasks if isinstance(tasks, int) else tasks[number])
        if number in compact_after:
            state.compact(compact_after[number] if isinstance(compact_after, Mapping) else len(state.runs))
    remaining, due = tuple(state.runs), state.due
    if final:
        state.step([], Advance(state.emitted_to, FOREVER, state.max_event_time, final=True), state.tasks)
    results = pa.concat_tables(state.results) if state.results else None
    return DriveResult(results, tuple(state.rejected), remaining, tuple(state.visits), due)


class DrivenState:
    """Runs and answers so far. `damage` is that of a query that repairs, around the next epoch."""

    def __init__(
        self,
        operator: Operator,
        relations: Mapping[str, pa.Table],
        keeping: Mapping[int, int],
        when_due: bool,
    ) -> None:
        self.operator, self.relations, self.keeping, self.when_due = operator, relations, keeping, when_due
        self.due: Instant = BEGINNING
        self.visits: list[int] = []
        self.runs: list[Sections] = []
        self.results: list[pa.Table] = []
        self.rejected: list[Rejected] = []
        self.emitted_to: Instant = BEGINNING
        self.max_event_time: Instant = BEGINNING
        self.tasks = 1
        self.damage: Damage | None = None

    def epoch(self, number: int, splits: Sequence[Batch], punctuation: Instant, tasks: int) -> None:
        deltas, operator = [], self.operator.keeping(self.keeping.get(number))
        for batch in splits:
            scanner = operator.scanner(self.relations)
            scanner.add(batch)
            scanned = scanner.finish()
            deltas.append(scanned.deltas)
            self.rejected += scanned.rejected
            if batch.rows:
                self.max_event_time = max(self.max_event_time, int(batch.at.max()))
        self.tasks = tasks
        has_rows = any(table.num_rows for delta in deltas for table in delta.values())
        if has_rows or not self.when_due or self.due <= punctuation:
            advance = Advance(self.emitted_to, punctuation, self.max_event_time, damage=self.damage)
            self.step(deltas, advance, tasks)
            self.visits += [] if has_rows else [number]
            if self.when_due:
                self.due = operator.due_after(self.runs, advance)
        self.emitted_to = punctuation

    def step(self, deltas: Sequence[Sections], advance: Advance, tasks: int) -> None:
        made: list[Sections] = []
        for owned in _owners(tasks):
            step = self.operator.advance(_of(self.runs, owned), _of(deltas, owned), advance)
            if step.results is not None and step.results.num_rows:
                self.results.append(step.results)
            self.rejected += step.rejected
            made += [step.state] if step.state else []
        self.runs += made

    def compact(self, newest: int) -> None:
        cut = max(0, len(self.runs) - newest)
        older, chosen = self.runs[:cut], self.runs[cut:]
        advance = Advance(self.emitted_to, self.emitted_to, self.max_event_time, damage=self.damage)
        merged: list[Sections] = []
        for owned in _owners(self.tasks):
            owned_runs = _of(chosen, owned)
            names = sorted({name for run in owned_runs for name in run})
            tables = self.operator.before_merge(
                {name: [run[name] for run in owned_runs if name in run] for name in names}, advance
            )
            merged.append({name: self.operator.compact(name, tables[name], advance) for name in tables})
        self.runs = [*older, *(run for run in merged if run)]


def _owners(tasks: int) -> list[range]:
    bounds = [SLOTS * task // tasks for task in range(tasks + 1)]
    return [range(low, high) for low, high in pairwise(bounds)]


def _of(runs: Sequence[Sections], owned: range) -> list[Sections]:
    """The rows of a task's slots in their order, with empty tables included."""
    if len(owned) == SLOTS:
        return list(runs)
    return [
        {name: table.filter(pa.array(_within(table, owned))) for name, table in run.items()} for run in runs
    ]


def _within(table: pa.Table, owned: range) -> np.ndarray:
    slots = ints(table, SLOT)
    mask: np.ndarray = (slots >= owned.start) & (slots < owned.stop)
    return mask
