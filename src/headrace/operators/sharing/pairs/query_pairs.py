"""Pairs of a row and a query that selects it: the conditions of many queries in one index, of which several may be equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.index_cache import Conditions
from headrace.operators.query_index.matching.selections import Pairs
from headrace.operators.rows.sorted_rows import spread

PAIRS_AT_ONCE: Final = 1 << 18
"""Pairs that become rows together, about: 2 MB a column."""
_Query = TypeVar("_Query")


@dataclass(frozen=True)
class QueryPairs(Conditions[_Query]):
    """The conditions of queries, and the queries of each."""

    @cached_property
    def by_slot(self) -> tuple[Ints, Ints]:
        """The queries in the order of the slots of their conditions, and where those of each slot begin."""
        order = np.argsort(self.slots, kind="stable")
        return order, np.searchsorted(self.slots[order], np.arange(self.index.next_slot + 1))

    @cached_property
    def only(self) -> Ints | None:
        """The query of each slot, if no two queries have one condition; -1 of slots without a query."""
        if len(np.unique(self.slots)) < len(self.slots):
            return None
        queries = np.full(self.index.next_slot, -1, np.int64)
        queries[self.slots] = np.arange(len(self.slots))
        return queries

    def portions(self, matched: Iterable[Pairs]) -> Iterator[Pairs]:
        """Rows, and the queries that select each, of pairs of rows and slots; about `PAIRS_AT_ONCE` together."""
        waiting, count = list[Pairs](), 0
        for rows, queries in self._selecting(matched):
            waiting.append((rows, queries))
            count += len(rows)
            if count >= PAIRS_AT_ONCE:
                yield _joined(waiting)
                waiting, count = [], 0
        if count:
            yield _joined(waiting)

    def _selecting(self, matched: Iterable[Pairs]) -> Iterator[Pairs]:
        """The same, at most about `PAIRS_AT_ONCE` of them together."""
        for rows, slots in matched:
            if self.only is not None:
                for low in range(0, len(rows), PAIRS_AT_ONCE):
                    part = slice(low, low + PAIRS_AT_ONCE)
                    yield rows[part], self.only.take(slots[part])
                continue
            order, edges = self.by_slot
            first = edges[slots]
            counts = edges[slots + 1] - first
            ends = np.cumsum(counts)
            total = int(ends[-1]) if len(ends) else 0
            cuts = np.searchsorted(ends, np.arange(PAIRS_AT_ONCE, total, PAIRS_AT_ONCE)) + 1
            for low, high in pairwise([0, *np.unique(cuts).tolist(), len(rows)]):
                part = slice(low, high)
                row, query = spread(first[part], counts[part], 0, high - low)
                yield rows[part][row], order[query]


def _joined(waiting: Sequence[Pairs]) -> Pairs:
    if len(waiting) == 1:
        return waiting[0]
    rows, queries = zip(*waiting, strict=True)
    return np.concatenate(rows), np.concatenate(queries)
