"""Operator for aggregates over the join of sliding windows by equal keys, where each aggregate reads one side, or a product, a sum
or a difference of two: the panes of each side by key, multiplied when a window closes.

The pairs of a window are, for each key, all combinations of the rows that the sides' own windows of that end hold. So
what is summed over pairs is the sum over one side times the numbers of rows of the others (`partial_products`), and a
product's sum that of its factors (`side_products`); pairs are made of keys for which that would not be the same. Each side is an aggregate over panes (`time_windows/pane_aggregate`), grouped by the join's keys and by its own columns of
GROUP BY, over its rows of the union of all streams: late rows, panes, merges and the punctuation of the slowest stream are
those of any aggregate. The cost follows the rows and the groups, however many pairs there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression_text import show
from headrace.algebra.windows.context import Context
from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import Layout, WindowCells, reduce_answer
from headrace.operators.aggregates.group_by import Grouped, columns_of_cells
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints, group, picked
from headrace.operators.base.operator import Advance, BaseOperator, EmittedCounts, Scanned, Sections, Step
from headrace.operators.base.union_positions import input_number
from headrace.operators.joins.join_side import failed_pairs
from headrace.operators.joins.partial_products import combinations, in_one_table, products
from headrace.operators.joins.side_products import (
    OfTwoSides,
    SideProduct,
    SideSum,
    StoredRows,
    evaluated,
    in_first_window,
    keys_of,
    some_cells,
    stored_rows,
    summed_rows,
    with_keys,
)
from headrace.operators.output.display import keys as shown_keys
from headrace.operators.output.display import steps_up
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.panes.emission_limit import EmissionCap
from headrace.operators.panes.panes import Panes
from headrace.operators.partials.encoding import PartialColumn, rows_partial
from headrace.operators.partials.partial import Cells
from headrace.operators.rows.sorted_rows import portions
from headrace.operators.time_windows.pane_aggregate import PaneAggregate, PaneScanner
from headrace.operators.time_windows.pane_display import partials, window
from headrace.operators.window_assembly.window_closing import bounds_of, closed_cells
from headrace.time import FOREVER, Instant

_SIDE: Final = "side"


@dataclass(frozen=True, slots=True)
class AggregatedSide:
    """One side: the numbers of its streams among the inputs, and its aggregate, whose first keys are those of the join."""

    inputs: tuple[int, ...]
    panes: PaneAggregate
    name: str

    @property
    def stores_rows(self) -> bool:
        """Whether its panes are rows: of these it has factors of products."""
        return self.panes.row_layout_limit is not None


@dataclass(frozen=True, slots=True)
class JoinAggregate(BaseOperator):
    """`Finish(Aggregate(Join(Windowed(TimeSlide), …)))` of one query, of sides with `keys` equal keys.

    `places`: for each group key the side and the key of it that it is. `side_of`: the side of each partial, None
    for those of `products`. `once`: no two combinations of keys are of one group. The bounds are those of the first side's windows.
    """

    id: str
    query: str
    stream: str
    sides: tuple[AggregatedSide, ...]
    keys: int
    grouped: Grouped
    places: tuple[tuple[int, int], ...]
    side_of: tuple[int | None, ...]
    finish: Finish
    window_alias: str
    once: bool
    relations: tuple[str, ...] = ()
    join_signature: str = ""
    rule: str = ""
    products: tuple[SideProduct | SideSum, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns it reads, by their names in the union."""
        return frozenset().union(*(side.panes.columns for side in self.sides))

    @property
    def context(self) -> Context:
        """The class of its windows."""
        return Context.FREE

    @property
    def finishing(self) -> Finish:
        """The steps above its groups."""
        return self.finish

    @property
    def emission_windows(self) -> Panes:
        """Those of the first side: all close together."""
        return self.sides[0].panes.panes

    @property
    def ends_in_parts(self) -> bool:
        """Each window is made of panes alone."""
        return True

    @property
    def _layout(self) -> Layout:
        return self.grouped.layouts[0]

    def scanner(self, relations: Mapping[str, pa.Table]) -> SideScanner:
        """Folds the rows of each side into its own panes."""
        return SideScanner(self, [side.panes.scanner(relations) for side in self.sides])

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Seal the panes of all sides below punctuation, and multiply those of the windows that closed."""
        state: dict[str, pa.Table] = {}
        closed: list[WindowCells | None] = []
        open_windows = 0
        for number, side in enumerate(self.sides):
            cells = closed_cells(side.panes, _of(runs, number), _of(deltas, number), advance)
            state |= _named(cells.state, number)
            closed.append(in_one_table(side.panes.layouts[0], [*cells.chunks]))
            open_windows = max(open_windows, cells.open_windows)
        sides = [cells for cells in closed if cells is not None]
        if len(sides) < len(self.sides):
            return Step(state, open_windows=open_windows)
        chunk, failed_rows = self._multiplied(sides, _Stored(self, runs, deltas, advance))
        columns, failed = columns_of_cells(self.grouped, chunk, [])
        first = self.sides[0].panes
        bounds, ends = bounds_of(first.panes, first.range, self.window_alias, chunk.windows)
        results, rejected = finish(self.finish, {**columns, **bounds}, chunk.windows, ends, failed)
        held = sum(int(side.answer.cells[rows_partial()][0].sum()) for side in sides)
        counts = EmittedCounts().plus(chunk.rows, held)
        return Step(state, results, (*failed_rows, *rejected), open_windows, emitted_counts=counts)

    def _multiplied(
        self, sides: Sequence[WindowCells], stored: _Stored
    ) -> tuple[WindowCells, tuple[Rejected, ...]]:
        """The cells of each window and group over all combinations of rows with equal keys; and combinations that fail."""
        cell_numbers = combinations(sides, self.keys)
        alike = np.ones(len(cell_numbers[0]), bool)
        for product in self.products:
            alike &= product.alike(sides, cell_numbers)
        if alike.all():
            return self._of_cells(sides, cell_numbers), ()
        keys = keys_of(sides[0], cell_numbers[0][~alike], self.keys)
        key_of_cell = np.full(sides[0].rows, -1)
        numbers, cells = combinations([keys, sides[0]], self.keys)
        key_of_cell[cells] = numbers
        key = key_of_cell[cell_numbers[0]]
        chunks, rejected = [self._of_cells(sides, [rows[key < 0] for rows in cell_numbers])], list[Rejected]()
        counts = [
            side.answer.cells[rows_partial()][0][rows] for side, rows in zip(sides, cell_numbers, strict=True)
        ]
        pairs = np.bincount(key[key >= 0], np.prod(counts, axis=0)[key >= 0]).astype(np.int64)
        sources = stored.sides(np.unique(keys.windows))
        for start, stop in portions(pairs):
            chunk, failed = self._of_rows(sides, sources, some_cells(keys, np.arange(start, stop)))
            chunks.append(chunk)
            rejected += failed
        whole = in_one_table(self._layout, chunks)
        if whole is None:
            return chunks[0], tuple(rejected)
        return whole if self.once else self._combined(whole), tuple(rejected)

    def _of_cells(self, sides: Sequence[WindowCells], cell_numbers: Sequence[Ints]) -> WindowCells:
        """The same from combinations of cells."""
        cells = {
            partial_column: self._product_of(partial_column).cells(partial_column, sides, cell_numbers)
            for partial_column in self._columns_of_products
        }
        whole = self._with_keys(sides, cell_numbers, cells)
        return whole if self.once else self._combined(whole)

    def _of_rows(
        self, sides: Sequence[WindowCells], sources: Sequence[StoredRows | None], keys: WindowCells
    ) -> tuple[WindowCells, list[Rejected]]:
        """The same for some windows and keys, from combinations of stored rows; those that fail are left out."""
        rows = [None if source is None else source.of(with_keys(source.cells, keys)) for source in sources]
        cells = [
            some_cells(side, with_keys(side, keys)) if source is None else source.cells
            for side, source in zip(sides, rows, strict=True)
        ]
        numbers = combinations(cells, self.keys, of_rows=True)
        values, errors = evaluated(self.products, rows, numbers)
        rejected = list[Rejected]()
        if errors is not None:
            reported = np.flatnonzero(errors.mask & in_first_window(cells, rows, numbers))
            _, ends = self.emission_windows.window_bounds(cells[0].windows[numbers[0][reported]], None)
            if len(reported):
                rejected.append(failed_pairs(ends, tuple(errors.reasons[row] for row in reported.tolist())))
            kept = ~errors.mask
            numbers = [of_side[kept] for of_side in numbers]
            values = {argument: column.filter(pa.array(kept)) for argument, column in values.items()}
        times = [
            side.answer.cells[rows_partial()][0][of_side]
            for side, of_side in zip(cells, numbers, strict=True)
        ]
        summed = {
            partial_column: summed_rows(
                partial_column, values[self._product_of(partial_column).argument], times
            )
            for partial_column in self._columns_of_products
        }
        return self._combined(self._with_keys(cells, numbers, summed)), rejected

    @property
    def _columns_of_products(self) -> list[PartialColumn]:
        columns = zip(self._layout.partial_columns, self.side_of, strict=True)
        return [partial_column for partial_column, side in columns if side is None]

    def _product_of(self, partial_column: PartialColumn) -> OfTwoSides:
        return next(product for product in self.products if product.argument == partial_column.expression)

    def _with_keys(
        self,
        sides: Sequence[WindowCells],
        cell_numbers: Sequence[Ints],
        of_products: Mapping[PartialColumn, Cells],
    ) -> WindowCells:
        """Combinations of cells with their group keys and partials."""
        answer = products(self._layout, sides, cell_numbers, self.side_of)
        if of_products:
            answer = Answer({**answer.cells, **of_products}, answer.dictionaries)
        keys = [picked(sides[side].keys[key], cell_numbers[side]) for side, key in self.places]
        return WindowCells(sides[0].windows[cell_numbers[0]], tuple(keys), answer)

    def _combined(self, cells: WindowCells) -> WindowCells:
        """One cell for each window and group."""
        groups = group([pa.array(cells.windows), *cells.keys], cells.rows)
        reduced = reduce_answer(self._layout, cells.answer, groups.codes, groups.count)
        return WindowCells(groups.keys[0].to_numpy(), groups.keys[1:], reduced)

    def emission_limit(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance, cap: EmissionCap
    ) -> Instant | None:
        """The earliest of the sides' limits."""
        limits = (
            side.panes.emission_limit(_of(runs, number), _of(deltas, number), advance, cap)
            for number, side in enumerate(self.sides)
        )
        return min((limit for limit in limits if limit is not None), default=None)

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When a pane of a side closes, or the next window that holds a closed one."""
        return min(
            (side.panes.due_after(_of(runs, number), advance) for number, side in enumerate(self.sides)),
            default=FOREVER,
        )

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """The panes of a side, merged as those of any aggregate."""
        side, name = _parted(section)
        return self.sides[side].panes.compact(name, tables, advance)

    def display(self) -> Iterator[str]:
        """From HAVING down to the panes of each side and the steps below."""
        for predicate in self.finish.having:
            yield f"keep groups where {show(predicate)}"
        yield f"group by {shown_keys(self.grouped.keys)}"
        keys = zip(*(side.panes.keys[: self.keys] for side in self.sides), strict=True)
        by = " and ".join(" = ".join(show(key.expression) for key in same) for same in keys)
        yield f"JoinAggregate: rows are joined by {by}; of a key the partials of a side are multiplied by the numbers of rows of the others"
        for side in self.sides:
            panes = side.panes
            yield f"  {side.name}: {window(panes)}, partials {', '.join(partials(panes))} by {shown_keys(panes.keys)}"
            yield from (f"    {line}" for line in steps_up(panes.steps))
            if side.stores_rows:
                yield "    rows are stored, for keys of which a product or a sum may fail: their pairs are made"

    @property
    def state_label(self) -> str:
        """The keys of its sides."""
        return f"panes of {' and '.join(side.name for side in self.sides)} by their keys"


@dataclass(frozen=True, slots=True)
class _Stored:
    """The state and the new rows of an operator in one step."""

    operator: JoinAggregate
    runs: Sequence[Sections]
    deltas: Sequence[Sections]
    advance: Advance

    def sides(self, windows: Ints) -> list[StoredRows | None]:
        """By side the rows of some windows that close now, if it stores them."""
        return [
            stored_rows(
                side.panes.layouts[0],
                side.panes.panes,
                _of(self.runs, number),
                _of(self.deltas, number),
                self.advance,
                windows,
            )
            if side.stores_rows
            else None
            for number, side in enumerate(self.operator.sides)
        ]


def _of(sections: Sequence[Sections], side: int) -> list[Sections]:
    """The sections of one side, by the names that its aggregate gives them."""
    prefix = f"{_SIDE}{side}."
    return [
        {name.removeprefix(prefix): table for name, table in section.items() if name.startswith(prefix)}
        for section in sections
    ]


def _named(sections: Sections, side: int) -> dict[str, pa.Table]:
    return {f"{_SIDE}{side}.{name}": table for name, table in sections.items()}


def _parted(section: str) -> tuple[int, str]:
    """The side of a section, and its name there."""
    side, _, name = section.partition(".")
    return int(side.removeprefix(_SIDE)), name


@dataclass(slots=True)
class SideScanner:
    """The scan half: a scanner for each side, for the rows of its streams."""

    operator: JoinAggregate
    scanners: list[PaneScanner]
    side_of: Mapping[int, int] = field(init=False)
    """The side of each input."""

    def __post_init__(self) -> None:
        sides = enumerate(self.operator.sides)
        self.side_of = {number: index for index, side in sides for number in side.inputs}

    def add(self, batch: Batch) -> None:
        """Add a batch of one of the streams."""
        if batch.rows:
            self.scanners[self.side_of[input_number(batch)]].add(batch)

    def finish(self) -> Scanned:
        """The deltas of all sides."""
        scanned = [scanner.finish() for scanner in self.scanners]
        deltas: dict[str, pa.Table] = {}
        for number, side in enumerate(scanned):
            deltas |= _named(side.deltas, number)
        return Scanned(
            deltas,
            tuple(failure for side in scanned for failure in side.rejected),
            sum(side.rows_in for side in scanned),
            sum(side.rows_kept for side in scanned),
        )
