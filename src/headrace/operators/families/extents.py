"""Extents (lengths or row counts) of the windows of a family's queries, as an array by query; and state rows selected
by slot, or by an interval of keys for each query.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import SLOT, Operator
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import numbers_in
from headrace.operators.panes.pane_keys import between


@dataclass(frozen=True, slots=True, eq=False)
class Extents:
    """The extent of each query's window, and the slot of its rows without a key; queries in the order of their numbers.

    An extent is a length of time in microseconds, or a number of rows; 0 where windows have none.
    """

    numbers: Ints
    values: Ints
    slots: np.ndarray

    @staticmethod
    def of(queries: Sequence[Operator]) -> Extents:
        """The extents of queries of a family."""
        cohort = Cohort.of(queries)
        values = np.array([query.extent for query in cohort.queries], np.int64)
        return Extents(
            cohort.numbers, values, np.array([query.own_slot for query in cohort.queries], np.int16)
        )

    @staticmethod
    def alone(query: Operator) -> Extents:
        """The extent of one query with its own state, whose rows have no number."""
        return Extents(np.zeros(1, np.int64), np.array([query.extent]), np.array([query.own_slot], np.int16))

    @property
    def count(self) -> int:
        """The number of queries."""
        return len(self.numbers)

    def places(self, table: pa.Table) -> Ints:
        """The place among the queries of each row of a state table."""
        return np.zeros(table.num_rows, np.int64) if self.count == 1 else self.places_of(numbers_in(table))

    def places_of(self, numbers: Ints) -> Ints:
        """The place of the query of each number."""
        return np.searchsorted(self.numbers, numbers)

    def of_rows(self, table: pa.Table) -> Ints:
        """The extent of the query of each row of a state table."""
        return self.values[self.places(table)]


def only_slots(tables: Sequence[pa.Table], slots: np.ndarray | None) -> list[pa.Table]:
    """The rows of tables in some slots; None: in all."""
    if slots is None or not tables:
        return list(tables)
    whole = pa.concat_tables(tables)
    return [whole.filter(pa.array(slots[ints(whole, SLOT)]))]


def within(tables: Sequence[pa.Table], start: Ints, stop: Ints, extents: Extents) -> list[pa.Table]:
    """The rows of tables sorted by key with start <= key < stop, which are given for each query."""
    wanted = start < stop
    if not wanted.any() or not tables:
        return []
    low, high = int(start[wanted].min()), int(stop[wanted].max())
    near = between(tables, low, high)
    if not near or ((start == low) & (stop == high)).all():
        return near
    whole = pa.concat_tables(near)
    places, keys = extents.places(whole), ints(whole, KEY)
    inside = (keys >= start[places]) & (keys < stop[places])
    return [whole.filter(pa.array(inside))] if inside.any() else []
