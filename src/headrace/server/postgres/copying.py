"""COPY and INSERT for PostgreSQL clients: parsing of these statements, and the push of their rows into a stream, all or
none. Of COPY TO STDOUT only the statement is parsed: which SELECT or FOLLOW, and in which format.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats.text_values import with_article
from headrace.connectors.records.options import text_options
from headrace.connectors.sources.sent_rows import SentRows, sent_as_table
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import flat
from headrace.runtime.hub.hub import Hub
from headrace.schema import STRING, Field, Schema, Type, to_arrow
from headrace.server.postgres.protocol.cells import unescaped, values_of
from headrace.server.postgres.protocol.problems import Failed
from headrace.server.postgres.tables.sql_text import Text, Token
from headrace.server.tables import sent_rows

_SWITCHES: Final = ("TRUE", "ON", "1", "FALSE", "OFF", "0")
_OPTIONS: Final = {
    "FORMAT": ("CSV", "TEXT"),
    "HEADER": _SWITCHES,
    "ENCODING": ("UTF8", "UTF-8"),
}
_OF_CSV: Final = {"DELIMITER": (",",), "NULL": ("",), "QUOTE": ('"',), "ESCAPE": ('"',)}
_OF_TEXT: Final = {"DELIMITER": ("\t", "\\T"), "NULL": ("\\N", "\\\\N")}
"""Options and the values that may be given for them: those that hold without them."""
_END: Final = re.compile(rb"(?:\A|(?<=\n))\\\.\r?(?:\n|\Z)")
"""The line that ends rows in the text format."""


@dataclass(frozen=True, slots=True)
class CopyIn:
    """A COPY that waits for its rows."""

    hub: Hub
    stream: StreamDefinition
    columns: tuple[str, ...]
    is_listed: bool
    """Whether the statement has the columns: then a header is skipped, else it names the columns of CSV."""
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
        return CopyIn(hub, stream, names, bool(columns), is_csv, has_header)

    def rows(self, data: bytes) -> pa.Table:
        """The rows that were copied; columns that are not are NULL. Raises `Failed` that names the first one that does not fit the stream."""
        cells = self._cells_of_csv(data) if self.is_csv else self._cells_of_text(data)
        columns = dict[str, pa.Array]()
        for field in self.stream.schema:
            if field.name not in cells.column_names:
                columns[field.name] = pa.nulls(cells.num_rows, to_arrow(field.type))
                continue
            cell = flat(cells.column(field.name))
            columns[field.name], failed = values_of(cell, field.type, text_options(self.stream.options))
            if failed is not None:
                row = pc.index(failed, True).as_py()
                reason = f"column {field.name}: '{cell[row]}' is not {with_article(field.type)}"
                raise _misfit(self.stream, row + 1, reason)
        return _fitting(sent_as_table(self.stream, pa.table(columns), self.hub.loop.engine.clock()))

    def push(self, rows: pa.Table) -> int:
        """Push them; how many."""
        if rows.num_rows:
            self.hub.push(self.stream.name, rows)
        return rows.num_rows

    def _cells_of_csv(self, data: bytes) -> pa.Table:
        if self.has_header and self.is_listed:
            data = data.partition(b"\n")[2]
        if self.is_listed or not self.has_header:
            data = (",".join(map(_quoted, self.columns)) + "\n").encode() + data
        options = {**self.stream.options, "multiLine": "true" if b'"' in data else "false"}
        texts = Schema(tuple(Field(name, STRING) for name in self.columns))
        read_as = StreamDefinition(self.stream.name, texts, self.stream.using, options)
        sent = sent_rows(read_as, "text/csv", data, self.hub.loop.engine.clock())
        for first in sent.rejects.slice(0, 1).to_pylist():
            raise _misfit(self.stream, first["row"] + 1, first["reason"])
        return sent.table

    def _cells_of_text(self, data: bytes) -> pa.Table:
        cells = _cells_of_text(data, self.columns, self.has_header)
        try:
            return pa.table({name: unescaped(flat(cells.column(name))) for name in self.columns})
        except UnicodeDecodeError:
            raise Failed("22021", "an escape makes text that is not UTF-8") from None


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

    Raises `Failed` for other options, and for other values of them than those that hold without them.
    """
    given = dict(_given(text, after))
    is_csv = given.get("FORMAT") == "CSV"
    known = {**_OPTIONS, **(_OF_CSV if is_csv else _OF_TEXT)}
    for name, value in given.items():
        if value.upper() not in known.get(name, ()):
            raise Failed(
                "0A000",
                f"COPY does not take {name} {value}".rstrip(),
                "It takes FORMAT csv or text, and HEADER.",
            )
    return is_csv, given.get("HEADER", "OFF") in _SWITCHES[:3]


