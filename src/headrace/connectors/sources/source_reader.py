"""Reading of rows by the reader of their format: from an ingest record to batches of accepted rows, with event times,
and the rejected ones; also all files of a relation, and the check of a new stream.

Law: the same record gives the same rows, numbers and rejects on every read, or `SourceChanged`.
"""

from __future__ import annotations

import gzip
import json
import lzma
import mmap
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.catalog.definitions import RelationDefinition, StreamDefinition
from headrace.connectors.formats import arrow_reader, csv_reader, json_reader, parquet_reader
from headrace.connectors.formats.parquet_reader import PutOff
from headrace.connectors.records.chunk import Chunk, Refused, WholeFile
from headrace.connectors.records.ingest_record import (
    NO_REJECTS,
    REJECTS,
    IngestRecord,
    SourceBatch,
    reject_table,
)
from headrace.connectors.records.options import option
from headrace.connectors.sources import rate_source
from headrace.connectors.sources.event_time import accepted, event_times, time_columns
from headrace.connectors.sources.listing import list_new, require_place
from headrace.connectors.sources.source_file import opened
from headrace.errors import CorruptStore, UserError
from headrace.operators.base.batch import EventTimes
from headrace.schema import TIMESTAMP, TIMESTAMP_NTZ
from headrace.store.files.checksums.piece_checksums import damaged_bytes
from headrace.time import Instant

FORMATS: Final = ("csv", "json", "parquet", "arrow", "rate")


def always(low: Instant, high: Instant) -> bool:
    """Event times are read, wherever they are."""
    del low, high
    return True


def read(
    record: IngestRecord,
    definition: StreamDefinition,
    columns: Sequence[str] | None = None,
    *,
    root: str | None = None,
    reads_times: Callable[[Instant, Instant], bool] = always,
) -> Iterator[SourceBatch]:
    """The rows of a record, in order, with the columns asked for (all when None). A relative path is in `root`.

    Of a file that shows between which instants some rows are, their event times may be read later, unless `reads_times` of the two.
    Records of csv and json are checked in all their cells whatever is asked for. A file that cannot be read gives one
    reject, one of another schema a reject for each of its rows. Raises `SourceChanged` for a file that is not what was listed, and
    `CorruptStore` for one with rows that were pushed, or came from Spark, which does not have them: they were acknowledged.
    """
    selected = tuple(definition.schema.names if columns is None else columns)
    needed = tuple(dict.fromkeys((*selected, *time_columns(definition))))
    put_off = _put_off(record, definition, selected, root, reads_times)
    read_to = 0
    try:
        for chunk in _chunks(record, definition, needed, root, put_off):
            yield judged(chunk, record, definition, selected)
            read_to = int(chunk.numbers) + read_to
        if _is_handed_in(record) and read_to != record.rows_hint:
            raise _damaged(record, f"it ends after {read_to} of {record.rows_hint} rows")
    except WholeFile as refused:
        if _is_handed_in(record):
            raise _damaged(record, refused.reason) from refused
        # The values of a typed file's rows stay in the file, which the reject names; its position is the number of the row.
        rows, text = refused.rows, refused.text or record.uri
        places = range(read_to, read_to + rows)
        rejects = reject_table(places, [text] * rows, [f"{record.uri}: {refused.reason}"] * rows)
        none = definition.schema.arrow().empty_table().select(selected)
        empty = pa.RecordBatch.from_pydict({name: [] for name in selected}, schema=none.schema)
        nothing = np.zeros(0, np.int64)
        yield SourceBatch(empty, EventTimes.of(nothing), nothing, rejects)


def _is_handed_in(record: IngestRecord) -> bool:
    """Whether a record is of rows that were written here: its number of rows is known."""
    return record.format == "arrow" and bool(record.producer or record.batch >= 0) and record.rows_hint >= 0


def _damaged(record: IngestRecord, reason: str) -> CorruptStore:
    return CorruptStore(
        f"the rows of the stream '{record.stream}' in '{record.uri}' are damaged: {reason}\n"
        "  Put the file back from a copy of the home; no row of it was taken."
    )


def read_all(definition: StreamDefinition | RelationDefinition, now: Instant) -> tuple[pa.Table, pa.Table]:
    """All rows of a definition at once, and its rejects: how a relation is read.

    Raises `UserError` for a relation whose path does not exist.
    """
    stream = definition if isinstance(definition, StreamDefinition) else _as_stream(definition)
    tables, rejects, first = [], [], 0
    records = list_new(stream, (), now)
    if not records and isinstance(definition, RelationDefinition):
        _require_place(definition)
    for record in records:
        for batch in read(record, stream):
            tables.append(batch.table)
            rows = pa.array(batch.rejects.column("row").to_numpy() + first)
            rejects.append(batch.rejects.set_column(0, REJECTS.field("row"), rows))
        first += 1 << 32
    schema = stream.schema.arrow()
    return pa.Table.from_batches(tables, schema=schema), pa.concat_tables([NO_REJECTS, *rejects])


