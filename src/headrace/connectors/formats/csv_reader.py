"""Reader of CSV (RFC 4180): whole blocks in Arrow, and line by line where a line breaks a rule.

Cells are first read as text and then converted column by column, so that a bad cell rejects its own record and leaves its
block alone. A quoted line feed belongs to a cell only with `multiLine`; otherwise a line is a record, as in Spark.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats import text_lines
from headrace.connectors.formats.csv_quotes import (
    are_well_quoted,
    cell_with_text_after_quote,
    feeds_outside_quotes,
    with_plain_escapes,
)
from headrace.connectors.formats.text_values import convert, with_article
from headrace.connectors.records.chunk import Chunk, Refused
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.records.options import TextOptions, text_options
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import flat
from headrace.schema import Schema

_FEED: Final = ord("\n")


@dataclass(frozen=True, slots=True)
class Layout:
    """The cells of a line and the columns of the schema: `source[i]` is the cell of column i, None when absent.

    `refusal`: why no record of the file fits the stream.
    """

    width: int
    source: tuple[int | None, ...]
    refusal: str | None = None

    @property
    def names(self) -> list[str]:
        """A name for each cell."""
        return [f"c{index}" for index in range(self.width)]


def chunks(file: BinaryIO, record: IngestRecord, definition: StreamDefinition) -> Iterator[Chunk]:
    """The record's rows, block by block, with all columns of the schema."""
    options = text_options(definition.options)
    layout = _layout(file, record, definition.schema, options)
    headed = options.header and record.start == 0
    number = 0
    quote = ord(options.quote) if options.multi_line and options.quote else 0
    feeds = partial(feeds_outside_quotes, options) if quote else text_lines.with_feeds
    for block in text_lines.blocks(file, record, options.encoding, quote=quote, feeds=feeds):
        text = _without_comments(block, options.comment.encode()) if options.comment else block
        if headed and text:
            text = _without_head(text)
            headed = False
        if _is_blank(text, options):
            continue
        chunk = _Block(text, number, layout, definition.schema, options).read()
        number += chunk.numbers
        yield chunk


def _layout(file: BinaryIO, record: IngestRecord, schema: Schema, options: TextOptions) -> Layout:
    titles = header_names(file, record, options)
    if not titles:
        return Layout(len(schema), tuple(range(len(schema))))
    indexes = {title: index for index, title in reversed(list(enumerate(titles)))}
    source = tuple(indexes.get(name.lower()) for name in schema.names)
    missing = [name for name, cell in zip(schema.names, source, strict=True) if cell is None]
    if missing and not options.permissive:
        lost = f"schema changed: column {', '.join(missing)} is missing in the header"
        return Layout(len(titles), source, f"{record.uri}: {lost}")
    return Layout(len(titles), source)


def header_names(file: BinaryIO, record: IngestRecord, options: TextOptions) -> list[str]:
    """The names in the header, in lower case; none without a header."""
    head = (
        text_lines.head(file, record, options.encoding, options.comment.encode()) if options.header else b""
    )
    return [title.strip().lower() for title in _cells_of(head, options)] if head else []


def _without_comments(block: bytes, mark: bytes) -> bytes:
    if mark not in block:
        return block
    return b"\n".join(line for line in block.split(b"\n") if not line.startswith(mark))


def _without_head(block: bytes) -> bytes:
    """Drop the first line that is not blank; the block starts a file, and a head is much shorter than a block."""
    rest = block
    while rest:
        line, _, rest = rest.partition(b"\n")
        if line.strip():
            break
    return rest


def _cells_of(line: bytes, options: TextOptions) -> list[str]:
    """The cells of one line."""
    text = with_plain_escapes(line, options).decode("utf-8", "replace")
    escape = options.escape if options.escape not in ("", options.quote) else None
    reader = csv.reader(
        [text],
        delimiter=options.separator,
        quotechar=options.quote or None,
        escapechar=escape,
        quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
    )
    return next(reader, [])