def _given(text: Text, after: int) -> Iterator[tuple[str, str]]:
    """The options of a COPY with their values, in either form: `(FORMAT csv, HEADER true)`, `CSV HEADER`."""
    words = [token for token in text.tokens[after:] if token.text not in ("(", ")", ",")]
    words = [token for token in words if token.word not in ("WITH", "AS")]
    index = 0
    while index < len(words):
        name, following = words[index].text.upper(), words[index + 1 : index + 2]
        index += 1
        if name in ("CSV", "TEXT"):
            yield "FORMAT", name
        elif name == "HEADER" and (not following or _text_of(following[0]).upper() not in _SWITCHES):
            yield name, "TRUE"
        elif name in {*_OPTIONS, *_OF_CSV}:
            yield name, "".join(map(_text_of, following)).upper()
            index += 1
        else:
            yield name, ""


def _text_of(token: Token) -> str:
    """The content of a quoted text, else the token."""
    return token.text.partition("'")[2][:-1] if token.kind == "string" else token.text


def _fitting(sent: SentRows) -> pa.Table:
    """The rows. Raises `Failed` that names the first one that would be a reject of the stream."""
    for first in sent.rejects.slice(0, 1).to_pylist():
        raise _misfit(sent.definition, first["row"] + 1, first["reason"])
    return sent.table


def _misfit(stream: StreamDefinition, row: int, reason: str) -> Failed:
    return Failed("22P02", f"row {row} does not fit {stream.name}: {reason}", "None of the rows was pushed.")


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT: its rows as a SELECT in the types of the columns, and where in it they are written."""

    hub: Hub
    stream: StreamDefinition
    columns: tuple[str, ...]
    select: str
    written: tuple[int, int, int]
    """The first and the last place of the rows in the SELECT, and the first one in the statement; from 0."""

    @staticmethod
    def of(hub: Hub, text: Text) -> Insert:
        """INSERT INTO stream [(columns)] rows.

        Raises `UserError` for a stream or a column that is not there.
        """
        target, columns, after = _target(text, 2)
        stream = hub.stream_definition(target)
        fields = [stream.schema.field(name) for name in columns] or list(stream.schema)
        names = [f"c{index}" for index in range(len(fields))]
        casts = ", ".join(
            f"{_cast(name, field.type)} AS {name}" for name, field in zip(names, fields, strict=True)
        )
        more = f"given.* EXCLUDE ({', '.join(names)})"
        head, rows = f"SELECT {casts}, {more} FROM (", text.after(after)  # noqa: S608 - of the client's own
        start = text.tokens[after].start if rows else len(text.text)
        select = f"{head}{rows}\n) AS given({', '.join(names)})"
        written = len(head), len(head) + len(rows), start
        return Insert(hub, stream, tuple(field.name for field in fields), select, written)

    def placed(self, failed: Failed) -> Failed:
        """A failure of the SELECT, at its place in the statement; without one if that is in what was added."""
        position, (first, last, start) = failed.problem.position, self.written
        if position is not None:
            position = position - first + start if first < position <= last + 1 else None
        return Failed.of(replace(failed.problem, position=position))

    def push(self, rows: pa.Table) -> int:
        """Push the rows; how many. Raises `Failed` that names the first one that does not fit the stream."""
        if rows.num_columns > len(self.columns):
            raise Failed("42601", "INSERT has more expressions than target columns")
        if rows.num_rows:
            table, stream = rows.rename_columns(list(self.columns)), self.stream
            for name in stream.schema.names:
                if name not in table.column_names:
                    kind = stream.schema.arrow().field(name).type
                    table = table.append_column(name, pa.nulls(table.num_rows, kind))
            table = table.select(list(stream.schema.names)).cast(stream.schema.arrow())
            self.hub.push(stream.name, _fitting(sent_as_table(stream, table, self.hub.loop.engine.clock())))
        return rows.num_rows


def _cast(name: str, kind: Type) -> str:
    """A value in a type, an INTERVAL in microseconds: months have no length."""
    if kind.name != "INTERVAL":
        return f"CAST({name} AS {_type(kind)})"
    given = f"CAST({name} AS INTERVAL)"
    months = f"date_part('month', {given}) + date_part('year', {given})"
    failed = "error('an INTERVAL has days and time only')::BIGINT"
    return f"CASE WHEN {months} <> 0 THEN {failed} ELSE epoch_us({given}) END"


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
    for index, column in enumerate(columns):
        if column.casefold() in map(str.casefold, columns[:index]):
            raise Failed("42701", f'column "{column}" specified more than once')
    return name, columns, at


def _name(text: str) -> str:
    return text[1:-1] if text[:1] in ('"', "`") else text


def _cells_of_text(data: bytes, names: Sequence[str], has_header: bool) -> pa.Table:
    r"""The cells of COPY's text format as they are written: tabs between them, `\N` for NULL."""
    if has_header:
        data = data.partition(b"\n")[2]
    end = _END.search(data)
    data = data if end is None else data[: end.start()]
    if not data:
        return pa.table({name: pa.array([], pa.string()) for name in names})
    try:
        return csv.read_csv(
            io.BytesIO(data),
            csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            csv.ParseOptions(
                delimiter="\t", quote_char=False, newlines_in_values=False, ignore_empty_lines=False
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=["\\N"], strings_can_be_null=True
            ),
        )
    except pa.ArrowInvalid as error:
        raise Failed("22P04", f"the rows are not in COPY's text format: {error}") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
