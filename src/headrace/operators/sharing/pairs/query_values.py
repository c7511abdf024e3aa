"""Scanner of a family's aggregates that store the values of their rows (DISTINCT, percentiles, MODE), each with a condition of its own: in a
small batch all pairs of a row and a query that selects it are folded at once, with the query's number as the first key.

Of larger batches each query folds its rows by itself, as in `routed_scans`: pairs of all queries would take too much memory, and little is
lost, since the fold is what costs then. So it does of batches on which a condition, a key or an argument fails, which may concern only some queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import fresh_slots, merge
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, flat, picked
from headrace.operators.base.operator import SLOT, Scanner
from headrace.operators.families.family import state_name
from headrace.operators.families.numbering import number_of
from headrace.operators.families.pane_queries import together
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.panes.pane_keys import pane_keys
from headrace.operators.query_index.index_cache import Plans, none_yet
from headrace.operators.query_index.matching.selections import selections
from headrace.operators.scalar import Evaluation
from headrace.operators.sharing.pairs.query_pairs import QueryPairs
from headrace.operators.sharing.routed_scans import RoutedRows
from headrace.operators.time_windows.pane_aggregate import PaneAggregate

MOST_PAIRS: Final = 1 << 18
"""Rows of a batch times queries up to which pairs are folded together."""


@dataclass(frozen=True)
class _ValuePlan(QueryPairs[PaneAggregate]):
    """The conditions of a family's queries."""

    @cached_property
    def numbers(self) -> Ints:
        """The queries' numbers."""
        return np.array([number_of(query.id) for query in self.queries], np.int64)

    @cached_property
    def own_slots(self) -> tuple[Ints, np.ndarray]:
        """Numbers of queries, ascending, and the slot of all groups of each; -1 where slots follow from the keys."""
        slots = (-1 if query.single_slot is None else query.single_slot for query in self.queries)
        order = np.argsort(self.numbers)
        return self.numbers[order], np.fromiter(slots, np.int16, len(self.queries))[order]

    def slots_of_groups(self, numbers: pa.Array, keys: Sequence[pa.Array]) -> np.ndarray:
        """The slots of groups of queries: of the query, or by its keys."""
        ascending, own_slots = self.own_slots
        own: np.ndarray = own_slots[np.searchsorted(ascending, numbers.to_numpy())]
        return own if (own >= 0).all() else np.where(own >= 0, own, fresh_slots(keys, len(own), None))

    @cached_property
    def grouped(self) -> Grouped:
        """Groups of all queries: by their number, then by the keys they share."""
        return together((self.queries[0],)).grouped


_plans: Final = Plans(none_yet(_ValuePlan))


@dataclass(slots=True)
class QueryValues:
    """The scanner of the queries: `tables` has those of each store, of rows that were folded together; `alone` folds the others."""

    plan: _ValuePlan
    alone: RoutedRows
    tables: list[list[pa.Table]] = field(default_factory=list)
    kept: Ints = field(init=False)
    """The rows of each query that were folded together with those of others."""

    def __post_init__(self) -> None:
        self.kept = np.zeros(len(self.plan.queries), np.int64)

    @staticmethod
    def of(queries: tuple[PaneAggregate, ...], scanners: Mapping[str, Scanner]) -> QueryValues:
        """A scan of queries of one family, each with a filter as its only step; `scanners` make what one folds by itself."""
        return QueryValues(_plans.of(queries), RoutedRows.of(queries, scanners))

    @property
    def representative(self) -> str:
        """The first query's id."""
        return self.plan.queries[0].id

    def add(self, batch: Batch) -> None:
        """Fold a batch."""
        if batch.rows * len(self.plan.queries) > MOST_PAIRS or not self._fold(batch):
            self.alone.add(batch)

    def _fold(self, batch: Batch) -> bool:
        """Fold the pairs of a batch; False, and nothing is done, where an expression fails."""
        example = self.plan.queries[0]
        matched = selections(self.plan.index, batch.columns, batch.rows)
        evaluation = Evaluation(batch.readable, batch.rows)
        values = [flat(evaluation.values(value)) for value in example.grouped.inputs()]
        if matched.failed or evaluation.errors is not None:
            return False
        self.alone.rows_in += batch.rows  # which no query got
        blocks = pane_keys(example.panes.of_times(batch.times))
        for rows, queries in self.plan.portions(matched.pairs()):
            self.kept += np.bincount(queries, minlength=len(self.kept))
            of_pairs = [pa.array(self.plan.numbers.take(queries)), *(picked(value, rows) for value in values)]
            self.tables.append(self._folded(blocks.take(rows), of_pairs))
        return True

    def _folded(self, blocks: Ints, values: Sequence[pa.Array]) -> list[pa.Table]:
        """The cells of pairs by store, in the slot of their query, or in that of their keys without its number."""
        plan, tables = self.plan, list[pa.Table]()
        keys = len(plan.grouped.keys)
        for table in fold(plan.grouped, blocks, values, 0):
            number, *others = (flat(column) for column in table.columns[2 : 2 + keys])
            at, slots = table.column_names.index(SLOT), plan.slots_of_groups(number, others)
            tables.append(table.set_column(at, table.schema.field(at), pa.array(slots)))
        return tables

    def finish(self) -> ScanOutput:
        """The cells of all queries, and what was scanned for each."""
        output, state = self.alone.finish(), state_name(self.plan.queries[0])
        for store, tables in enumerate(zip(*self.tables, strict=True)):
            layout = self.plan.grouped.layouts[store]
            output.put(f"{state}/open{store}", tables[0] if len(tables) == 1 else merge(layout, tables))
        for place in np.flatnonzero(self.kept).tolist():
            name = self.plan.queries[place].id
            alone = output.scanned[name]
            output.scanned[name] = replace(alone, rows_kept=alone.rows_kept + int(self.kept[place]))
        return output
