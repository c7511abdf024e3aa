"""Writer of ingest segments: pushed rows (Arrow, pandas or dicts, checked against the stream's columns) and
micro-batches of Spark's streaming DataFrames, as Arrow files with their ingest records; few rows are in the record itself.

A segment is an Arrow stream with checksums behind its end, whole or absent, never rewritten. It is read like any other Arrow file,
once it was compared with them.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats.text_values import day, instant, moment
from headrace.connectors.formats.typed_columns import fitted, matched
from headrace.connectors.records.chunk import WholeFile
from headrace.connectors.records.ingest_record import WHOLE, IngestRecord
from headrace.errors import UserError, did_you_mean
from headrace.schema import INTEGERS, Field, to_arrow
from headrace.store.files.checksums.piece_checksums import END_OF_STREAM, with_checksums
from headrace.store.files.filesystem import LocalStore
from headrace.time import Instant

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_PLAIN: Final = pa.ipc.IpcWriteOptions()
IN_RECORD: Final = 1 << 15
"""Bytes of pushed rows up to which they are in their record: a file of its own takes longer to be made, synced and opened."""
_BATCH_NAME: Final = re.compile(r"batch-(\d{12})\.arrow")


def write_table_segment(
    definition: StreamDefinition,
    table: pa.Table,
    folder: Path,
    name: str,
    now: Instant,
    *,
    root: Path,
    durable: bool = True,
) -> IngestRecord:
    """Write a table that has the stream's schema as `folder/name.arrow`; its record. Without `durable` the caller has to sync the file.

    The record's path is relative to `root`, so that a home may be moved or copied. Event times are judged when the segment is read.
    """
    batches = table.to_batches(max_chunksize=1 << 18)
    write_segment(folder, f"{name}.arrow", table.schema, batches, durable=durable)
    return segment_record(definition, folder / f"{name}.arrow", table.num_rows, now, root=root)


def record_with_rows(
    definition: StreamDefinition, table: pa.Table, name: str, now: Instant
) -> IngestRecord | None:
    """The record of a table that has the stream's schema, with its rows, which have no file; None where they are too large."""
    if table.nbytes > IN_RECORD:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_PLAIN) as stream:
        stream.write_table(table)
    whole = sink.getvalue()
    if whole.size > IN_RECORD:  # slices of nested columns, and schemas of thousands of columns
        return None
    rows = base64.b64encode(whole).decode("ascii")
    return IngestRecord(
        definition.name, name, "arrow", 0, WHOLE, whole.size, 0, now, table.num_rows, rows=rows
    )


def write_segment(
    folder: Path, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, durable: bool = True
) -> int:
    """Write batches one by one, and sync the file if `durable`; how many bytes."""
    return LocalStore(folder).write_once(name, with_checksums(_encoded(schema, batches)), durable=durable)


def segment_record(
    definition: StreamDefinition,
    path: Path,
    rows: int,
    now: Instant,
    *,
    batch: int = -1,
    root: Path | None = None,
) -> IngestRecord:
    """The record of the segment file `path`."""
    uri = str(path.relative_to(root)) if root is not None else str(path.absolute())
    size = path.stat().st_size
    # No segment is rewritten, and a home that is copied may get new modification times: only the size is checked.
    return IngestRecord(definition.name, uri, "arrow", 0, WHOLE, size, 0, now, rows, batch)


def batch_name(batch: int) -> str:
    """The segment of a micro-batch: the same name however often Spark repeats it."""
    return f"batch-{batch:012d}.arrow"


def batches_written(folder: Path) -> list[int]:
    """The micro-batches that have a segment, in order."""
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208
    return sorted(int(number[1]) for name in names if (number := _BATCH_NAME.fullmatch(name)))


def as_rows(definition: StreamDefinition, rows: Any) -> pa.Table:
    """Pushed rows as a table of the stream's schema.

    Raises `UserError` that names the column, what it has to be and what was found.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return _of_table(definition, rows)
    if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
        return _of_columns(definition, {str(name): rows[name] for name in rows.columns}, len(rows))
    if isinstance(rows, (Mapping, str | bytes)) or not isinstance(rows, Iterable):
        raise UserError(
            f"stream '{definition.name}' takes rows, not {type(rows).__name__}",
            remedy="Pass a pyarrow Table, a pandas DataFrame, or a list of dicts.",
        )
    return _of_dicts(definition, list(rows))


def _encoded(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Buffer]:
    head = schema.serialize()
    yield head
    for batch in batches:
        yield _serialized(batch, head.size)
    yield pa.py_buffer(END_OF_STREAM)


def _serialized(batch: pa.RecordBatch, head: int) -> pa.Buffer:
    """A batch's message as it is in a stream: the bytes between the schema and the end mark."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as stream:
        stream.write_batch(batch)
    whole = sink.getvalue()
    return whole.slice(head, whole.size - head - len(END_OF_STREAM))


