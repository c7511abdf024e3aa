"""Reader of Parquet files: the rows of some row groups, in batches, with the columns that are asked for in the stream's
types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connectors.formats.typed_columns import fitted, matched
from headrace.connectors.records.chunk import Chunk, WholeFile
from headrace.connectors.records.ingest_record import WHOLE, IngestRecord
from headrace.schema import Schema

BATCH: Final = 1 << 18


def chunks(file: BinaryIO, record: IngestRecord, schema: Schema, columns: Sequence[str]) -> Iterator[Chunk]:
    """The rows of the record's row groups, `BATCH` at a time, with the columns asked for."""
    first = 0
    try:
        source = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        groups = list(range(record.start, source.num_row_groups if record.end == WHOLE else record.end))
        metadata = source.metadata
        rows = lambda: sum(metadata.row_group(group).num_rows for group in groups)  # noqa: E731
        file_schema = source.schema_arrow
        file_names = file_schema.names
        names = [file_names[index] for index in matched(file_schema, schema, columns, rows)]
        fields = [schema.field(name) for name in columns]
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
    """A library's message, without its stack."""
    return next(iter(str(problem).splitlines()), type(problem).__name__)
