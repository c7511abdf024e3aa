"""Parquet files of rejected rows with the reason of each: those of a stream, written and read, and the rows on which a
query's expressions failed, written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.operators.base.batch import Rejected
from headrace.schema import STAMP
from headrace.store.files.filesystem import Store

STREAM_SCHEMA = pa.schema([("position", pa.int64()), ("text", pa.string()), ("reason", pa.string())])
QUERY_SCHEMA = pa.schema([("at", STAMP), ("position", pa.int64()), ("reason", pa.string())])


@dataclass(slots=True)
class RejectWriter:
    """Collects the rows that a stream rejected: (position, raw text, reason)."""

    rejected: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, rejects: Iterable[tuple[int, str, str]]) -> None:
        """Add rejected rows."""
        self.rejected.extend(rejects)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.rejected)

    def encode(self) -> pa.Buffer:
        """A Parquet file of them."""
        columns = list(zip(*self.rejected, strict=True))
        return _parquet(
            pa.table(
                [pa.array(list(c), t) for c, t in zip(columns, STREAM_SCHEMA.types, strict=True)],
                schema=STREAM_SCHEMA,
            )
        )


def read_refused(store: Store, file: str) -> list[tuple[int, str, str]]:
    """The rows of a stream's reject file."""
    table = pq.read_table(pa.BufferReader(store.map(file)))
    return list(zip(*(table.column(name).to_pylist() for name in STREAM_SCHEMA.names), strict=True))


def encode_query_rejects(rejected: Sequence[Rejected]) -> pa.Buffer:
    """A Parquet file of rows on which a query's expressions failed (position -1: a result row)."""
    parts = [
        pa.table(
            [
                pa.array(rows.at).cast(STAMP),
                pa.array(rows.position),
                pa.array(rows.reasons, pa.string()),
            ],
            schema=QUERY_SCHEMA,
        )
        for rows in rejected
    ]
    return _parquet(pa.concat_tables(parts))


def _parquet(table: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="lz4")
    return out.getvalue()
