"""Stored rows: what an operator that stores rows keeps of each, the slot of each, the scanner that makes them, and
their loading into memory.

Expressions that need only the row are evaluated once, when it is scanned; their values are stored. Windows that count
rows also count those that WHERE drops: such a row is stored as a *marker*, with NULLs and `__live` false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, Expression, columns_of
from headrace.algebra.expressions.expression_text import show
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, insertion_failures
from headrace.operators.base.group_codes import Ints, flat, ints, picked_rows, slots_of
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import QUERY_NUMBER, SLOT, Scanned
from headrace.operators.rows.row_pipeline import RowPipeline, RowStep, columns_read
from headrace.schema import to_arrow
from headrace.time import Duration, Instant

TIME: Final = "__time"
POSITION: Final = "__position"
LIVE: Final = "__live"
ROWS: Final = "rows"


_schemas: Final[MadeOnce[pa.Schema]] = MadeOnce(4096)


@dataclass(frozen=True, slots=True)
class Bounded:
    """The range of event times that are stored, both ends included, and a shift of them."""

    low: Instant | None = None
    high: Instant | None = None
    shift: Duration = 0

    def apply(self, batch: Batch) -> Batch:
        """The rows within, at the instants from which they hold."""
        if self.low is not None:
            batch = batch.where(batch.at >= self.low)
        if self.high is not None:
            batch = batch.where(batch.at <= self.high)
        return Batch(batch.columns, batch.at + self.shift, batch.position) if self.shift else batch


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How rows become stored rows.

    `below` steps are under the window, `above` over it. `partition` values are stored first (`c0`, `c1`, ...), then those of
    `stored`. `counts_all` stores markers. `routing` are the indices of the values that decide the slot; None sends all to
    `slot`, an empty tuple spreads rows by position. `change`: the column of the sign, if rows are inserted and retracted.
    """

    partition: tuple[Expression, ...]
    stored: tuple[Expression, ...]
    below: tuple[RowStep, ...]
    above: tuple[RowStep, ...]
    counts_all: bool
    routing: tuple[int, ...] | None
    slot: int
    bounded: Bounded = Bounded()
    change: str | None = None
    by_query: bool = False
    """Whether its rows are those of several queries, with their numbers."""
    ends_differ: bool = False
    """Whether the first value is the end of each row, which queries of a family compute differently."""

    @property
    def values(self) -> tuple[Expression, ...]:
        """Everything stored."""
        return (*self.partition, *self.stored)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the stored values."""
        return tuple(f"c{index}" for index in range(len(self.values)))

    @property
    def shape(self) -> tuple[object, ...]:
        """All of it but the rows that are stored, and their slot: equal for queries of a family."""
        return self.partition[self.ends_differ :], self.stored, self.counts_all, self.routing, self.change

    @property
    def query_names(self) -> tuple[str, ...]:
        """The name of the column of the query's number, if there is one."""
        return (QUERY_NUMBER,) if self.by_query else ()

    @property
    def steps(self) -> tuple[RowStep, ...]:
        """The steps applied to rows before they are stored."""
        return (*self.below, *self.above)

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """The steps, if a row that they drop leaves no trace; see `Operator.routing_steps`."""
        evaluates = not self.below and not all(isinstance(value, Column) for value in self.partition)
        leaves_nothing = not self.counts_all and not evaluates
        return self.steps if leaves_nothing else ()

    def display(self) -> Iterator[str]:
        """As EXPLAIN shows it among an operator's settings."""
        yield f"stored of each row: {', '.join(show(expression) for expression in self.values) or 'only that it is there'}"
        yield from (step.summary for step in (*reversed(self.above), *reversed(self.below)))

    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        return _schemas.of((self,), self._schema)

    def _schema(self) -> pa.Schema:
        stored = zip(self.names, self.values, strict=True)
        head = [(SLOT, pa.int16()), (TIME, pa.int64()), (POSITION, pa.int64()), (LIVE, pa.bool_())]
        number = [(name, pa.int64()) for name in self.query_names]
        return pa.schema([*head, *((name, to_arrow(value.type)) for name, value in stored), *number])

    def reads(self) -> frozenset[str]:
        """The columns it reads."""
        read = columns_read(self.steps)
        return read.union(*(columns_of(value) for value in self.values))

    def scanner(self, relations: Mapping[str, pa.Table]) -> RowScanner:
        """A new scanner for one task."""
        return RowScanner(self, RowPipeline.of(self.below, relations), RowPipeline.of(self.above, relations))

    def table(
        self, batch: Batch, values: Sequence[pa.Array], live: np.ndarray, slots: np.ndarray | None = None
    ) -> pa.Table:
        """The state table of some rows; without `slots` they are computed. Rows of several queries have a column of numbers."""
        slots = self._slots(batch, values) if slots is None else slots
        head = [pa.array(slots), pa.array(batch.at), pa.array(batch.position), pa.array(live)]
        numbers = [batch.columns[name] for name in self.query_names]
        return pa.table([*head, *(flat(value) for value in values), *numbers], schema=self.schema())

    def _slots(self, batch: Batch, values: Sequence[pa.Array]) -> np.ndarray:
        if self.routing is None:
            return np.full(batch.rows, self.slot, np.int16)
        return slots_of([values[index] for index in self.routing] or [pa.array(batch.position)], batch.rows)


