"""Cohorts: the queries of a family that advance over the same interval of time together, and the selection and
compaction of their rows in the family's state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import Advance, FamilyStep, Operator, Sections, StateOwner
from headrace.operators.families.family import QueryRowCounts, numbers_in
from headrace.operators.families.numbering import number_of

if TYPE_CHECKING:
    from headrace.operators.families.pane_queries import PaneStream


@dataclass(frozen=True, slots=True)
class Cohort(StateOwner):
    """Queries of one family with the same `Advance`, in the order of their numbers."""

    queries: tuple[Operator, ...]
    numbers: Ints
    """The queries' numbers."""

    @staticmethod
    def of(queries: Sequence[Operator]) -> Cohort:
        """The cohort of queries in any order."""
        numbers = np.array([number_of(query.id) for query in queries], np.int64)
        order = np.argsort(numbers)
        return Cohort(tuple(queries[index] for index in order.tolist()), numbers[order])

    def own_rows(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """The queries' rows of state tables."""
        return [self.only(table, QueryRowCounts.of(table)) for table in tables]

    def only(self, table: pa.Table, query_row_counts: QueryRowCounts) -> pa.Table:
        """The queries' rows of a state table; `query_row_counts` counts its rows by query."""
        if np.array_equal(query_row_counts.numbers, self.numbers):  # the common case, and cheap to check
            return table
        is_own = np.isin(query_row_counts.numbers, self.numbers)
        if is_own.all():
            return table
        mask = np.isin(numbers_in(table), self.numbers)
        return table.filter(pa.array(mask)) if is_own.any() else table.slice(0, 0)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> FamilyStep:
        """The family's new state sections, and each query's answer; runs and deltas hold only rows of these queries."""
        return self.queries[0].advance_family(self, runs, deltas, advance)

    def stream(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> PaneStream | None:
        """The same with results that are made when they are taken; None if the family makes all of them at once."""
        return self.queries[0].stream_family(self, runs, deltas, advance)

    def before_merge(
        self, sections: Mapping[str, Sequence[pa.Table]], advance: Advance
    ) -> Mapping[str, Sequence[pa.Table]]:
        """As the queries' operator rearranges them."""
        return self._together().before_merge(sections, advance)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """One table with the same meaning; see `Operator.compact`."""
        return self._together().compact(section, tables, advance)

    def _together(self) -> Operator:
        return self.queries[0].together(self.queries)


_cohorts: Final[MadeOnce[Cohort]] = MadeOnce(64)
"""Of all queries of a family, which advance together in most epochs."""


def cohort_of(operators: tuple[Operator, ...]) -> Cohort:
    """The cohort of queries, made once for the same objects."""
    return _cohorts.of(operators, lambda: Cohort.of(operators))


def cohorts(operators: Sequence[Operator], advances: Mapping[str, Advance]) -> list[tuple[Cohort, Advance]]:
    """A family's queries by their `Advance`."""
    same: dict[int, tuple[Advance, list[Operator]]] = {}  # most share one object, so hash its id
    for operator in operators:
        advance = advances[operator.id]
        same.setdefault(id(advance), (advance, []))[1].append(operator)
    if len(same) == 1:
        ((advance, together),) = same.values()
        return [(cohort_of(tuple(together)), advance)]
    by_advance: dict[Advance, list[Operator]] = {}
    for advance, together in same.values():
        by_advance.setdefault(advance, []).extend(together)
    return [(Cohort.of(queries), advance) for advance, queries in by_advance.items()]
