"""Output of a scan task: the deltas of all operators by state table, of which the queries of a family have one; and for
each operator its measurements, failed rows and number of delta rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import Operator, Scanned
from headrace.operators.families.family import QueryRowCounts, state_name
from headrace.operators.families.numbering import id_of
from headrace.operators.rows.sorted_rows import HASH, in_order


@dataclass(slots=True)
class ScanOutput:
    """What a scan task made of its rows: deltas by `state/section`, and measurements and rejects by operator."""

    sections: dict[str, list[pa.Table]] = field(default_factory=dict)
    scanned: dict[str, Scanned] = field(default_factory=dict)
    delta_rows: dict[str, int] = field(default_factory=dict)

    def add(self, operator: Operator, scanned: Scanned) -> None:
        """Add what one operator's scanner made."""
        rows = 0
        if scanned.deltas:
            for section, table in operator.for_family(scanned.deltas).items():
                self.sections.setdefault(f"{state_name(operator)}/{section}", []).append(table)
            rows = sum(table.num_rows for table in scanned.deltas.values())
        self.delta_rows[operator.id] = self.delta_rows.get(operator.id, 0) + rows
        self.scanned[operator.id] = scanned

    def add_without_deltas(self, scanned: Mapping[str, Scanned]) -> None:
        """Add, by operator, what scanners without deltas of their own made: those of most queries that share a scan."""
        self.scanned |= scanned
        for name in scanned:
            self.delta_rows.setdefault(name, 0)

    def put(self, section: str, table: pa.Table, query_row_counts: QueryRowCounts | None = None) -> None:
        """Add rows of several queries of a family, counted by query if that is known."""
        self.sections.setdefault(section, []).append(table)
        query_row_counts = query_row_counts or QueryRowCounts.of(table)
        for number, rows in zip(
            query_row_counts.numbers.tolist(), query_row_counts.rows.tolist(), strict=True
        ):
            query = id_of(number)
            self.delta_rows[query] = self.delta_rows.get(query, 0) + rows

    def join(self, other: ScanOutput) -> None:
        """Add what scanners of other operators made."""
        for section, tables in other.sections.items():
            self.sections.setdefault(section, []).extend(tables)
        self.scanned |= other.scanned
        self.delta_rows |= other.delta_rows


def gathered(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several queries as one table: cells in the order of blocks, rows of joins in that of their hashes."""
    if len(tables) == 1:
        return tables[0]
    if HASH in tables[0].column_names:
        return in_order(tables)
    whole = pa.concat_tables(tables)
    if KEY not in whole.column_names:
        return whole
    keys = ints(whole, KEY)
    if not (np.diff(keys) < 0).any():
        return whole
    return whole.take(pa.array(np.argsort(keys, kind="stable")))
