"""Scanner of a family whose operators store rows: each distinct condition is evaluated once, and the rows of all
queries are returned as one table, with the number of the query in each row.

Queries of a family store the same values of a row. Those with equal steps share one scanner, whose rows are repeated
with the number of each query; many different first filters are found by one index, as in `routed_scans`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import QUERY_NUMBER, SLOT, Operator
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import number_of, state_name
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.rows.row_state import ROWS, RowLayout, RowScanner
from headrace.operators.sharing.routed_scans import MOST_SEPARATE_FILTERS, RoutedRows, first_filter
from headrace.time import FOREVER, Instant

ROWS_AT_ONCE: Final = 1 << 20
"""Rows that are repeated for queries at once: some 50 MB."""


@dataclass(slots=True)
class FamilyRows:
    """The scanner of a family: `scanners` are those of the first query with each steps, by its id, in `sharers` with the
    others; None in `routed` where every scanner gets all rows.
    """

    cohort: Cohort
    sharers: Mapping[str, list[Operator]]
    scanners: Mapping[str, RowScanner]
    routed: RoutedRows | None
    first: Instant = FOREVER

    @staticmethod
    def of(queries: tuple[Operator, ...], relations: Mapping[str, pa.Table]) -> FamilyRows:
        """The scan of queries of one family that store rows."""
        cohort = Cohort.of(queries)
        by_steps: dict[object, list[Operator]] = {}
        for query in cohort.queries:
            layout = _layout(query)
            by_steps.setdefault((layout.below, layout.above, layout.bounded, layout.partition), []).append(
                query
            )
        sharers = {same[0].id: same for same in by_steps.values()}
        scanners = {name: _layout(same[0]).scanner(relations) for name, same in sharers.items()}
        filtering = tuple(same[0] for same in sharers.values())
        routed = None
        if len(filtering) > MOST_SEPARATE_FILTERS and all(
            first_filter(query) is not None for query in filtering
        ):
            routed = RoutedRows.of(filtering, scanners)
        return FamilyRows(cohort, sharers, scanners, routed)

    @property
    def representative(self) -> str:
        """The first query's id."""
        return self.cohort.queries[0].id

    def add(self, batch: Batch) -> None:
        """Add a batch of accepted rows."""
        if batch.rows:
            self.first = min(self.first, int(batch.at.min()))
        if self.routed is not None:
            self.routed.add(batch)
            return
        for scanner in self.scanners.values():
            scanner.add(batch)

    def finish(self) -> ScanOutput:
        """The deltas of all queries as one table per section, and what was scanned for each."""
        output, scanned_rows = ScanOutput(), list[tuple[pa.Table, list[Operator]]]()
        for name, sharers in self.sharers.items():
            scanned = self.scanners[name].finish()
            if self.routed is not None:
                missed = self.routed.rows_in - self.routed.seen.get(name, 0)
                scanned = replace(scanned, rows_in=scanned.rows_in + missed)
            output.scanned |= dict.fromkeys((query.id for query in sharers), replace(scanned, deltas={}))
            output.delta_rows |= dict.fromkeys((query.id for query in sharers), 0)
            if ROWS in scanned.deltas:
                scanned_rows.append((scanned.deltas[ROWS], sharers))
        family = self.cohort.queries[0].together(self.cohort.queries)
        portions = (family.family_deltas(rows, FOREVER) for rows in _portions(scanned_rows))
        for deltas in (*portions, family.family_deltas(None, self.first)):
            for section, table in deltas.items():
                output.put(f"{state_name(self.cohort.queries[0])}/{section}", table)
        return output


def _portions(scanned: list[tuple[pa.Table, list[Operator]]]) -> Iterator[pa.Table]:
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


def _layout(query: Operator) -> RowLayout:
    layout = query.family_rows
    assert layout is not None
    return layout


def _repeated(rows: pa.Table, sharers: list[Operator]) -> pa.Table:
    """The rows for each query that has the same steps, with its number, and its slot where it has one."""
    count = len(sharers)
    numbers = np.repeat([number_of(query.id) for query in sharers], rows.num_rows)
    table = pa.concat_tables([rows] * count) if count > 1 else rows
    if _layout(sharers[0]).routing is None:
        slots = np.repeat(np.array([query.own_slot for query in sharers], np.int16), rows.num_rows)
        table = table.set_column(table.column_names.index(SLOT), SLOT, pa.array(slots))
    return table.append_column(QUERY_NUMBER, pa.array(numbers))
