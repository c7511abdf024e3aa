"""Parquet row groups to rows of a stream, at the speed of the Parquet reader itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connectors.formats.typed_columns import fitted, matched
from headrace.connectors.records.ingest_record import WHOLE, IngestRecord
from headrace.connectors.records.rejected import Chunk, WholeFile
from headrace.schema import Schema

BATCH: Final = 1 << 18


def chunks(file: BinaryIO, record: IngestRecord, schema: Schema, wanted: Sequence[str]) -> Iterator[Chunk]:
    """The rows of the record's row groups, `BATCH` at a time, with the wanted columns."""
    first = 0
    try:
        source = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        groups = list(range(record.start, source.num_row_groups if record.end == WHOLE else record.end))
        metadata = source.metadata
        rows = lambda: sum(metadata.row_group(group).num_rows for group in groups)  # noqa: E731
        found = source.schema_arrow
        titles = found.names
        names = [titles[place] for place in matched(found, schema, wanted, rows)]
        fields = [schema.field(name) for name in wanted]
        if not groups:
            return
        for batch in source.iter_batches(BATCH, row_groups=groups, columns=names, use_threads=False):
            chunk = fitted([batch.column(name) for name in names], fields, first)
            first += chunk.numbers
            yield chunk
    except (pa.ArrowException, OSError, ValueError, OverflowError) as problem:
        raise WholeFile(
            f"not a readable Parquet file from row {first} on: {first_line(problem)}"
        ) from problem


def first_line(problem: BaseException) -> str:
    """What a library says, without its stack."""
    return next(iter(str(problem).splitlines()), type(problem).__name__)
