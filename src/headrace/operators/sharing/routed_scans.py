"""Which rows does each of many operators need to see? Those that pass its first filter.

Operators that share nothing else, a thousand `SELECT … WHERE` above all, would each filter every row. Here one index of their
first filters is asked, and each gets the rows that pass or fail it, as they are: it filters those once more, keeps and
rejects as it does alone, and never sees the others. An operator to whom no row of a batch goes costs nothing.
Source: PSoup and CACQ (grouped filters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from headrace.algebra.expressions.expression import Expression
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Operator, Scanner
from headrace.operators.families.harvest import ScanOutput
from headrace.operators.query_index.matching.match import match
from headrace.operators.query_index.matching.prepare import truths
from headrace.operators.query_index.predicate_index import Conditions, Plans, none_yet
from headrace.operators.rows.row_pipeline import RowFilter

_BITS_AT_ONCE: Final = 1 << 26
"""Rows are matched so many at a time that the bitmaps of all operators stay below 8 MB."""
_FEWEST: Final = 64


def first_filter(operator: Operator) -> Expression | None:
    """The condition without which a row does not matter to the operator; None where every row may matter."""
    steps = operator.routing_steps
    if not steps or not isinstance(steps[0], RowFilter):
        return None
    return steps[0].predicate


@dataclass(frozen=True)
class _RoutingPlan(Conditions[Operator]):
    """The first filters of operators that otherwise work alone."""

    @staticmethod
    def condition_of(query: Operator) -> Expression | None:
        return first_filter(query)


_plans: Final = Plans(none_yet(_RoutingPlan))


@dataclass(slots=True)
class RoutedRows:
    """The scan half of several operators, each with a scanner of its own."""

    plan: _RoutingPlan
    scanners: Mapping[str, Scanner]
    rows_in: int = 0
    seen: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(queries: tuple[Operator, ...], scanners: Mapping[str, Scanner]) -> RoutedRows:
        """Prepare to give rows to all members, each of which has a first filter."""
        return RoutedRows(_plans.of(queries), scanners)

    @property
    def representative(self) -> str:
        """The first member's id."""
        return self.plan.queries[0].id

    def add(self, batch: Batch) -> None:
        """Give each member its rows of a batch."""
        self.rows_in += batch.rows
        step = max(_FEWEST, _BITS_AT_ONCE // max(1, len(self.plan.index)))
        wanted: dict[int, list[Ints]] = {}
        for low in range(0, batch.rows, step):
            for slot, rows in self._matched(batch, low, min(batch.rows, low + step)):
                wanted.setdefault(slot, []).append(rows)
        for query, slot in zip(self.plan.queries, self.plan.slots.tolist(), strict=True):
            if slot in wanted:
                mine = batch.take(np.concatenate(wanted[slot]))
                self.seen[query.id] = self.seen.get(query.id, 0) + mine.rows
                self.scanners[query.id].add(mine)

    def _matched(self, batch: Batch, low: int, high: int) -> Iterator[tuple[int, Ints]]:
        """By slot, the rows from `low` on that pass a condition or fail it; only where there are any."""
        columns = {name: column.slice(low, high - low) for name, column in batch.columns.items()}
        found = match(self.plan.index, columns, high - low)
        for place in np.flatnonzero(found.words.any(axis=1) | np.isin(found.slots, list(found.failed))):
            slot = int(found.slots[place])
            rows = np.flatnonzero(truths(found.words[place], found.rows))
            if slot in found.failed:
                rows = np.union1d(rows, found.failed[slot].rows)
            yield slot, rows + low

    def finish(self) -> ScanOutput:
        """What each member made of its rows, and how many there were of all."""
        found = ScanOutput()
        for query in self.plan.queries:
            scanned = self.scanners[query.id].finish()
            missed = self.rows_in - self.seen.get(query.id, 0)
            found.add(query, replace(scanned, rows_in=scanned.rows_in + missed))
        return found
