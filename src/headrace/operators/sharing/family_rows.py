"""Scanner of a family whose operators store rows: each distinct condition is evaluated once, and the rows of all
queries are returned as one table, with the number of the query in each row.

Queries of a family store the same values of a row. Many that have no steps but a filter are one pass over pairs of a row and a query
(`query_rows`). Of others those with equal steps share one scanner, whose rows are repeated with the number of each query, and an index
finds the rows of many different first filters, as in `routed_scans`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import QUERY_NUMBER, SLOT, Operator, Scanned, Scanner
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import state_name
from headrace.operators.families.numbering import number_of
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.rows.row_state import ROWS
from headrace.operators.sharing.pairs.query_rows import QueryRows, layout_of
from headrace.operators.sharing.routed_scans import MOST_SEPARATE_FILTERS, RoutedRows, first_filter
from headrace.time import FOREVER, Instant

ROWS_AT_ONCE: Final = 1 << 20
"""Rows that are repeated for queries at once: some 50 MB."""


@dataclass(frozen=True, slots=True)
class _Sharers:
    """The queries of a family, those with the same steps together, by the id of the first of them."""

    cohort: Cohort
    by_first: Mapping[str, tuple[Operator, ...]]
    routed: tuple[Operator, ...]
    """The first ones, if an index finds the rows of each."""

    @staticmethod
    def of(queries: tuple[Operator, ...]) -> _Sharers:
        """The same for queries in any order."""
        cohort = Cohort.of(queries)
        by_steps: dict[object, list[Operator]] = {}
        for query in cohort.queries:
            layout = layout_of(query)
            by_steps.setdefault((layout.below, layout.above, layout.bounded, layout.partition), []).append(
                query
            )
        first = tuple(same[0] for same in by_steps.values())
        routed = len(first) > MOST_SEPARATE_FILTERS and all(
            first_filter(query) is not None for query in first
        )
        by_first = {same[0].id: tuple(same) for same in by_steps.values()}
        return _Sharers(cohort, by_first, first if routed else ())


_known_sharers: Final[MadeOnce[_Sharers]] = MadeOnce(64)
"""By the identities of queries: their steps are compared once, not in every epoch."""


class _OnDemand(dict[str, Scanner]):
    """Scanners by the id of the first query with the same steps, made when the first row comes."""

    def __init__(
        self, sharers: Mapping[str, tuple[Operator, ...]], relations: Mapping[str, pa.Table]
    ) -> None:
        self._sharers, self._relations = sharers, relations

    def __missing__(self, name: str) -> Scanner:
        scanner = self[name] = layout_of(self._sharers[name][0]).scanner(self._relations)
        return scanner


@dataclass(slots=True)
class FamilyRows:
    """The scanner of a family: all rows of its queries `together`, or one of `scanners` for all `sharers` with the same steps, by the id
    of the first, each with the rows that are `routed` to it, or with all.
    """

    cohort: Cohort
    sharers: Mapping[str, tuple[Operator, ...]]
    scanners: _OnDemand
    routed: RoutedRows | None
    together: QueryRows | None
    first: Instant = FOREVER
    rows_in: int = field(default=0, init=False)

    @staticmethod
    def of(queries: tuple[Operator, ...], relations: Mapping[str, pa.Table]) -> FamilyRows:
        """The scan of queries of one family that store rows."""
        known = _known_sharers.of(queries, lambda: _Sharers.of(queries))
        scanners = _OnDemand(known.by_first, relations)
        together = QueryRows.of(known.cohort.queries, relations) if known.routed else None
        routed = RoutedRows.of(known.routed, scanners) if known.routed and together is None else None
        return FamilyRows(known.cohort, known.by_first, scanners, routed, together)

    @property
    def representative(self) -> str:
        """The first query's id."""
        return self.cohort.queries[0].id

    def add(self, batch: Batch) -> None:
        """Add a batch of accepted rows."""
        if batch.rows:
            self.first = min(self.first, int(batch.at.min()))
        self.rows_in += batch.rows
        shared = self.together or self.routed
        if shared is not None:
            shared.add(batch)
            return
        for name in self.sharers:
            self.scanners[name].add(batch)

    def finish(self) -> ScanOutput:
        """The deltas of all queries as one table per section, and what was scanned for each."""
        output, scanned_rows = ScanOutput(), list[tuple[pa.Table, tuple[Operator, ...]]]()
        without_rows = Scanned({}, (), self.rows_in)
        output.scanned = dict.fromkeys((query.id for query in self.cohort.queries), without_rows)
        output.delta_rows = dict.fromkeys(output.scanned, 0)
        for name, scanner in self.scanners.items():
            sharers, scanned = self.sharers[name], scanner.finish()
            seen = replace(scanned, deltas={}, rows_in=self.rows_in)
            output.scanned |= dict.fromkeys((query.id for query in sharers), seen)
            if ROWS in scanned.deltas:
                scanned_rows.append((scanned.deltas[ROWS], sharers))
        tables = _portions(scanned_rows)
        if self.together is not None:
            for query, scanned in self.together.finish(self.rows_in):
                output.scanned[query.id] = scanned
            tables = iter(self.together.tables)
        family = self.cohort.queries[0].together(self.cohort.queries)
        portions = (family.family_deltas(rows, FOREVER) for rows in tables)
        for deltas in (*portions, family.family_deltas(None, self.first)):
            for section, table in deltas.items():
                output.put(f"{state_name(self.cohort.queries[0])}/{section}", table)
        return output


def _portions(scanned: list[tuple[pa.Table, tuple[Operator, ...]]]) -> Iterator[pa.Table]:
    """The rows of all queries, in tables of about `ROWS_AT_ONCE`."""
    tables, count = list[pa.Table](), 0
    for rows, sharers in scanned:
        at_once = max(1, ROWS_AT_ONCE // rows.num_rows)
        for start in range(0, len(sharers), at_once):
            tables.append(_repeated(rows, sharers[start : start + at_once]))
            count += tables[-1].num_rows
            if count >= ROWS_AT_ONCE:
                yield pa.concat_tables(tables)
                tables, count = [], 0
    if tables:
        yield pa.concat_tables(tables)


def _repeated(rows: pa.Table, sharers: tuple[Operator, ...]) -> pa.Table:
    """The rows for each query that has the same steps, with its number, and its slot where it has one."""
    count = len(sharers)
    numbers = np.repeat([number_of(query.id) for query in sharers], rows.num_rows)
    table = pa.concat_tables([rows] * count) if count > 1 else rows
    if layout_of(sharers[0]).routing is None:
        slots = np.repeat(np.array([query.own_slot for query in sharers], np.int16), rows.num_rows)
        table = table.set_column(table.column_names.index(SLOT), SLOT, pa.array(slots))
    return table.append_column(QUERY_NUMBER, pa.array(numbers))
