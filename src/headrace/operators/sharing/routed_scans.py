"""Routed scans: one index of the first filters of many operators, which finds the rows of each for its own scanner.

Operators that share nothing else, such as a thousand `SELECT … WHERE`, would each filter every row. Here one index of
their first filters is probed, and each operator gets the rows that pass or fail its filter: it filters those once more,
stores and rejects as it would alone, and never reads the others. An operator without rows in a batch costs nothing.
Source: PSoup and CACQ (grouped filters).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Final

import numpy as np

from headrace.algebra.expressions.expression import Expression
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Operator, Scanned, Scanner
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.query_index.index_cache import Conditions, Plans, none_yet
from headrace.operators.query_index.matching.match import match
from headrace.operators.query_index.matching.prepare import truths
from headrace.operators.rows.row_pipeline import RowFilter

MOST_SEPARATE_FILTERS: Final = 12
"""Up to this many conditions, each filters the rows by itself: measured, an index pays from about twelve on."""
_BITS_AT_ONCE: Final = 1 << 26
"""Rows are matched in portions for which the bitmaps of all operators stay below 8 MB."""
_LEAST_ROWS: Final = 64


def first_filter(operator: Operator) -> Expression | None:
    """The condition without which a row does not affect the operator; None if every row may."""
    steps = operator.routing_steps
    if not steps or not isinstance(steps[0], RowFilter):
        return None
    return steps[0].predicate


@dataclass(frozen=True)
class _RoutingPlan(Conditions[Operator]):
    """The first filters of operators that share nothing else."""

    @staticmethod
    def condition_of(query: Operator) -> Expression | None:
        return first_filter(query)


_plans: Final = Plans(none_yet(_RoutingPlan))


class OnDemand(dict[str, Scanner]):
    """Scanners by operator, made for those that get rows: few of thousands of selections in a small batch."""

    def __init__(self, make: Callable[[str], Scanner]) -> None:
        self._make = make

    def __missing__(self, name: str) -> Scanner:
        scanner = self[name] = self._make(name)
        return scanner


@dataclass(slots=True)
class RoutedRows:
    """The scanners of several operators, each with its own rows."""

    plan: _RoutingPlan
    scanners: Mapping[str, Scanner]
    rows_in: int = 0
    seen: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(queries: tuple[Operator, ...], scanners: Mapping[str, Scanner]) -> RoutedRows:
        """A routed scan of all these queries, each of which has a first filter."""
        return RoutedRows(_plans.of(queries), scanners)

    @property
    def representative(self) -> str:
        """The first query's id."""
        return self.plan.queries[0].id

    def add(self, batch: Batch) -> None:
        """Pass each query its rows of a batch."""
        self.rows_in += batch.rows
        step = max(_LEAST_ROWS, _BITS_AT_ONCE // max(1, len(self.plan.index)))
        by_slot: dict[int, list[Ints]] = {}
        for low in range(0, batch.rows, step):
            for slot, rows in self._matched(batch, low, min(batch.rows, low + step)):
                by_slot.setdefault(slot, []).append(rows)
        for query, slot in zip(self.plan.queries, self.plan.slots.tolist(), strict=True):
            if slot in by_slot:
                rows_of_query = batch.take(np.concatenate(by_slot[slot]))
                self.seen[query.id] = self.seen.get(query.id, 0) + rows_of_query.rows
                self.scanners[query.id].add(rows_of_query)

    def _matched(self, batch: Batch, low: int, high: int) -> Iterator[tuple[int, Ints]]:
        """By slot, the rows from `low` on that pass a condition or fail it; only slots with rows."""
        columns = {name: column.slice(low, high - low) for name, column in batch.columns.items()}
        matches = match(self.plan.index, columns, high - low)
        for index in np.flatnonzero(matches.words.any(axis=1) | np.isin(matches.slots, list(matches.failed))):
            slot = int(matches.slots[index])
            rows = np.flatnonzero(truths(matches.words[index], matches.rows))
            if slot in matches.failed:
                rows = np.union1d(rows, matches.failed[slot].rows)
            yield slot, rows + low

    def finish(self) -> ScanOutput:
        """What each query made of its rows, with the number of all rows."""
        output, without_rows = ScanOutput(), Scanned({}, (), self.rows_in)
        output.add_without_deltas({query.id: without_rows for query in self.plan.queries})
        for query in self.plan.queries:
            if query.id in self.seen:
                scanned = self.scanners[query.id].finish()
                missed = self.rows_in - self.seen[query.id]
                output.add(query, replace(scanned, rows_in=scanned.rows_in + missed))
        return output
