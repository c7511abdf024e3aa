"""COPY and INSERT for PostgreSQL clients: parsing of these statements, and the push of their rows into a stream, all or
none. Of COPY TO STDOUT only the statement is parsed: which SELECT or FOLLOW, and in which format.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats.text_values import convert, with_article
from headrace.connectors.records.options import text_options
from headrace.connectors.sources.sent_rows import SentRows, sent_as_table
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import flat
from headrace.runtime.hub.hub import Hub
from headrace.schema import Type, to_arrow
from headrace.server.postgres.protocol.problems import Failed
from headrace.server.postgres.tables.sql_text import Text
from headrace.server.tables import sent_rows

_OPTIONS: Final = {
    "FORMAT",
    "HEADER",
    "DELIMITER",
    "NULL",
    "CSV",
    "TEXT",
    "WITH",
    "ENCODING",
    "QUOTE",
    "ESCAPE",
}


@dataclass(frozen=True, slots=True)
class CopyIn:
    """A COPY that waits for its rows."""

    hub: Hub
    stream: StreamDefinition
    columns: tuple[str, ...]
    is_csv: bool
    has_header: bool

    @staticmethod
    def of(hub: Hub, text: Text) -> CopyIn:
        """COPY stream [(columns)] FROM STDIN [WITH] [(FORMAT csv, HEADER)].

        Raises `Failed` for other options, and `UserError` for a stream or a column that is not there.
        """
        target, columns, after = _target(text, 1)
        if [token.word for token in text.tokens[after : after + 2]] != ["FROM", "STDIN"]:
            raise Failed("0A000", "COPY is FROM STDIN or TO STDOUT", f"COPY {target} FROM STDIN (FORMAT csv)")
        is_csv, has_header = _options(text, after + 2)
        stream = hub.stream_definition(target)
        names = tuple(stream.schema.field(name).name for name in columns) or stream.schema.names
        return CopyIn(hub, stream, names, is_csv, has_header)

    def rows(self, data: bytes) -> pa.Table:
        """The rows that were copied. Raises `Failed` that names the first one that does not fit the stream."""
        return self._of_csv(data) if self.is_csv else self._of_text(data)

    def push(self, rows: pa.Table) -> int:
        """Push them; how many."""
        if rows.num_rows:
            self.hub.push(self.stream.name, rows)
        return rows.num_rows

    def _of_csv(self, data: bytes) -> pa.Table:
        if not self.has_header:
            data = (",".join(map(_quoted, self.columns)) + "\n").encode() + data
        options = {**self.stream.options, "multiLine": "true" if b'"' in data else "false"}
        stream = replace(self.stream, options=options)
        return _fitting(sent_rows(stream, "text/csv", data, self.hub.loop.engine.clock()))

    def _of_text(self, data: bytes) -> pa.Table:
        cells = _cells_of_text(data, len(self.columns), self.has_header)
        columns = dict[str, pa.Array]()
        for field in self.stream.schema:
            kind = to_arrow(field.type)
            if field.name not in self.columns:
                columns[field.name] = pa.nulls(cells.num_rows, kind)
                continue
            cell = flat(cells.column(self.columns.index(field.name)))
            columns[field.name], failed = convert(cell, field.type, text_options(self.stream.options))
            if failed is not None:
                row = pc.index(failed, True).as_py()
                reason = f"column {field.name}: '{cell[row]}' is not {with_article(field.type)}"
                raise _misfit(self.stream, row + 1, reason)
        return _fitting(sent_as_table(self.stream, pa.table(columns), self.hub.loop.engine.clock()))


@dataclass(frozen=True, slots=True)
class CopyOut:
    """A COPY TO STDOUT: the SELECT or the FOLLOW of which it copies the rows, and their format."""

    source: Text
    is_csv: bool
    has_header: bool

    @staticmethod
    def of(text: Text) -> CopyOut:
        """COPY (SELECT … | FOLLOW …) TO STDOUT [options], COPY table [(columns)] TO STDOUT [options].

        Raises `Failed` for another form.
        """
        if text.tokens[1:2] and text.tokens[1].text == "(":
            closing = _closing(text)
            source = text.text[text.tokens[2].start : text.tokens[closing].start]
            start, after = text.start + text.tokens[2].start, closing + 1
        else:
            name, columns, after = _target(text, 1)
            chosen = ", ".join(map(_quoted, columns)) or "*"
            schema = f"{text.tokens[1].text}." if text.tokens[2].text == "." else ""
            source, start = f"SELECT {chosen} FROM {schema}{_quoted(name)}", text.start  # noqa: S608 - of the client's own
        if [token.word for token in text.tokens[after : after + 2]] != ["TO", "STDOUT"]:
            raise Failed(
                "0A000", "COPY is FROM STDIN or TO STDOUT", "COPY (SELECT …) TO STDOUT (FORMAT csv, HEADER)"
            )
        return CopyOut(Text(source, start), *_options(text, after + 2))

    def header(self, schema: pa.Schema) -> pa.Table | None:
        """The names of the columns as a row."""
        names = {f"c{index}": [name] for index, name in enumerate(schema.names)}
        return pa.table(names) if self.has_header else None


def _closing(text: Text) -> int:
    """The token that closes the parenthesis of the second one."""
    depth = 0
    for index, token in enumerate(text.tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if index > 1 and not depth:
            return index
    raise Failed("42601", "a parenthesis is not closed")


def _options(text: Text, after: int) -> tuple[bool, bool]:
    """Whether a COPY is CSV, and whether it has a header, from its options after so many tokens.

    Raises `Failed` for other options.
    """
    words = [token.text.strip("'").upper() for token in text.tokens[after:] if token.kind != "sign"]
    unknown = [word for word in words if word not in _OPTIONS]
    if unknown:
        raise Failed("0A000", f"COPY does not take {unknown[0]}", "It takes FORMAT csv or text, and HEADER.")
    return "CSV" in words, "HEADER" in words and not {"FALSE", "OFF"} & {*words}


def _fitting(sent: SentRows) -> pa.Table:
    """The rows. Raises `Failed` that names the first one that would be a reject of the stream."""
    for first in sent.rejects.slice(0, 1).to_pylist():
        raise _misfit(sent.definition, first["row"] + 1, first["reason"])
    return sent.table


def _misfit(stream: StreamDefinition, row: int, reason: str) -> Failed:
    return Failed("22P02", f"row {row} does not fit {stream.name}: {reason}", "None of the rows was pushed.")


def insert(hub: Hub, stream: StreamDefinition, columns: Sequence[str], rows: pa.Table) -> int:
    """Push rows of an INSERT; how many. Raises `Failed` that names the first one that does not fit the stream."""
    if rows.num_rows:
        table = rows.rename_columns(list(columns))
        for name in stream.schema.names:
            if name not in table.column_names:
                kind = stream.schema.arrow().field(name).type
                table = table.append_column(name, pa.nulls(table.num_rows, kind))
        table = table.select(list(stream.schema.names)).cast(stream.schema.arrow())
        hub.push(stream.name, _fitting(sent_as_table(stream, table, hub.loop.engine.clock())))
    return rows.num_rows


def insert_as_select(hub: Hub, text: Text) -> tuple[StreamDefinition, list[str], str]:
    """The stream and the columns of INSERT INTO stream [(columns)] rows, and its rows as a SELECT in the columns' types.

    Raises `UserError` for a stream or a column that is not there.
    """
    target, columns, after = _target(text, 2)
    stream = hub.stream_definition(target)
    fields = [stream.schema.field(name) for name in columns] or list(stream.schema)
    names = [f"c{index}" for index in range(len(fields))]
    casts = ", ".join(
        f"CAST({name} AS {_type(field.type)}) AS {name}" for name, field in zip(names, fields, strict=True)
    )
    rows = f"SELECT {casts} FROM ({text.after(after)}\n) AS given({', '.join(names)})"  # noqa: S608 - of the client's own
    return stream, [field.name for field in fields], rows


def _type(kind: Type) -> str:
    return {
        "STRING": "VARCHAR",
        "TIMESTAMP": "TIMESTAMPTZ",
        "TIMESTAMP_NTZ": "TIMESTAMP",
        "BINARY": "BLOB",
    }.get(kind.name, str(kind))


def _target(text: Text, at: int) -> tuple[str, list[str], int]:
    """The name after so many tokens, without its schema, the columns after it, and the token that follows."""
    tokens = text.tokens
    if len(tokens) <= at or not tokens[at].word:
        raise Failed("42601", "the name of a stream is missing")
    if len(tokens) > at + 2 and tokens[at + 1].text == ".":
        at += 2
    name, columns = _name(tokens[at].text), list[str]()
    at += 1
    if (
        at < len(tokens)
        and tokens[at].text == "("
        and tokens[at + 1 : at + 2]
        and tokens[at + 1].word not in ("SELECT", "VALUES")
    ):
        at += 1
        while at < len(tokens) and tokens[at].text != ")":
            if tokens[at].word:
                columns.append(_name(tokens[at].text))
            at += 1
        at += 1
    return name, columns, at


def _name(text: str) -> str:
    return text[1:-1] if text[:1] in ('"', "`") else text


def _cells_of_text(data: bytes, columns: int, has_header: bool) -> pa.Table:
    r"""The cells of COPY's text format: tabs between them, `\N` for NULL, backslashes before what is meant literally."""
    if has_header:
        data = data.partition(b"\n")[2]
    end = data.find(b"\n\\.\n")
    data = b"" if data.startswith(b"\\.\n") else data if end < 0 else data[: end + 1]
    names = [f"c{index}" for index in range(columns)]
    if not data:
        return pa.table({name: pa.array([], pa.string()) for name in names})
    try:
        table = csv.read_csv(
            io.BytesIO(data),
            csv.ReadOptions(column_names=names, use_threads=False),
            csv.ParseOptions(
                delimiter="\t", quote_char=False, newlines_in_values=False, ignore_empty_lines=False
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=["\\N"], strings_can_be_null=True
            ),
        )
    except pa.ArrowInvalid as error:
        raise Failed("22P04", f"the rows are not in COPY's text format: {error}") from None
    return pa.table({name: _unescaped(table.column(name)) for name in names})


def _unescaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    hidden = pc.replace_substring(column, "\\\\", "\0")
    for written, plain in (("\\t", "\t"), ("\\n", "\n"), ("\\r", "\r")):
        hidden = pc.replace_substring(hidden, written, plain)
    return pc.replace_substring(pc.replace_substring(hidden, "\\", ""), "\0", "\\")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
