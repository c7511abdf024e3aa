"""Reader of JSON lines: whole blocks in Arrow, and line by line where Arrow refuses a block.

A line is one object. Names match exactly, a missing field is null, further fields are ignored. With `multiLine` the file
is one object, or an array of objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats import text_lines
from headrace.connectors.formats.json_values import Literal, Misfit, value
from headrace.connectors.formats.parquet_reader import first_line
from headrace.connectors.formats.text_values import convert, epoch_of, instants_counted
from headrace.connectors.records.chunk import Chunk, Refused, WholeFile
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.records.options import TextOptions, text_options
from headrace.operators.base.group_codes import flat
from headrace.schema import Schema, Type, to_arrow

_Written = TypeVar("_Written")
_FEED, _OPEN, _CLOSE = b"\n{}"
_PIECE: Final = 256
_AS_TEXT: Final = ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE")


class _LineByLine(Exception):
    """Arrow's answer for the block does not show which lines are bad."""


def chunks(file: BinaryIO, record: IngestRecord, definition: StreamDefinition) -> Iterator[Chunk]:
    """The record's rows, block by block, with all columns of the schema."""
    options = text_options(definition.options)
    if options.multi_line:
        yield _document(
            b"".join(text_lines.blocks(file, record, options.encoding)), definition.schema, options
        )
        return
    number = 0
    for block in text_lines.blocks(file, record, options.encoding):
        chunk = _read(block, number, definition.schema, options)
        number += chunk.numbers
        yield chunk


def _read(block: bytes, first: int, schema: Schema, options: TextOptions) -> Chunk:
    """A block in bulk; if that fails, in pieces; and a piece for which it fails line by line."""
    try:
        return _in_bulk(block, first, schema, options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, _LineByLine):
        texts = [line for line in block.split(b"\n") if line.strip()]
    if len(texts) <= _PIECE:
        return _from_texts(texts, first, schema, options)
    starts = range(0, len(texts), _PIECE)
    pieces = [_read(b"\n".join(texts[at : at + _PIECE]), first + at, schema, options) for at in starts]
    return Chunk(
        pa.concat_batches([piece.batch for piece in pieces]),
        np.concatenate([piece.rows for piece in pieces]),
        [refused for piece in pieces for refused in piece.refused],
        len(texts),
        lambda row: texts[row - first].decode("utf-8", "replace"),
    )


def _in_bulk(block: bytes, first: int, schema: Schema, options: TextOptions) -> Chunk:
    texts = _Texts(block)
    if not texts.count or not texts.are_objects or not text_lines.is_utf8(block):
        raise _LineByLine
    file_schema = pa.schema(
        [
            (f.name, _parsed_as(f.type, arrow.type, options))
            for f, arrow in zip(schema, schema.arrow(), strict=True)
        ]
    )
    table = pajson.read_json(
        pa.BufferReader(block),
        read_options=pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pajson.ParseOptions(explicit_schema=file_schema, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != texts.count:
        raise _LineByLine
    columns = []
    for field in schema:
        cells = flat(table.column(field.name))
        if (epoch := epoch_of(field.type, options)) is not None:
            cells = instants_counted(cells, epoch).cast(to_arrow(field.type))
        elif field.type.name in _AS_TEXT:
            if pc.any(pc.equal(pc.binary_length(cells), 0)).as_py():
                raise _LineByLine
            cells, failed = convert(cells, field.type, options)
            if failed is not None:
                raise _LineByLine
        columns.append(cells)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow())
    rows = np.arange(first, first + batch.num_rows)
    return Chunk(batch, rows, [], batch.num_rows, lambda row: texts.text(row - first))


def _parsed_as(kind: Type, arrow: pa.DataType, options: TextOptions) -> pa.DataType:
    """The Arrow type that a column is parsed as."""
    if epoch_of(kind, options) is not None:
        return pa.int64()
    return pa.string() if kind.name in _AS_TEXT else arrow


class _Texts:
    """The lines of a block that are not empty; split only when one is read.

    `are_objects` is False unless each begins with `{` and ends with `}`. Then no object spans lines, and Arrow gets
    objects only: it reads `null` as one, and crashes on it in a first line.
    """

    def __init__(self, block: bytes) -> None:
        self._block = block
        symbols = np.frombuffer(block, np.uint8)
        feeds = np.flatnonzero(symbols == _FEED)
        starts = np.concatenate(([0], feeds + 1))
        ends = np.concatenate((feeds, [len(block)]))
        full = starts < ends
        starts, ends = starts[full], ends[full]
        self.count = len(starts)
        self.are_objects = bool((symbols[starts] == _OPEN).all() and (symbols[ends - 1] == _CLOSE).all())
        self._texts: list[bytes] | None = None

    def text(self, number: int) -> str:
        """The line of that number."""
        if self._texts is None:
            self._texts = [line for line in self._block.split(b"\n") if line]
        return self._texts[number].decode("utf-8", "replace")


def _from_texts(texts: list[bytes], first: int, schema: Schema, options: TextOptions) -> Chunk:
    """A chunk of lines, each parsed by itself."""
    return _one_by_one(texts, _object, lambda text: text.decode("utf-8", "replace"), first, schema, options)


def _one_by_one(
    written: list[_Written],
    parsed: Callable[[_Written], object],
    shown: Callable[[_Written], str],
    first: int,
    schema: Schema,
    options: TextOptions,
) -> Chunk:
    """A chunk of what is a row when it is `parsed`; the rest is refused, with its text."""
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    refused: list[Refused] = []
    for number, item in enumerate(written, first):
        try:
            rows.append(_row(parsed(item), schema, options))
            numbers.append(number)
        except Misfit as problem:
            refused.append(Refused(number, shown(item), str(problem)))
    places = np.asarray(numbers, np.int64)
    return Chunk(_batch(rows, schema), places, refused, len(written), lambda row: shown(written[row - first]))


def _object(text: bytes) -> object:
    try:
        return json.loads(text.decode(), parse_float=Literal)
    except UnicodeDecodeError as problem:
        raise Misfit(f"not valid UTF-8 at byte {problem.start + 1} of the line") from None
    except (ValueError, RecursionError) as problem:
        raise Misfit(f"not JSON: {first_line(problem)}") from None


def _row(json_value: object, schema: Schema, options: TextOptions) -> dict[str, Any]:
    if not isinstance(json_value, dict):
        raise Misfit(f"not a JSON object but {'null' if json_value is None else type(json_value).__name__}")
    row = {}
    for field in schema:
        try:
            row[field.name] = value(json_value.get(field.name), field.type, options)
        except Misfit as problem:
            if not options.permissive:
                raise Misfit(f"column {field.name}: {problem}") from None
            row[field.name] = None
    return row


def _document(text: bytes, schema: Schema, options: TextOptions) -> Chunk:
    """A whole file as one JSON value."""
    try:
        document = json.loads(text.decode(), parse_float=Literal)
    except (ValueError, RecursionError) as problem:
        raise WholeFile(f"not JSON: {first_line(problem)}") from None
    objects = document if isinstance(document, list) else [document]
    return _one_by_one(objects, lambda value: value, json.dumps, 0, schema, options)


def _batch(rows: list[dict[str, Any]], schema: Schema) -> pa.RecordBatch:
    arrays = [
        pa.array([row[field.name] for row in rows], arrow.type)
        for field, arrow in zip(schema, schema.arrow(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow())
