"""The parser of CREATE STREAM, CREATE RELATION and ALTER STREAM SET: columns, options and clauses, with their
checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final
from typing import Literal as Choice

from headrace.catalog.definitions import (
    RelationDefinition,
    StreamConstraint,
    StreamDefinition,
    TimeExpression,
)
from headrace.catalog.reductions import Reduction
from headrace.dataclass import dataclass
from headrace.errors import Span, UserError, did_you_mean
from headrace.language.binder.expressions.expression_binder import bind_condition
from headrace.language.parser.expressions import expression
from headrace.language.parser.type_names import column_type
from headrace.language.statements.clauses.constraint_clauses import constraint
from headrace.language.statements.clauses.event_time import event_time
from headrace.language.statements.clauses.progress_clauses import (
    FILES,
    ProgressClauses,
    length_after,
    once,
    progress_clause,
)
from headrace.language.statements.clauses.reductions import reduction, with_columns
from headrace.language.statements.options import checked_zone, interval_option, option_list, taken
from headrace.language.syntax.ast import Expr
from headrace.language.syntax.cursor import Cursor
from headrace.schema import OURS, Field, Schema
from headrace.time import DAY, Duration

_MOST_BLOCKS: Final = 1024
_DECIMAL: Final = re.compile(r"\d+(\.\d*)?|\.\d+", re.ASCII)
_TEXTS: Final = ("csv", "json")
_ARCHIVES: Final[dict[str, Choice["copy", "in place", "none"]]] = {
    "copy": "copy",
    "in place": "in place",
    "none": "none",
}


@dataclass(slots=True)
class _Clauses:
    """Clauses of CREATE STREAM, each but CONSTRAINT at most once, in any order."""

    time: str | TimeExpression | None = None
    slack: Duration | None = None
    punctuated: Expr | None = None
    idle_timeout: Duration | None = None
    options: dict[str, str] | None = None
    progress: ProgressClauses = field(default_factory=ProgressClauses)
    constraints: list[StreamConstraint] = field(default_factory=list)
    places: dict[str, Span] = field(default_factory=dict)


def stream(cursor: Cursor) -> StreamDefinition:
    """Pass what follows CREATE STREAM.

    Raises `UserError` for an invalid definition.
    """
    name = cursor.name("the stream's name")
    schema = columns(cursor)
    return stream_of(cursor, name, schema, _using(cursor))


def stream_of(cursor: Cursor, name: str, schema: Schema, using: str) -> StreamDefinition:
    """Pass the clauses of a stream whose name, columns and format are known.

    Raises `UserError` for clauses that do not fit it.
    """
    clauses = _clauses(cursor, schema)
    options = dict(clauses.options or {})
    ahead = taken(options, "maxahead")
    archive = taken(options, "archive")
    retain = taken(options, "retain")
    blocks = taken(options, "blocks")
    blocks_by = taken(options, "blocksby")
    keep = taken(options, "keep")
    latency = taken(options, "latency")
    reduce = taken(options, "reduce")
    _check_path(cursor, using, options)
    _by_whose_clocks(cursor, using, options, clauses.places)
    _check_order(cursor, using, options, clauses.places)
    punctuated = clauses.punctuated
    clauses.progress.check(cursor, using, punctuated is not None, archive)
    return StreamDefinition(
        name,
        schema,
        using,
        options,
        clauses.time if isinstance(clauses.time, str) else None,
        clauses.slack or 0,
        None if punctuated is None else cursor.text[punctuated.span.start : punctuated.span.end],
        clauses.idle_timeout,
        DAY if ahead is None else interval_option(cursor, "maxAhead", ahead, clauses.places["maxahead"]),
        "copy" if archive is None else _archive(cursor, archive, clauses.places["archive"]),
        None if retain is None else interval_option(cursor, "retain", retain, clauses.places["retain"]),
        clauses.progress.declared,
        clauses.progress.deduplicate,
        1 if blocks is None else _blocks(cursor, blocks, archive, clauses.places["blocks"]),
        1.0 if keep is None else sample_rate_option(cursor, keep, clauses.places["keep"]),
        clauses.time if isinstance(clauses.time, TimeExpression) else None,
        0 if latency is None else interval_option(cursor, "latency", latency, clauses.places["latency"]),
        None if reduce is None else _reduction(cursor, reduce, blocks, schema, clauses.places["reduce"]),
        tuple(clauses.constraints),
        None
        if blocks_by is None
        else _blocks_by(cursor, blocks_by, blocks, schema, clauses.places["blocksby"]),
    )


def stream_options(cursor: Cursor) -> float:
    """`(keep '0.25')`: the options that can be changed while the stream runs.

    Raises `UserError` for anything else.
    """
    start = cursor.token.span
    places: dict[str, Span] = {}
    options = option_list(cursor, places)
    keep = taken(options, "keep")
    for name in options:
        raise cursor.error(
            f"a stream has no option '{name}' that can be changed",
            places[name.lower()],
            "It has keep: (keep '0.25'). For others CREATE OR REPLACE STREAM.",
        )
    if keep is None:
        raise cursor.error("no option is given", cursor.since(start), "Write (keep '0.25').")
    return sample_rate_option(cursor, keep, places["keep"])


def sample_rate_option(cursor: Cursor, text: str, at: Span) -> float:
    """A share above 0 and at most 1, as a decimal number."""
    if not _DECIMAL.fullmatch(text) or not 0 < float(text) <= 1:
        raise cursor.error(
            f"keep is a number above 0 and at most 1, not '{text}'",
            at,
            "It is the share of its rows that queries WITH SHEDDING are shown: '0.25' is every fourth, '1' all.",
        )
    return float(text)


def relation(cursor: Cursor) -> RelationDefinition:
    """Pass what follows CREATE RELATION.

    Raises `UserError` for an invalid definition.
    """
    name = cursor.name("the relation's name")
    schema = columns(cursor)
    using = _using(cursor)
    places: dict[str, Span] = {}
    options = option_list(cursor, places) if cursor.accept("OPTIONS") else {}
    if cursor.at_any(
        "TIMESTAMP", "SLACK", "PUNCTUATED", "IDLE", "PROGRESS", "HEARTBEAT", "DEDUPLICATE", "CONSTRAINT"
    ):
        raise cursor.error(
            f"a relation has no {cursor.token.upper}",
            cursor.token.span,
            "CREATE STREAM for rows with an event time.",
        )
    _check_path(cursor, using, options)
    _by_whose_clocks(cursor, using, options, places)
    return RelationDefinition(name, schema, using, options)


def columns(cursor: Cursor) -> Schema:
    """Pass columns and their types in parentheses.

    Raises `UserError` when two have one name.
    """
    cursor.expect_sign("(", " and the columns with their types")
    fields: dict[str, Field] = {}
    while True:
        token = cursor.token
        name = cursor.name("a column's name")
        if name.lower() in fields:
            raise cursor.error(
                f"the column '{name}' appears twice", token.span, "Names are compared without case."
            )
        if (refusal := reserved(name)) is not None:
            raise cursor.error(refusal, token.span, "Give it another name.")
        if token.upper == "WATERMARK" and cursor.at_any("FOR"):
            raise cursor.error(
                "WATERMARK FOR is no column",
                cursor.since(token.span).to(cursor.token.span),
                "Write TIMESTAMP BY at SLACK INTERVAL 5 SECONDS after the format.",
            )
        fields[name.lower()] = Field(name, column_type(cursor))
        if cursor.at_word("NOT", "NULL") or cursor.at_any("DEFAULT", "PRIMARY", "COMMENT"):
            raise cursor.unsupported(
                f"{cursor.token.upper} is not available for columns",
                cursor.token.span,
                "Leave it out: a column is a name and a type.",
            )
        if not cursor.accept_sign(","):
            break
    cursor.expect_sign(")", " or ',' after a column")
    return Schema(tuple(fields.values()))


def reserved(column: str) -> str | None:
    """Why a column cannot bear a name; None for any other name."""
    if not column.startswith(OURS):
        return None
    return f"a column cannot be called '{column}': names that begin with {OURS} are reserved"


def _using(cursor: Cursor) -> str:
    if not cursor.accept("USING"):
        remedy = "Write USING csv OPTIONS (path 'data')." if cursor.at_any("WITH") else None
        raise cursor.expected("USING and a format such as csv or push", remedy)
    return cursor.name("a format such as csv, json, parquet, arrow, rate, push or kafka").lower()


def _clauses(cursor: Cursor, schema: Schema) -> _Clauses:
    clauses = _Clauses()
    while True:
        start = cursor.token.span
        if cursor.accept("OPTIONS"):
            once(cursor, clauses.options is None, "OPTIONS", start)
            clauses.options = option_list(cursor, clauses.places)
        elif cursor.accept("TIMESTAMP"):
            once(cursor, clauses.time is None, "TIMESTAMP BY", start)
            cursor.expect("BY", purpose=" after TIMESTAMP")
            clauses.time = event_time(cursor, schema)
        elif cursor.accept("CONSTRAINT"):
            clauses.constraints.append(constraint(cursor, schema, clauses.constraints))
        elif progress_clause(cursor, schema, clauses.progress):
            continue
        elif cursor.accept("SLACK"):
            once(cursor, clauses.slack is None and clauses.progress.declared.behind is None, "SLACK", start)
            clauses.slack = length_after(cursor, "SLACK", smallest=0)
        elif cursor.accept("PUNCTUATED"):
            cursor.expect("BY", purpose=" or EXTERNALLY after PUNCTUATED")
            condition = expression(cursor)
            bind_condition(condition, schema, cursor.text, "PUNCTUATED BY")
            if clauses.progress.accept_groups(cursor, schema, condition, start):
                continue
            once(cursor, clauses.punctuated is None, "PUNCTUATED BY", start)
            clauses.punctuated = condition
        elif cursor.accept("IDLE"):
            once(cursor, clauses.idle_timeout is None, "IDLE TIMEOUT", start)
            cursor.expect("TIMEOUT", purpose=" after IDLE")
            clauses.idle_timeout = length_after(cursor, "IDLE TIMEOUT")
        else:
            return clauses


def _by_whose_clocks(cursor: Cursor, using: str, options: dict[str, str], places: Mapping[str, Span]) -> None:
    """Set the time zone of a source's times without one: that of the option, else that of the session."""
    if using not in _TEXTS:
        return
    zone = next((value for name, value in options.items() if name.lower() == "timezone"), None)
    if zone is not None:
        checked_zone(cursor, zone, places["timezone"])
    elif cursor.zone != "UTC":
        options["timeZone"] = cursor.zone


