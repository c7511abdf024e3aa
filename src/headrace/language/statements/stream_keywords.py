"""The definition of a stream from the keywords of `hub.create_stream`: they are written as the clauses of CREATE
STREAM, and parsed as these are.

So a call and a statement pass the same checks and make the same definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, TypedDict

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import UnsupportedQuery, UserError, did_you_mean
from headrace.language.parser.literals import interval_text
from headrace.language.parser.quoting import identifier, string
from headrace.language.parser.type_names import TYPES
from headrace.language.statements.definitions import reserved, stream_of
from headrace.language.syntax.cursor import Cursor
from headrace.schema import Schema
from headrace.time import Duration, render_duration


class StreamOptions(TypedDict, total=False):
    """Keywords of `hub.create_stream`; each is the clause or option of that name in CREATE STREAM.

    A length of time is a `timedelta` or a text such as '5 SECONDS'; `slack` may be '100 ROWS'. `clauses` are further clauses
    as text: "PROGRESS PER (station) EXPECT 3 DEDUPLICATE BY (station, id)".
    """

    timestamp: str | None
    slack: timedelta | str | None
    punctuated_by: str | None
    idle_timeout: timedelta | str | None
    max_ahead: timedelta | str | None
    archive: str | None
    retain: timedelta | str | None
    blocks: int | None
    blocks_by: str | None
    keep: float | None
    latency: timedelta | str | None
    reduce: str | None
    clauses: str | None


@dataclass(frozen=True, slots=True)
class _Keyword:
    """What a keyword takes, an example of it, and how it is written in CREATE STREAM (None: it does not fit)."""

    expected: str
    example: str
    written: Callable[[Any, Schema], str | None]
    is_option: bool = False


def stream_from_keywords(
    name: str, schema: Schema, using: str, keywords: Mapping[str, Any], zone: str
) -> StreamDefinition:
    """The stream that CREATE STREAM with these clauses defines in a session of that zone.

    Raises `UserError` for an unknown keyword, a value that does not fit it, and columns no stream may have.
    """
    for keyword in keywords:
        if keyword not in _KEYWORDS:
            raise UserError(
                f"stream '{name}': create_stream has no keyword '{keyword}'",
                remedy=did_you_mean(keyword, list(_KEYWORDS)),
            )
    _check_columns(name, schema)
    clauses: list[str] = []
    options: list[str] = []
    for keyword, rule in _KEYWORDS.items():
        value = keywords.get(keyword)
        if value is None:
            continue
        written = rule.written(value, schema)
        if written is None:
            shown = f"{value!r}" if isinstance(value, str) else f"{value!r} ({type(value).__name__})"
            raise UserError(
                f"stream '{name}': {keyword} is {shown}, expected {rule.expected}",
                remedy=f"Such as {keyword}={rule.example}.",
            )
        (options if rule.is_option else clauses).append(written)
    if options:
        clauses.append(f"OPTIONS ({', '.join(options)})")
    return _parsed(Cursor(" ".join(clauses), zone=zone), name, schema, using)


def _parsed(cursor: Cursor, name: str, schema: Schema, using: str) -> StreamDefinition:
    try:
        definition = stream_of(cursor, name, schema, using)
        if not cursor.at_end:
            raise cursor.expected("a clause of CREATE STREAM")
    except UserError as error:  # its span is in a text that no user wrote
        raise type(error)(f"stream '{name}': {error.message}", remedy=error.remedy) from None
    return definition


def _check_columns(name: str, schema: Schema) -> None:
    """Refuse the columns that CREATE STREAM refuses."""
    known = {kind.name for kind in TYPES.values()}
    for field in schema:
        if (refusal := reserved(field.name)) is not None:
            raise UserError(
                f"stream '{name}': {refusal}", remedy="Give it another name: frame.withColumnRenamed."
            )
        if field.type.name not in known:
            raise UnsupportedQuery(
                f"stream '{name}': the column '{field.name}' is {field.type}, and rows of a stream are flat",
                remedy="Select one column for each value inside it, or to_json of it, or leave it out.",
            )


def _text(value: Any, _: Schema) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _length(value: Any) -> Duration | None:
    """Microseconds; None for what is no length of time, which a bare number is not: it has no unit."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if not isinstance(value, str):
        return None
    try:
        return interval_text(value)
    except UserError:
        return None


def _clause(words: str) -> Callable[[Any, Schema], str | None]:
    def written(value: Any, _: Schema) -> str | None:
        length = _length(value)
        return None if length is None else f"{words} INTERVAL '{render_duration(length)}'"

    return written


def _slack(value: Any, schema: Schema) -> str | None:
    match value.split() if isinstance(value, str) else ():
        case [rows, unit] if rows.isascii() and rows.isdigit() and unit.upper() in ("ROW", "ROWS"):
            return f"SLACK {rows} ROWS"
    return _clause("SLACK")(value, schema)


def _timestamp(value: Any, schema: Schema) -> str | None:
    """A column by its name, with any characters; else an expression."""
    if not isinstance(value, str) or not value.strip():
        return None
    is_name = schema.find(value) is not None or value.replace("_", "a").isalnum()
    return f"TIMESTAMP BY {identifier(value) if is_name else value}"


def _condition(value: Any, schema: Schema) -> str | None:
    return f"PUNCTUATED BY {value}" if _text(value, schema) else None


def _option(name: str, text_of: Callable[[Any], str | None]) -> Callable[[Any, Schema], str | None]:
    def written(value: Any, _: Schema) -> str | None:
        text = text_of(value)
        return None if text is None else f"{name} {string(text)}"

    return written


def _length_text(value: Any) -> str | None:
    length = _length(value)
    return None if length is None else render_duration(length)


def _number_text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return f"{Decimal(repr(value)):f}"


_LENGTH: Final = "a length of time: a timedelta, or a text with a unit"
_KEYWORDS: Final[Mapping[str, _Keyword]] = {
    "timestamp": _Keyword("the name of a column, or an expression, as text", "'at'", _timestamp),
    "slack": _Keyword(_LENGTH + ", or a number of ROWS", "'5 SECONDS'", _slack),
    "punctuated_by": _Keyword("a condition as text", "'last'", _condition),
    "idle_timeout": _Keyword(_LENGTH, "timedelta(seconds=30)", _clause("IDLE TIMEOUT")),
    "max_ahead": _Keyword(_LENGTH, "'2 HOURS'", _option("maxAhead", _length_text), is_option=True),
    "archive": _Keyword(
        "'copy', 'in place' or 'none'",
        "'none'",
        _option("archive", lambda value: value if isinstance(value, str) else None),
        is_option=True,
    ),
    "retain": _Keyword(_LENGTH, "timedelta(days=7)", _option("retain", _length_text), is_option=True),
    "blocks": _Keyword("a whole number", "16", _option("blocks", _number_text), is_option=True),
    "blocks_by": _Keyword(
        "the name of a column",
        "'car'",
        _option("blocksBy", lambda value: value if isinstance(value, str) else None),
        is_option=True,
    ),
    "keep": _Keyword("a number above 0 and at most 1", "0.25", _option("keep", _number_text), is_option=True),
    "latency": _Keyword(
        _LENGTH, "timedelta(milliseconds=20)", _option("latency", _length_text), is_option=True
    ),
    "reduce": _Keyword(
        "a reduction as text",
        "'age(7 DAYS 0.5)'",
        _option("reduce", lambda value: value if isinstance(value, str) else None),
        is_option=True,
    ),
    "clauses": _Keyword("clauses of CREATE STREAM as text", "'PROGRESS STEP INTERVAL 1 MINUTE'", _text),
}