def _of_table(definition: StreamDefinition, table: pa.Table) -> pa.Table:
    _check_names(definition, table.column_names)
    names = definition.schema.names
    try:
        indexes = matched(table.schema, definition.schema, names)
    except WholeFile as problem:
        raise UserError(
            f"the rows do not fit stream '{definition.name}': {problem.reason.removeprefix('schema changed: ')}",
            remedy=f"It has the columns {_columns(definition)}.",
        ) from None
    columns = [_one(table.column(index)) for index in indexes]
    chunk = fitted(columns, definition.schema.fields, 0)
    if chunk.refused:
        first = chunk.refused[0]
        raise UserError(
            f"the rows do not fit stream '{definition.name}': row {first.row}: {first.reason}",
            remedy=f"{len(chunk.refused)} of {table.num_rows} rows do not fit; none was taken.",
        )
    return pa.Table.from_batches([chunk.batch])


def _of_dicts(definition: StreamDefinition, rows: Sequence[Any]) -> pa.Table:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UserError(
                f"row {number} for stream '{definition.name}' is {type(row).__name__}, not a dict",
                remedy="Pass a list of dicts, such as [{'k': 1, 'v': 2.5}].",
            )
    _check_names(definition, list({str(name): None for row in rows for name in row}))
    folded = [{str(name).lower(): cell for name, cell in row.items()} for row in rows]
    columns = {name: [row.get(name.lower()) for row in folded] for name in definition.schema.names}
    return _of_columns(definition, columns, len(rows))


def _of_columns(definition: StreamDefinition, columns: Mapping[str, Any], length: int) -> pa.Table:
    _check_names(definition, list(columns))
    by_name = {name.lower(): column for name, column in columns.items()}
    missing = [name for name in definition.schema.names if name.lower() not in by_name]
    if missing:
        raise UserError(
            f"the rows do not fit stream '{definition.name}': column {', '.join(missing)} is missing",
            remedy=f"It has the columns {_columns(definition)}.",
        )
    arrays = [_array(definition, field, by_name[field.name.lower()]) for field in definition.schema]
    assert all(len(array) == length for array in arrays)
    return pa.table(arrays, schema=definition.schema.arrow())


def _array(definition: StreamDefinition, field: Field, values: Any) -> pa.Array:
    kind = to_arrow(field.type)
    try:
        if isinstance(values, list):
            values = _whole_cells(values, field)
        array = pa.array(
            values, from_pandas=not isinstance(values, list), type=None if hasattr(values, "dtype") else kind
        )
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if pa.types.is_string(array.type) and field.type.name != "STRING":
            raise pa.ArrowInvalid(
                f"text, such as {next((v for v in array.to_pylist() if v is not None), '')!r}"
            )
        return pc.cast(array, options=pc.CastOptions(kind, allow_time_truncate=True))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise UserError(
            f"the rows do not fit stream '{definition.name}': column {field.name} has to be {field.type}: {problem}",
            remedy="Convert the column before pushing it; no row was taken.",
        ) from None


def _whole_cells(values: list[Any], field: Field) -> list[Any]:
    """The cells, with texts of times parsed; raises `ValueError` for a fraction that Arrow would drop silently."""
    parsers: dict[str, Callable[[str], Any]] = {"TIMESTAMP": instant, "TIMESTAMP_NTZ": moment, "DATE": day}
    parse = parsers.get(field.type.name)
    if parse is not None:
        read = [parse(cell) if isinstance(cell, str) else cell for cell in values]
        values = [cell if after is None else after for cell, after in zip(values, read, strict=True)]
    if parse is not None or field.type.name in (*INTEGERS, "INTERVAL"):
        for cell in values:
            if isinstance(cell, float | np.floating) and not float(cell).is_integer():
                raise ValueError(f"{cell!r} is no whole number")
    return values


def _check_names(definition: StreamDefinition, names: Sequence[str]) -> None:
    for name in names:
        if definition.schema.find(name) is None:
            raise UserError(
                f"stream '{definition.name}' has no column '{name}'",
                remedy=did_you_mean(name, definition.schema.names),
            )


def _columns(definition: StreamDefinition) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in definition.schema)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
