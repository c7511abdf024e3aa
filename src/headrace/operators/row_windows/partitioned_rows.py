"""Common parts of operators of windows over a partition's rows (`[ROWS n SLIDE m]`, `[RANGE r SLIDE n ROWS]`, frames,
users' classes): their settings and base class, the fold of rows by partition and group, and the answers of windows that
end.

`PartitionedRows` defines what is stored of each row and the steps above the windows; an operator adds where its windows
begin and end. Rows of a partition are in the slot of their partition, and so are their cells: rows folded by (block,
partition, group).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Named
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import Layout, WindowCells
from headrace.operators.aggregates.group_by import Grouped, columns_of_cells, fold, nothing
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Groups, Ints, flat, group, ints, slots_of
from headrace.operators.base.operator import QUERY_NUMBER, SLOT, WINDOW, Operator, Sections, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.extents import Extents
from headrace.operators.families.family import joined
from headrace.operators.families.family_operator import RowFamilyOperator
from headrace.operators.families.finishing import NUMBER, by_query, plan_of, plans_of
from headrace.operators.output.changelog import EmitMode
from headrace.operators.output.output_stage import Finish
from headrace.operators.output.row_operator import RowOperator
from headrace.operators.row_windows.window_answers import (
    LAST,
    LAST_EMITTED,
    Chunk,
    Shown,
    finished,
    last_of_each,
    latest_emitted,
    window_differences,
)
from headrace.operators.row_windows.window_bins import Ends
from headrace.operators.rows.row_state import ROWS, RowLayout

CellsOf: TypeAlias = Callable[[Layout, str], WindowCells]
"""The cells of windows that end now, of a store: by its layout and its section of the state."""


@dataclass(frozen=True, slots=True)
class PartitionedRows:
    """`Finish(Aggregate?(Windowed(...)))` except the window; with `emit_mode`, differences to the partition's previous
    window.

    The first `partitions` stored values are the partition. `grouped` reads the stored values that follow, in its order
    of inputs; None without aggregates. `rule` chose the operator.
    """

    id: str
    query: str
    stream: str
    partitions: int
    bounds_prefix: str
    rows: RowLayout
    grouped: Grouped | None
    finish: Finish
    emit_empty: bool = False
    emit_mode: EmitMode | None = None
    relations: tuple[str, ...] = ()
    rule: str = ""
    family: str | None = None
    """The name of the state it shares with queries of its shape."""
    queries: Extents | None = None
    """Of an operator for several queries of a family: their extents. Their number is the first part of a partition."""

    @property
    def shape(self) -> tuple[object, ...]:
        """All that queries of its family have in common, but for their windows."""
        windows = (self.bounds_prefix, self.emit_empty, self.emit_mode, self.finish.is_row_by_row)
        return self.stream, self.partitions, self.rows.shape, self.grouped, windows

    @property
    def answer_shape(self) -> tuple[object, ...]:
        """The columns of the answer, which is stored: equal for queries of its family."""
        columns = tuple((column.name, column.expression.type) for column in self.finish.columns)
        return columns, tuple(key.expression.type for key in self.finish.sort)

    def lengths(self, numbers: Sequence[pa.Array], alone: int) -> Ints | int:
        """The extent of the query of each row, whose number is the first of `numbers`; `alone` if there is one query."""
        if self.queries is None:
            return alone
        return self.queries.values[self.queries.places_of(numbers[0].to_numpy())]

    def together(self, queries: Sequence[Operator]) -> PartitionedRows:
        """The same for all queries of its family."""
        return joined(
            queries,
            lambda: replace(
                self, rows=replace(self.rows, by_query=True), family=None, queries=Extents.of(queries)
            ),
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the stored partition values."""
        return (*self.rows.query_names, *self.rows.names[: self.partitions])

    @property
    def by_part(self) -> Grouped:
        """The aggregation with the partition as its first keys."""
        assert self.grouped is not None
        partition = (
            Named(f"__{name}", value)
            for name, value in zip(self.rows.names[: self.partitions], self.rows.partition, strict=False)
        )
        number = (NUMBER,) if self.queries is not None else ()
        return Grouped((*number, *partition, *self.grouped.keys), self.grouped.aggregates)

    @property
    def stores(self) -> tuple[str, ...]:
        """The sections of cells, one per store; or that of rows without aggregates."""
        if self.grouped is None:
            return (ROWS,)
        return tuple(f"cells{index}" for index, _ in enumerate(self.grouped.layouts))

    def layout_of(self, store: str) -> Layout:
        """The layout of a section's cells."""
        return self.by_part.layouts[self.stores.index(store)]

    def partition(self, table: pa.Table) -> Groups:
        """The partition of each row."""
        return group([flat(table.column(name)) for name in self.parts], table.num_rows)

    def slots(self, keys: Sequence[pa.Array], rows: int) -> np.ndarray:
        """The slots of partitions: as `RowLayout` routes their rows."""
        if self.partitions:
            return slots_of(keys[len(self.rows.query_names) :], rows)
        if self.queries is None:
            return np.full(rows, self.rows.slot, np.int16)
        slots: np.ndarray = self.queries.slots[self.queries.places_of(keys[0].to_numpy())]
        return slots

    def cells(self, rows: pa.Table, blocks: Ints, names: Sequence[str]) -> dict[str, pa.Table]:
        """Rows folded by (block, partition, group), one table per store; `names` are the stored values except those of
        the window.
        """
        values = [flat(rows.column(name)) for name in (*self.rows.query_names, *names)]
        folded: dict[str, pa.Table] = {}
        for store, table in zip(self.stores, fold(self.by_part, blocks, values, self.rows.slot), strict=True):
            keys = [flat(table.column(f"k{part}")) for part, _ in enumerate(self.parts)]
            slots = pa.array(self.slots(keys, table.num_rows))
            folded[store] = table.set_column(table.column_names.index(SLOT), SLOT, slots)
        return folded

    def chunks(self, ends: Ends, rows: Iterator[Chunk], cells: CellsOf) -> Iterator[Chunk]:
        """The windows' `rows` or, with aggregates, their groups of `cells`; with EMIT EMPTY also windows without rows."""
        if self.grouped is None:
            yield from rows
            return
        grouped = self.by_part
        by_store = [cells(layout, store) for layout, store in zip(grouped.layouts, self.stores, strict=True)]
        chunks = [by_store[0]]
        if self.emit_empty and not self.grouped.keys:
            missing = np.setdiff1d(np.arange(ends.count), by_store[0].windows)
            keys = tuple(key.take(pa.array(missing)) for key in ends.keys)
            chunks.append(
                WindowCells(missing, keys, nothing(grouped.layouts[0].partial_columns, len(missing)))
            )
        for chunk in chunks:
            columns, failed = columns_of_cells(grouped, chunk, [[part] for part in by_store[1:]])
            yield chunk.windows, columns, failed

    def answered(
        self,
        ends: Ends,
        shown: Shown,
        chunks: Iterator[Chunk],
        runs: Sequence[Sections],
        state: dict[str, pa.Table],
    ) -> tuple[pa.Table, tuple[Rejected, ...]]:
        """The results of windows that end now; the answer of each partition's last one is added to `state`."""
        results, rejected = finished(self.finish, self.bounds_prefix, ends, shown, chunks)
        return self._with_last(ends, results, runs, state), rejected

    def answered_by_query(
        self,
        cohort: Cohort,
        ends: Ends,
        shown: Shown,
        chunks: Iterator[Chunk],
        runs: Sequence[Sections],
        state: dict[str, pa.Table],
    ) -> dict[str, Step]:
        """The same for the windows of several queries: those with equal plans together, if no row fails."""
        places = np.searchsorted(cohort.numbers, ends.keys[0].to_numpy())
        all_chunks, tables = list(chunks), list[pa.Table]()
        rejected: dict[int, tuple[Rejected, ...]] = {}
        for plan, sharers in plans_of([plan_of(query) for query in cohort.queries]):
            table, bad = finished(plan, self.bounds_prefix, ends, shown, _of(all_chunks, places, sharers))
            if not bad:
                tables.append(table)
                continue
            for index in sharers:
                of_query = _of(all_chunks, places, [index])
                table, rejected[index] = finished(plan, self.bounds_prefix, ends, shown, of_query)
                tables.append(table)
        results = self._with_last(ends, pa.concat_tables(tables), runs, state)
        owners = pa.array(places[ints(results, WINDOW)])
        by_place = dict(by_query(results.append_column(QUERY_NUMBER, owners)))
        return {
            query.id: Step({}, by_place.get(index), rejected.get(index, ()))
            for index, query in enumerate(cohort.queries)
        }

    def _with_last(
        self, ends: Ends, results: pa.Table, runs: Sequence[Sections], state: dict[str, pa.Table]
    ) -> pa.Table:
        """The results, or their differences; the last ones of each partition are added to `state`."""
        several = self.queries is not None
        state[LAST] = last_of_each(ends, results, self.slots, by_query=several)
        if self.emit_mode is not None:
            results = window_differences(
                ends, results, [run[LAST] for run in runs if LAST in run], self.emit_mode
            )
            state[LAST_EMITTED] = last_of_each(ends, results, self.slots, by_query=several)
        return results


