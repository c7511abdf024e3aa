"""Reader of Arrow IPC files and streams: the rows of some record batches, with the columns that are asked for in the
stream's types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import pyarrow as pa

from headrace.connectors.formats.parquet_reader import BATCH, first_line
from headrace.connectors.formats.typed_columns import fitted, matched
from headrace.connectors.records.chunk import Chunk, WholeFile
from headrace.connectors.records.ingest_record import WHOLE, IngestRecord
from headrace.schema import Schema

MAGIC: Final = b"ARROW1"
_SMALL: Final = 1 << 18
"""Bytes of a file that is read as a whole, and decompressed by this thread: others, and many short reads, cost more than the rows."""
_ALONE: Final = pa.ipc.IpcReadOptions(use_threads=False)


def chunks(file: BinaryIO, record: IngestRecord, schema: Schema, columns: Sequence[str]) -> Iterator[Chunk]:
    """The rows of the record's batches, with the columns asked for."""
    from headrace.connectors.formats.refused_rows import separated  # noqa: PLC0415 - of files of this format

    first = 0
    try:
        file_schema, batches = _open(file, record)
        indexes = matched(file_schema, schema, columns, lambda: sum(batch.num_rows for batch in batches))
        fields = [schema.field(name) for name in columns]
        for batch in batches:
            _check(batch)
            for start in range(0, batch.num_rows, BATCH):
                part = batch.slice(start, BATCH)
                chunk = fitted([part.column(index) for index in indexes], fields, first)
                chunk = separated(chunk, part, first)
                first += chunk.numbers
                yield chunk
    except (pa.ArrowException, OSError, ValueError, OverflowError) as problem:
        raise WholeFile(f"not a readable Arrow file from row {first} on: {first_line(problem)}") from problem


def _open(file: BinaryIO, record: IngestRecord) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    source: BinaryIO | pa.Buffer = file
    options = None
    if record.size <= _SMALL:
        data = file.read()
        magic, source, options = data[: len(MAGIC)], pa.py_buffer(data), _ALONE
    else:
        magic = file.read(len(MAGIC))
        file.seek(0)
    if magic != MAGIC:
        stream = pa.ipc.open_stream(source, options=options)
        return stream.schema, iter(stream)
    reader = pa.ipc.open_file(source, options=options)
    last = reader.num_record_batches if record.end == WHOLE else record.end
    return reader.schema, (reader.get_batch(index) for index in range(record.start, last))


def _check(batch: pa.RecordBatch) -> None:
    """Raise unless every value is readable: a damaged file must not end the task. Invalid UTF-8 rejects its row alone."""
    for column in batch.columns:
        if pa.types.is_string(column.type):
            column.view(pa.binary()).validate(full=True)
        elif pa.types.is_large_string(column.type):
            column.view(pa.large_binary()).validate(full=True)
        else:
            column.validate(full=True)