@dataclass(slots=True)
class RowScanner:
    """Evaluates a task's rows into stored rows."""

    layout: RowLayout
    below: RowPipeline
    above: RowPipeline
    tables: list[pa.Table] = field(default_factory=list)
    rows_in: int = 0
    rows_kept: int = 0
    retractions: list[Ints] = field(default_factory=list)
    """Positions of retracted rows."""

    def add(self, batch: Batch) -> None:
        """Add a batch."""
        layout = self.layout
        self.rows_in += batch.rows
        if layout.change is not None:
            self.retractions.append(batch.retractions(layout.change))
        batch = layout.bounded.apply(self.below.apply(batch))
        batch, partition = self.below.evaluate(batch, layout.partition)
        names = layout.names[: len(partition)]
        carried = {f"__{name}": flat(value) for name, value in zip(names, partition, strict=True)}
        rows_above = self.above.apply(batch.with_columns(carried))
        rows_above, values = self.above.evaluate(rows_above, layout.stored)
        self.rows_kept += rows_above.rows
        if rows_above.rows:
            partition_values = [rows_above.columns[name] for name in carried]
            self.tables.append(
                layout.table(rows_above, [*partition_values, *values], np.ones(rows_above.rows, bool))
            )
        if layout.counts_all:
            self._mark(batch, partition, rows_above.position)

    def _mark(self, batch: Batch, partition: Sequence[pa.Array], positions: Ints) -> None:
        dropped = ~np.isin(batch.position, positions)
        if dropped.any():
            batch = batch.where(dropped)
            partition_values = [flat(value).filter(pa.array(dropped)) for value in partition]
            nulls = [pa.nulls(batch.rows, to_arrow(value.type)) for value in self.layout.stored]
            self.tables.append(
                self.layout.table(batch, [*partition_values, *nulls], np.zeros(batch.rows, bool))
            )

    def finish(self) -> Scanned:
        """The deltas: one section of rows."""
        deltas = {ROWS: pa.concat_tables(self.tables)} if self.tables else {}
        rejected = insertion_failures((*self.below.rejected, *self.above.rejected), self.retractions)
        return Scanned(deltas, rejected, self.rows_in, self.rows_kept)


@dataclass(frozen=True, slots=True)
class Held:
    """Stored rows, in memory."""

    table: pa.Table
    at: Ints
    position: Ints
    live: np.ndarray

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.at)

    def where(self, keep: np.ndarray) -> Held:
        """Some of the rows."""
        return self if keep.all() else self.take(np.flatnonzero(keep))

    def take(self, rows: Ints) -> Held:
        """Rows by index, in that order."""
        return Held(picked_rows(self.table, rows), self.at[rows], self.position[rows], self.live[rows])

    def column(self, name: str) -> pa.Array:
        """A stored column."""
        return flat(self.table.column(name))


def hold(layout: RowLayout, tables: Sequence[pa.Table]) -> Held:
    """Load tables of rows."""
    whole = pa.concat_tables(tables) if tables else layout.schema().empty_table()
    at, position, live = (ints(whole, name) for name in (TIME, POSITION, LIVE))
    return Held(whole, at, position, live)
