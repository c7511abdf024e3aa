"""Scanner of time-window aggregates with different windows, over the same rows and groups: rows are folded once, by the
panes that all windows have in common; and the computation of these panes.

Queries with the same rows and keys differ only in their windows and aggregates. Their rows are folded once, by the
panes that all their windows have in common, into the union of their partials; each query's own panes are then made of
those few cells instead of the rows. The output of the task is what each query would have made alone, so state, replay
and everything after are not affected.
Source: Krishnamurthy, Wu, Franklin 2006 (shared paired windows); Li 2008, section 6.5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY, SLOT, Gathered, Layout, gather, merge_gathered
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.base.batch import Batch, EventTimes
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import Scanned, Scanner, Sections
from headrace.operators.families.family import numbered
from headrace.operators.families.numbering import number_of
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.panes.pane_keys import pane_keys
from headrace.operators.panes.panes import Panes
from headrace.operators.rows.row_pipeline import RowPipeline
from headrace.operators.scalar import Evaluation
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.time import Instant

_MOST_GRID: Final = 4096
"""Up to this many panes of the greatest common divisor in a batch, they are counted instead of searched."""
_LEAST_GAIN: Final = 4
"""Sharing pays while a common cell holds at least this many rows."""


@dataclass(slots=True)
class SharedPanes:
    """The scanner of several pane aggregates over the same rows and keys."""

    queries: tuple[PaneAggregate, ...]
    union: Grouped
    pipeline: RowPipeline
    scanners: LazyScanners
    """Each query's scanner: for batches on which an expression fails, since it must fail for its query alone."""
    tables: list[list[pa.Table]] = field(default_factory=list)
    rows_in: int = 0
    rows_kept: int = 0
    pays: bool = True

    @staticmethod
    def of(queries: tuple[PaneAggregate, ...], relations: Mapping[str, pa.Table]) -> SharedPanes:
        """A scan of all these queries, which have equal steps and keys."""
        calls = dict.fromkeys(item.call for query in queries for item in query.aggregates)
        union = Grouped(
            queries[0].keys, tuple(NamedAggregate(f"a{index}", call) for index, call in enumerate(calls))
        )
        scanners = LazyScanners({query.id: query for query in queries}, relations)
        return SharedPanes(queries, union, RowPipeline.of(queries[0].steps, relations), scanners)

    @property
    def representative(self) -> str:
        """The first query's id."""
        return self.queries[0].id

    def add(self, batch: Batch) -> None:
        """Fold a batch once for all; or once for each, if sharing does not pay or an expression fails."""
        if not self.pays or not self._fold(batch):
            for query in self.queries:
                self.scanners[query.id].add(batch)

    def _fold(self, batch: Batch) -> bool:
        passing = self.pipeline.apply(batch)
        failed = bool(self.pipeline.rejected)
        self.pipeline.rejected.clear()
        evaluation = Evaluation(passing.readable, passing.rows)
        values = [] if failed else [evaluation.values(input_) for input_ in self.union.inputs()]
        if failed or evaluation.errors is not None:
            return False
        self.rows_in += batch.rows
        self.rows_kept += passing.rows
        if passing.rows:
            combs = tuple({query.panes.grid: query.panes for query in self.queries}.values())
            pane_indices, starts = common_panes(combs, passing.times)
            folded = fold(self.union, pane_indices, values, None)
            self.tables.append([_starting(table, starts) for table in folded])
            self.pays = _LEAST_GAIN * folded[0].num_rows * len(combs) <= passing.rows * len(self.queries)
        return True

    def finish(self) -> ScanOutput:
        """Each query's deltas, as it would have made them alone."""
        stores = [
            gather(layout, [folded[store] for folded in self.tables])
            for store, layout in enumerate(self.union.layouts)
        ]
        output = ScanOutput()
        for alike in _over_same_panes(self.queries):
            for section, table in self._deltas(alike, stores).items():
                if alike[0].family is None:
                    output.sections[f"{alike[0].id}/{section}"] = [table]
                    output.delta_rows[alike[0].id] = output.delta_rows.get(alike[0].id, 0) + table.num_rows
                else:
                    output.put(f"{alike[0].family}/{section}", table)
        shared = Scanned({}, (), self.rows_in, self.rows_kept)
        for query in self.queries:
            output.add(query, self.scanners.joined(query.id, shared))
        return output

    def _deltas(self, alike: Sequence[PaneAggregate], stores: Sequence[Gathered]) -> Sections:
        """The deltas of queries over the same panes; those of a family are made once, and repeated for each."""
        query, deltas = alike[0], dict[str, pa.Table]()
        arguments = self.union.distinct_arguments
        union_stores = [0, *(1 + arguments.index(argument) for argument in query.grouped.distinct_arguments)]
        for store, (union_store, layout) in enumerate(zip(union_stores, query.layouts, strict=True)):
            if stores[union_store].rows:
                table = _refold(query, layout, stores[union_store])
                deltas[f"open{store}"] = table if query.family is None else _for_each(alike, table)
        return deltas