def _of(chunks: Sequence[Chunk], places: Ints, chosen: Sequence[int]) -> Iterator[Chunk]:
    """The rows of windows of some queries; `places` are those of the windows' queries."""
    for windows, columns, failed in chunks:
        rows = np.flatnonzero(np.isin(places[windows], chosen))
        picked = pa.array(rows)
        picked_columns = {name: flat(column).take(picked) for name, column in columns.items()}
        yield windows[rows], picked_columns, None if failed is None else failed[rows]


class OverPartitions(RowFamilyOperator, RowOperator):
    """An operator over `PartitionedRows`; subclasses define how their windows end, and whether they have families."""

    __slots__ = ()
    spec: PartitionedRows

    @property
    def id(self) -> str:
        """Stable name of its state."""
        return self.spec.id

    @property
    def query(self) -> str:
        """The query whose results it makes."""
        return self.spec.query

    @property
    def stream(self) -> str:
        """The stream it reads."""
        return self.spec.stream

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations its row steps look up."""
        return self.spec.relations

    @property
    def rows(self) -> RowLayout:
        """What is stored of each row."""
        return self.spec.rows

    @property
    def finish(self) -> Finish:
        """The steps above its windows."""
        return self.spec.finish

    @property
    def rule(self) -> str:
        """The rule that chose it."""
        return self.spec.rule

    @property
    def family(self) -> str | None:
        """The name of the state it shares with queries of its shape."""
        return self.spec.family

    def reading(self, stream: str) -> Operator:
        """The operator over another stream."""
        other: Operator = replace(cast("Any", self), spec=replace(self.spec, stream=stream))
        return other

    def with_family(self, family: str | None) -> Operator:
        """The operator with the name of a family, or without one."""
        named: Operator = replace(cast("Any", self), spec=replace(self.spec, family=family))
        return named

    @property
    def records(self) -> tuple[Any, ...]:
        """Its own settings, then those of all operators over partitions."""
        return (self, self.spec)

    @property
    def keeps_latest(self) -> bool:
        """Its state has the last window's answer."""
        return True

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last window of each partition that has ended, as INVOKE returns it; None if there is none."""
        return latest_emitted(runs, self.spec.emit_mode)