def require_usable(definition: StreamDefinition) -> None:
    """Refuse a new stream of which nothing could ever be read, with a `UserError`."""
    if definition.using.lower() == "rate":
        rate_source.require_columns(definition)
    require_place(definition)


def _require_place(definition: RelationDefinition) -> None:
    """Refuse a relation whose path does not exist: a stream's files may come later, but a relation is read now."""
    path = option(definition.options, "path", "")
    if not Path(path).exists():
        raise UserError(
            f"relation '{definition.name}': there is nothing at '{path}'",
            remedy="Correct the path; a relation is read when it is made and when it is refreshed.",
        )


def _as_stream(definition: RelationDefinition) -> StreamDefinition:
    return StreamDefinition(definition.name, definition.schema, definition.using, definition.options)


def _put_off(
    record: IngestRecord,
    definition: StreamDefinition,
    selected: Sequence[str],
    root: str | None,
    reads_times: Callable[[Instant, Instant], bool],
) -> PutOff | None:
    """How event times are put off; None where all are read: for themselves, or since the format has no bounds of them."""
    column = definition.time
    if record.format != "parquet" or column is None or not selected or column in selected:
        return None
    if definition.schema.field(column).type not in (TIMESTAMP, TIMESTAMP_NTZ):
        return None
    first, last = accepted(record, definition)

    def is_enough(low: Instant, high: Instant) -> bool:
        return first <= low and high <= last and not reads_times(low, high)

    @lru_cache(maxsize=1)
    def instants(group: int) -> npt.NDArray[np.int64]:
        with opened(record, root) as file:
            return parquet_reader.instants_of(file, group, column)

    return PutOff(column, is_enough, instants)


def _chunks(
    record: IngestRecord,
    definition: StreamDefinition,
    needed: Sequence[str],
    root: str | None,
    put_off: PutOff | None,
) -> Iterator[Chunk]:
    if record.format == "rate":
        yield from rate_source.chunks(record, definition)
        return
    if record.format not in FORMATS:
        raise UserError(
            f"'{record.uri}': there is no reader for {record.format}",
            remedy=f"There is: {', '.join(FORMATS)}.",
        )
    with opened(record, root) as file, _compression():
        if _is_handed_in(record) and not record.rows:
            _compare(file)
        if record.format == "csv":
            yield from csv_reader.chunks(file, record, definition)
        elif record.format == "json":
            yield from json_reader.chunks(file, record, definition)
        elif record.format == "parquet":
            yield from parquet_reader.chunks(file, record, definition.schema, needed, put_off)
        else:
            yield from arrow_reader.chunks(file, record, definition.schema, needed)


def _compare(file: IO[bytes]) -> None:
    """Refuse a file of rows that were pushed which differs from its checksums."""
    if not os.fstat(file.fileno()).st_size:
        raise WholeFile("it is empty")
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        damaged = damaged_bytes(pa.py_buffer(mapped))
    if damaged is not None:
        raise WholeFile(f"bytes {damaged[0]} to {damaged[1]} have another checksum than it records")


@contextmanager
def _compression() -> Iterator[None]:
    """Reject the rest of a broken compressed file."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as problem:
        raise WholeFile(f"not a readable compressed file: {problem}") from problem


def judged(
    chunk: Chunk, record: IngestRecord, definition: StreamDefinition, columns: Sequence[str]
) -> SourceBatch:
    """The chunk without rows whose event time is refused, which are rejects, and without columns that were not asked for."""
    batch, rows = chunk.batch, chunk.rows
    times, wrong, reasons = (chunk.times, None, []) if chunk.times else event_times(batch, record, definition)
    refused = chunk.refused
    if wrong is not None:
        numbers = rows[wrong].tolist()
        texts = [chunk.raw(row) for row in numbers] if chunk.raw else _shown(batch.filter(pa.array(wrong)))
        more = [Refused(*refusal) for refusal in zip(numbers, texts, reasons, strict=True)]
        refused = sorted((*refused, *more), key=lambda refusal: refusal.row)
        batch, rows = batch.filter(pa.array(~wrong)), rows[~wrong]
        times = EventTimes.of(times.instants[~wrong])
    return SourceBatch(batch.select(list(columns)), times, rows, _table(refused))


def _table(refused: Sequence[Refused]) -> pa.Table:
    if not refused:
        return NO_REJECTS
    return reject_table(
        [refusal.row for refusal in refused],
        [refusal.text for refusal in refused],
        [refusal.reason for refusal in refused],
    )


def _shown(batch: pa.RecordBatch) -> list[str]:
    """Rows as JSON text, for formats whose records have no text of their own."""
    columns = [
        column.cast(pa.string()).to_pylist() if pa.types.is_temporal(column.type) else column.to_pylist()
        for column in batch.columns
    ]
    rows = zip(*columns, strict=True)
    return [json.dumps(dict(zip(batch.schema.names, row, strict=True)), default=str) for row in rows]