def _archive(cursor: Cursor, text: str, at: Span) -> Choice["copy", "in place", "none"]:
    if text.lower() not in _ARCHIVES:
        raise cursor.error(f"there is no archive '{text}'", at, "An archive is 'copy', 'in place' or 'none'.")
    return _ARCHIVES[text.lower()]


def _blocks(cursor: Cursor, text: str, archive: str | None, at: Span) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_BLOCKS:
        raise cursor.error(f"blocks must be a number from 1 to {_MOST_BLOCKS}, not '{text}'", at)
    if archive is not None and archive.lower() != "copy":
        raise cursor.error(
            f"an archive '{archive.lower()}' has no blocks", at, "Blocks are parts of copies: archive 'copy'."
        )
    return int(text)


def _blocks_by(cursor: Cursor, text: str, blocks: str | None, schema: Schema, at: Span) -> str:
    """The column whose values are drawn, each with all of its rows."""
    field = next((field for field in schema if field.name.lower() == text.strip().lower()), None)
    if field is None:
        raise cursor.error(f"blocksBy names no column: '{text}'", at, did_you_mean(text, schema.names))
    if not (field.type.is_integer or field.type.name in ("STRING", "DATE", "BOOLEAN")):
        raise cursor.error(
            f"blocksBy takes a column of whole numbers, strings, dates or booleans; '{field.name}' is {field.type}",
            at,
            "Their equality is exact, so that all rows of a key are found.",
        )
    if blocks is None or blocks == "1":
        raise cursor.error("only an archive with blocks has random parts", at, "Add the option blocks '16'.")
    return field.name


def _reduction(cursor: Cursor, text: str, blocks: str | None, schema: Schema, at: Span) -> Reduction:
    """What is kept of the archive."""
    parsed = reduction(cursor, text, at)
    if blocks is None or blocks == "1":
        raise cursor.error("only an archive with blocks can be reduced", at, "Add the option blocks '16'.")
    try:
        return with_columns(parsed, schema)
    except UserError as error:
        raise cursor.error(error.message, at, error.remedy) from None


def _check_path(cursor: Cursor, using: str, options: dict[str, str]) -> None:
    if using in FILES and "path" not in (key.lower() for key in options):
        raise cursor.error(
            f"USING {using} needs to know where its files are",
            cursor.before.span,
            f"Write USING {using} OPTIONS (path 'data/…').",
        )


def _check_order(cursor: Cursor, using: str, options: dict[str, str], places: dict[str, Span]) -> None:
    order = next((value for key, value in options.items() if key.lower() == "order"), "name")
    if using in FILES and order.lower() != "name":
        raise cursor.error(
            f"files cannot be read in the order '{order}'",
            places["order"],
            "order 'name' reads them by name; without it they are read by modification time, then name.",
        )