class _Block:
    """One block of whole lines and its conversion to columns."""

    def __init__(self, text: bytes, first: int, layout: Layout, schema: Schema, options: TextOptions) -> None:
        self._text, self._first, self._layout, self._schema, self._options = (
            text,
            first,
            layout,
            schema,
            options,
        )
        self._refused: list[Refused] = []
        self._texts: list[bytes] | None = None

    def read(self) -> Chunk:
        """Parse, convert, and take out what failed."""
        if self._layout.refusal is not None:
            return self._all_refused(self._layout.refusal)
        table, rows, total = self._parsed()
        columns, masks = [], []
        for field, cell in zip(self._schema, self._layout.source, strict=True):
            if cell is None:
                columns.append(pa.nulls(len(rows), self._schema.arrow().field(field.name).type))
                continue
            strings = self._tidied(flat(table.column(f"c{cell}")))
            values, failed = convert(strings, field.type, self._options)
            columns.append(values)
            if failed is not None and not self._options.permissive:
                masks.append((field, strings, failed.to_numpy(zero_copy_only=False)))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema.arrow())
        if masks:
            bad = np.logical_or.reduce([mask for _, _, mask in masks])
            reasons = dict.fromkeys(np.flatnonzero(bad).tolist(), "")
            for field, strings, mask in reversed(masks):
                for at in np.flatnonzero(mask).tolist():
                    reasons[at] = (
                        f"column {field.name}: '{strings[at].as_py()}' is not {with_article(field.type)}"
                    )
            for at, reason in reasons.items():
                self._refuse(int(rows[at]), reason)
            batch, rows = batch.filter(pa.array(~bad)), rows[~bad]
        self._refused.sort(key=lambda refused: refused.row)
        return Chunk(batch, rows + self._first, self._refused, total, self.raw)

    def _all_refused(self, reason: str) -> Chunk:
        """Rejects of every record, with its text; it may fit when the stream is created again."""
        texts = self._texts = _records(self._text, self._options)
        for number, text in enumerate(texts):
            if not _is_blank(text, self._options):
                self._refuse(number, reason)
        none = pa.RecordBatch.from_pylist([], schema=self._schema.arrow())
        return Chunk(none, np.zeros(0, np.int64), self._refused, len(texts), self.raw)

    def raw(self, row: int) -> str:
        """The text of a record, by its number in the split."""
        number = row - self._first
        if self._texts is None:
            self._texts = _records(self._text, self._options)
        return self._texts[number].decode("utf-8", "replace")

    def _refuse(self, number: int, reason: str) -> None:
        row = number + self._first
        self._refused.append(Refused(row, self.raw(row), reason))

    def _tidied(self, cells: pa.StringArray) -> pa.StringArray:
        options = self._options
        if options.null:
            cells = pc.if_else(pc.equal(cells, options.null), None, cells)
        if not (options.strip_left or options.strip_right):
            return cells
        trimmed = pc.utf8_ltrim_whitespace(cells) if options.strip_left else cells
        trimmed = pc.utf8_rtrim_whitespace(trimmed) if options.strip_right else trimmed
        emptied = pc.and_(pc.equal(trimmed, ""), pc.not_equal(cells, ""))
        return pc.if_else(emptied, None, trimmed)

    def _parsed(self) -> tuple[pa.Table, npt.NDArray[np.int64], int]:
        """The cells as text, the number of each row in the block, and how many numbers the block uses up."""
        records = self._count()
        if not text_lines.is_utf8(self._text) or not are_well_quoted(self._text, self._options):
            return self._screened()
        table, wrong = self._scan(self._text)
        if records is not None and table.num_rows + len(wrong) != records:
            return self._screened()
        if not wrong:
            return table, np.arange(table.num_rows), table.num_rows
        if self._options.permissive:
            return self._screened()
        return (
            table,
            self._without(wrong, np.arange(table.num_rows + len(wrong))),
            table.num_rows + len(wrong),
        )

    def _without(
        self, wrong: list[pacsv.InvalidRow], numbers: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Refuse rows with a wrong number of cells (a blank line is none); the numbers of those left."""
        valid = np.ones(len(numbers), np.bool_)
        for row in wrong:
            assert row.number is not None
            valid[row.number - 1] = False
            if not _is_blank(row.text.encode(), self._options):
                cells = "cell" if row.actual_columns == 1 else "cells"
                self._refuse(
                    int(numbers[row.number - 1]),
                    f"{row.actual_columns} {cells}, expected {row.expected_columns}",
                )
        return numbers[valid]

    def _count(self) -> int | None:
        """How many records Arrow has to find; None when no quote can hide a line feed or is allowed to, -1 when one does.

        A quote left open on the last line hides nothing, but is an error of its line.
        """
        quote = self._options.quote
        if self._options.multi_line or not quote or quote.encode() not in self._text:
            return None
        if _is_open(self._text.rstrip(b"\n").rpartition(b"\n")[2], self._options):
            return -1
        feeds = np.frombuffer(self._text, np.uint8) == _FEED
        blank = np.count_nonzero(feeds[1:] & feeds[:-1]) + int(feeds[0])
        return int(np.count_nonzero(feeds) - blank) + (not self._text.endswith(b"\n"))

    def _screened(self) -> tuple[pa.Table, npt.NDArray[np.int64], int]:
        """As `_parsed`, for a block in which some line breaks a rule that Arrow answers for the whole block."""
        texts = self._texts = _records(self._text, self._options)
        lines: list[bytes] = []
        numbers: list[int] = []
        for number, line in enumerate(texts):
            reason = self._broken(line)
            if reason is None:
                lines.append(self._padded(line) if self._options.permissive else line)
                numbers.append(number)
            else:
                self._refuse(number, reason)
        if not lines:
            empty = pa.schema([(name, pa.string()) for name in self._layout.names]).empty_table()
            return empty, np.zeros(0, np.int64), len(texts)
        table, wrong = self._scan(b"\n".join(lines) + b"\n")
        return table, self._without(wrong, np.asarray(numbers)), len(texts)

    def _broken(self, line: bytes) -> str | None:
        try:
            line.decode()
        except UnicodeDecodeError as problem:
            return f"not valid UTF-8 at byte {problem.start + 1} of the line"
        options = self._options
        if are_well_quoted(line, options):
            return None
        if not options.multi_line and _is_open(line, options):
            return "a quote is not closed on its line"
        cell = cell_with_text_after_quote(line, options)
        if cell is None:
            return None
        escapes = not options.escape and b"\\" + options.quote.encode() in line
        hint = "; a quote after a backslash needs OPTIONS (escape '\\\\')" if escapes else ""
        return f"text after the closing quote of cell {cell}{hint}"

    def _padded(self, line: bytes) -> bytes:
        """The line under Spark's leniency: missing cells are null, surplus ones ignored."""
        cells = _cells_of(line, self._options)
        width = self._layout.width
        if len(cells) == width or _is_blank(line, self._options):
            return line
        if len(cells) < width:
            return line + self._options.separator.encode() * (width - len(cells))
        out = io.StringIO()
        writer = csv.writer(
            out, delimiter=self._options.separator, quotechar=self._options.quote or '"', lineterminator=""
        )
        writer.writerow(cells[:width])
        return out.getvalue().encode()

    def _scan(self, text: bytes) -> tuple[pa.Table, list[pacsv.InvalidRow]]:
        """All cells as text, and the rows with a wrong number of them."""
        wrong: list[pacsv.InvalidRow] = []
        options, names = self._options, self._layout.names
        text = with_plain_escapes(text, options)

        def skip(row: pacsv.InvalidRow) -> str:
            wrong.append(row)
            return "skip"

        table = pacsv.read_csv(
            pa.BufferReader(text),
            read_options=pacsv.ReadOptions(use_threads=False, column_names=names, block_size=len(text) + 1),
            parse_options=pacsv.ParseOptions(
                delimiter=options.separator,
                quote_char=options.quote or False,
                escape_char=options.escape if options.escape not in ("", options.quote) else False,
                newlines_in_values=options.multi_line,
                invalid_row_handler=skip,
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=[
                    f"c{cell}" for cell in sorted({cell for cell in self._layout.source if cell is not None})
                ],
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return table, wrong


def _records(text: bytes, options: TextOptions) -> list[bytes]:
    """The lines that are not empty; with `multiLine`, lines joined while a quote is open."""
    if not options.multi_line:
        return [line for line in text.split(b"\n") if line]
    records: list[bytes] = []
    held: list[bytes] = []
    inside = False
    for line in text.split(b"\n"):
        inside = _is_open(line, options, inside=inside)
        if line or held:
            held.append(line)
        if held and not inside:
            records.append(b"\n".join(held))
            held = []
    return [*records, b"\n".join(held)] if held else records


def _is_open(line: bytes, options: TextOptions, *, inside: bool = False) -> bool:
    """Whether the line ends inside quotes, by the rules of Arrow's parser; `inside` is whether it begins so."""
    quote, separator = ord(options.quote or '"'), ord(options.separator)
    escape = ord(options.escape) if options.escape not in ("", options.quote) else -1
    starting = not inside
    at = 0
    while at < len(line):
        symbol = line[at]
        if inside and symbol == escape:
            at += 1
        elif inside and symbol == quote:
            if line[at + 1 : at + 2] == bytes([quote]):
                at += 1
            else:
                inside = False
        elif not inside and starting and symbol == quote:
            inside, starting = True, False
        elif not inside:
            starting = symbol == separator
        at += 1
    return inside


def _is_blank(text: bytes, options: TextOptions) -> bool:
    """Whether a text has no record: nothing but blanks, unless the blanks divide cells."""
    return not text or (text.isspace() and options.separator.encode() not in text)