def _over_same_panes(queries: Sequence[PaneAggregate]) -> list[list[PaneAggregate]]:
    """The queries of each family that have the same panes, and each query without a family."""
    alike: dict[object, list[PaneAggregate]] = {}
    for query in queries:
        alike.setdefault(query.id if query.family is None else (query.family, query.panes.grid), []).append(
            query
        )
    return list(alike.values())


def _for_each(queries: Sequence[PaneAggregate], table: pa.Table) -> pa.Table:
    """Cells of the same rows and panes, as those of each query of a family."""
    numbers = np.array([number_of(query.id) for query in queries], np.int64)
    rows = np.repeat(np.arange(table.num_rows), len(queries))
    cells = numbered(table.take(pa.array(rows)), np.tile(numbers, table.num_rows))
    slots = [-1 if query.single_slot is None else query.single_slot for query in queries]
    if slots == [-1] * len(queries):
        return cells
    routed = np.tile(np.array(slots, np.int16), table.num_rows)
    routed = np.where(routed < 0, ints(cells, SLOT), routed)
    return cells.set_column(1, cells.schema.field(1), pa.array(routed))


class LazyScanners(dict[str, Scanner]):
    """Scanners by query, made on first use: hardly any batch needs them."""

    def __init__(self, queries: Mapping[str, PaneAggregate], relations: Mapping[str, pa.Table]) -> None:
        super().__init__()
        self._queries, self._relations = queries, relations

    def __missing__(self, name: str) -> Scanner:
        self[name] = self._queries[name].scanner(self._relations)
        return self[name]

    def joined(self, query: str, shared: Scanned) -> Scanned:
        """The sum of what a query's own scanner made, if it was needed, and its part of the shared folds."""
        if query not in self:
            return shared
        alone = self[query].finish()
        return replace(
            alone,
            rejected=(*alone.rejected, *shared.rejected),
            rows_in=alone.rows_in + shared.rows_in,
            rows_kept=alone.rows_kept + shared.rows_kept,
        )


def _starting(table: pa.Table, starts: Ints) -> pa.Table:
    """A folded table whose cells are named by the instants at which their panes start."""
    pane_indices = ints(table, KEY)
    return table.set_column(0, KEY, pa.array(starts[pane_indices]))


def _refold(query: PaneAggregate, layout: Layout, cells: Gathered) -> pa.Table:
    """Common cells as rows of a query's own panes."""
    slots = cells.slots
    if query.single_slot is not None and query.family is None:
        slots = np.full(cells.rows, query.single_slot, np.int16)
    blocks = pane_keys(query.panes.of_instants(cells.blocks))
    return merge_gathered(layout, Gathered(blocks, slots, cells.groups, cells.answer))


def common_panes(combs: Sequence[Panes], times: EventTimes) -> tuple[Ints, Ints]:
    """The panes that no edge of any comb crosses: for each row the index of its pane, and the start of each pane.

    If rows are sparse in time only non-empty panes are listed: an edge of each comb, the last at or before the row.
    """
    whole = [panes.holding_all(times) for panes in combs]
    if None not in whole:
        firsts = (panes.starts(np.array([pane])) for panes, pane in zip(combs, whole, strict=True))
        return np.broadcast_to(np.int64(0), times.rows), functools.reduce(np.maximum, firsts)
    at, (low, high) = times.instants, times.bounds
    base, width = _grid(combs)
    first = (low - base) // width
    count = (high - base) // width - first + 1
    if count <= _MOST_GRID:
        start = base + first * width
        return (at - start) // width, start + np.arange(count) * width
    if sum(panes.per_slide * ((high - low) // panes.slide + 2) for panes in combs) > _MOST_GRID + len(at):
        begins = functools.reduce(np.maximum, (panes.starts(panes.of_instants(at)) for panes in combs))
        starts, pane_indices = np.unique(begins, return_inverse=True)
        return pane_indices, starts
    edges = np.unique(np.concatenate([_edges(panes, low, high) for panes in combs]))
    return np.searchsorted(edges, at, side="right") - 1, edges


def _grid(combs: Sequence[Panes]) -> tuple[Instant, int]:
    """An edge and the greatest distance of which all edges are multiples."""
    base = combs[0].anchor
    steps = [part for panes in combs for part in (panes.slide, panes.cut, panes.anchor - base)]
    return base, math.gcd(*steps)


def _edges(panes: Panes, low: Instant, high: Instant) -> Ints:
    """Where panes begin, from the pane of `low` to that of `high`."""
    advances = np.arange((low - panes.anchor) // panes.slide, (high - panes.anchor) // panes.slide + 1)
    begins = panes.anchor + advances * panes.slide
    return np.concatenate([begins, begins + panes.cut]) if panes.cut else begins
