"""Parquet files of rejected rows with the reason of each: those of a stream, and the rows on which a query's expressions failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.operators.base.batch import Rejected
from headrace.schema import STAMP
from headrace.store.files.checksums.chunk_checksums import ChunkChecksums, finished
from headrace.store.files.filesystem import Store

if TYPE_CHECKING:
    import pyarrow.parquet as pq

STREAM_SCHEMA = pa.schema([("position", pa.int64()), ("text", pa.string()), ("reason", pa.string())])
GROUP: Final = 1 << 16
"""Rows of a row group: what is decoded to read a few of them."""
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


def read_rejects(store: Store, file: str, part: int | None, rows: int) -> pa.Table:
    """So many rows of a reject file from row `part` on; all without one. Raises `CorruptStore` where there are fewer, or others than were written."""
    first, begin, skipped, groups = part or 0, 0, 0, list[int]()
    content = store.map(file)
    checksums = ChunkChecksums.of(content, file)
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415 - only where it is used

        opened = pq.ParquetFile(pa.BufferReader(content))
        for number in range(opened.num_row_groups):
            end = begin + opened.metadata.row_group(number).num_rows
            if end <= first:
                skipped = end
            elif part is None or begin < first + rows:
                groups.append(number)
            begin = end
        if checksums is not None:
            checksums.compare(opened, None, groups)
        table = opened.read_row_groups(groups, use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptStore(f"the rejected rows in '{file}' cannot be read: {error}") from error
    if part is None:
        return table
    if table.num_rows < first - skipped + rows:
        raise CorruptStore(f"'{file}' has {begin} rejected rows, not {rows} from row {first} on")
    return table.slice(first - skipped, rows)


def read_refused(store: Store, file: str, part: int | None, rows: int) -> list[tuple[int, str, str]]:
    """The same rows of a stream's reject file."""
    table = read_rejects(store, file, part, rows)
    return list(zip(*(table.column(name).to_pylist() for name in STREAM_SCHEMA.names), strict=True))


def encode_rejects(tables: Sequence[pa.Table]) -> pa.Buffer:
    """A Parquet file of the rows of several, in this order."""
    return _parquet(pa.concat_tables(tables))


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
    out, footer = pa.BufferOutputStream(), list["pq.FileMetaData"]()
    import pyarrow.parquet as pq  # noqa: PLC0415 - only where it is used

    writer = pq.ParquetWriter(out, table.schema, compression="lz4", metadata_collector=footer)
    writer.write_table(table, row_group_size=GROUP)
    return finished(out, writer, footer, table.schema, -(-table.num_rows // GROUP))
