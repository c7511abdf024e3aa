"""Refused rows on their way to the reject folder: what was refused, and why."""

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
    """Collects the rows a stream refused: (position, raw text, reason)."""

    found: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, rejects: Iterable[tuple[int, str, str]]) -> None:
        """Take in refused rows."""
        self.found.extend(rejects)

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.found)

    def encode(self) -> pa.Buffer:
        """A Parquet file of them."""
        columns = list(zip(*self.found, strict=True))
        return _parquet(
            pa.table(
                [pa.array(list(c), t) for c, t in zip(columns, STREAM_SCHEMA.types, strict=True)],
                schema=STREAM_SCHEMA,
            )
        )


def read_refused(store: Store, name: str) -> list[tuple[int, str, str]]:
    """The rows of a stream's reject file."""
    table = pq.read_table(pa.BufferReader(store.map(name)))
    return list(zip(*(table.column(each).to_pylist() for each in STREAM_SCHEMA.names), strict=True))


def encode_query_rejects(rejected: Sequence[Rejected]) -> pa.Buffer:
    """A Parquet file of rows on which a query's expressions failed (position -1: a result row)."""
    parts = [
        pa.table(
            [
                pa.array(each.at).cast(STAMP),
                pa.array(each.position),
                pa.array(each.reasons, pa.string()),
            ],
            schema=QUERY_SCHEMA,
        )
        for each in rejected
    ]
    return _parquet(pa.concat_tables(parts))


def _parquet(table: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="lz4")
    return out.getvalue()
