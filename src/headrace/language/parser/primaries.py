"""The parser of an expression's operands: names, literals, function calls, CASE, CAST, parentheses, SELECTs as
operands; and the list of reserved words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Final

from headrace.algebra.expressions.aggregates import APPROXIMATE, BELONGS, BY_ORDER, canonical
from headrace.errors import Span, UserError
from headrace.language.parser.durations import interval_literal
from headrace.language.parser.literals import date_of, instant_of, shown_instant, shown_interval
from headrace.language.parser.subqueries import at_subselect, subselect
from headrace.language.parser.type_names import TYPES, column_type
from headrace.language.syntax.ast import (
    CaseWhen,
    CastTo,
    Constant,
    Exists,
    Expr,
    Extract,
    FunctionCall,
    InSelect,
    Name,
    ScalarSelect,
)
from headrace.language.syntax.cursor import Cursor
from headrace.schema import BINARY, BOOLEAN, DATE, INTERVAL, STRING, TIMESTAMP, TIMESTAMP_NTZ, VOID

_RESERVED_LIST: Final = """
SELECT FROM WHERE GROUP HAVING ORDER LIMIT AND OR NOT CASE WHEN THEN ELSE END IN IS LIKE BETWEEN AS
ON JOIN USING UNION EXCEPT INTERSECT DISTINCT BY INNER OUTER CROSS FULL SET WITH BEGIN EMIT
"""
RESERVED: Final = frozenset(_RESERVED_LIST.split())
"""Words that begin or continue a clause: as names they need backticks, except after a dot."""

_NEVER_COLUMNS: Final = frozenset(
    {"SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "AS", "WHEN", "THEN", "ELSE", "ON"}
)

Whole = Callable[[Cursor], Expr]
"""The parser of a whole expression; an argument, because expressions and operands contain each other."""


def primary(cursor: Cursor, parse: Whole) -> Expr:
    """Pass an operand.

    Raises `UserError` for anything else.
    """
    token = cursor.token
    if token.kind == "string":
        return string(cursor)
    if cursor.at_sign("("):
        return _parenthesised(cursor, parse)
    if (
        token.kind == "name"
        and cursor.ahead().kind == "string"
        and (typed := _typed_literal(cursor)) is not None
    ):
        return typed
    if token.upper in _CONSTANTS:
        cursor.advance()
        value, kind = _CONSTANTS[token.upper]
        return Constant(value, kind, "NULL" if value is None else token.text.lower(), token.span)
    if token.upper == "INTERVAL" and cursor.ahead().kind in ("number", "sign") and cursor.ahead().text != ".":
        return _interval(cursor)
    if token.upper == "CASE":
        return _case(cursor, parse)
    if token.kind in ("name", "quoted") and cursor.ahead().text == "(" and cursor.ahead().kind == "sign":
        return _call(cursor, parse)
    return column(cursor)


_CONSTANTS: Final = {"NULL": (None, VOID), "TRUE": (True, BOOLEAN), "FALSE": (False, BOOLEAN)}


def string(cursor: Cursor) -> Constant:
    """Pass one string; adjacent strings are joined."""
    start, text = cursor.token.span, ""
    while cursor.token.kind == "string":
        text += cursor.advance().text
    return Constant(text, STRING, text, cursor.since(start))


def column(cursor: Cursor) -> Name:
    """Pass the name of a column, with or without qualifier."""
    token = cursor.token
    if token.kind not in ("name", "quoted") or token.upper in RESERVED:
        likely = token.upper in RESERVED - _NEVER_COLUMNS
        raise cursor.expected(
            "an expression", f"A column of that name is written `{token.text}`." if likely else None
        )
    parts = [cursor.advance().text]
    while cursor.accept_sign("."):
        parts.append(cursor.name("a column's name after the dot"))
    return Name(tuple(parts), cursor.since(token.span))


def _parenthesised(cursor: Cursor, parse: Whole) -> Expr:
    start = cursor.advance().span
    if cursor.at_any("SELECT", "WITH"):
        return ScalarSelect(subselect(cursor), cursor.since(start))
    inside = parse(cursor)
    if cursor.at_sign(","):
        return _row(cursor, parse, start, inside)
    cursor.expect_sign(")")
    return inside


def _row(cursor: Cursor, parse: Whole, start: Span, first: Expr) -> InSelect:
    """`(a, b) IN (SELECT …)`, after its first value: the only list of values in parentheses."""
    values, span = [first], cursor.since(start)
    while cursor.accept_sign(","):
        values.append(parse(cursor))
    closed = cursor.accept_sign(")")
    negated = closed and cursor.accept("NOT")
    if not (closed and cursor.accept("IN") and cursor.accept_sign("(") and at_subselect(cursor)):
        raise cursor.unsupported(
            "rows of several values in parentheses are allowed only before IN (SELECT …)",
            span,
            "Compare the values one by one: a = 1 AND b = 2.",
        )
    return InSelect(tuple(values), subselect(cursor), negated, cursor.since(start))


def _typed_literal(cursor: Cursor) -> Constant | None:
    """`DATE '…'`, `TIMESTAMP '…'`, `INTERVAL '…'`, `X'…'`; None when the word is none of these."""
    token, text = cursor.token, cursor.ahead()
    span = token.span.to(text.span)
    try:
        match token.upper:
            case "DATE":
                day = date_of(text.text)
                constant = Constant(day, DATE, f"DATE '{day.isoformat()}'", span)
            case "TIMESTAMP" | "TIMESTAMP_LTZ":
                at = instant_of(text.text, zone=cursor.zone)
                constant = Constant(at, TIMESTAMP, f"TIMESTAMP '{shown_instant(at, cursor.zone)}'", span)
            case "TIMESTAMP_NTZ":
                at = instant_of(text.text, zoned=False)
                constant = Constant(at, TIMESTAMP_NTZ, f"TIMESTAMP_NTZ '{shown_instant(at)}'", span)
            case "INTERVAL":
                return _interval(cursor)
            case "X" if token.span.end == text.span.start:
                value = _hexadecimal(text.text)
                constant = Constant(value, BINARY, f"X'{value.hex().upper()}'", span)
            case _:
                return None
    except UserError as error:
        raise cursor.error(error.message, text.span, error.remedy) from None
    cursor.advance()
    cursor.advance()
    return constant


def _hexadecimal(text: str) -> bytes:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
    except ValueError:
        raise UserError(f"'{text[:30]}' is not hexadecimal", remedy="Write for example X'1F2A'.") from None


def _interval(cursor: Cursor) -> Constant:
    start = cursor.token.span
    length, fields = interval_literal(cursor)
    return Constant(length, INTERVAL, shown_interval(length, fields), cursor.since(start))


def _case(cursor: Cursor, parse: Whole) -> CaseWhen:
    start = cursor.advance().span
    operand = None if cursor.at_any("WHEN") else parse(cursor)
    branches = []
    while cursor.accept("WHEN"):
        condition = parse(cursor)
        cursor.expect("THEN", purpose=" after the condition of WHEN")
        branches.append((condition, parse(cursor)))
    if not branches:
        raise cursor.expected("WHEN in CASE")
    otherwise = parse(cursor) if cursor.accept("ELSE") else None
    cursor.expect("END", purpose=" of CASE")
    return CaseWhen(operand, tuple(branches), otherwise, cursor.since(start))


def _call(cursor: Cursor, parse: Whole) -> Expr:
    name = cursor.token
    if name.upper in ("CAST", "TRY_CAST"):
        return _cast(cursor, parse)
    if name.upper == "EXISTS" and cursor.ahead(2).upper in ("SELECT", "WITH"):
        cursor.advance()
        cursor.advance()
        return Exists(subselect(cursor), cursor.since(name.span))
    if name.upper in RESERVED and name.upper != "LIKE":
        raise cursor.expected("an expression")
    if name.upper in _SPECIAL:
        cursor.advance()
        cursor.advance()
        return _SPECIAL[name.upper](cursor, parse, name.span)
    cursor.advance()
    cursor.advance()
    if cursor.accept_sign("*"):
        cursor.expect_sign(")")
        return _with_condition(cursor, parse, FunctionCall(name.text, (), cursor.since(name.span), star=True))
    distinct = cursor.accept("DISTINCT")
    if not distinct and _at_all_of(cursor):
        cursor.advance()
    arguments = _arguments(cursor, parse)
    if name.upper in _CONVERSIONS and len(arguments) == 1 and not distinct:
        return CastTo(arguments[0], TYPES[name.upper], False, cursor.since(name.span))
    call = FunctionCall(name.text, arguments, cursor.since(name.span), distinct=distinct)
    if name.upper in WINDOWS and cursor.accept_sign("."):
        field = cursor.name("start or end after the dot").lower()
        return replace(call, field=field, span=cursor.since(name.span))
    return _with_condition(cursor, parse, call)


WINDOWS: Final = ("WINDOW", "SESSION_WINDOW")
"""Functions that are windows in GROUP BY, with a start and an end."""

_CONVERSIONS: Final = frozenset(
    {
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL",
        "STRING",
        "BINARY",
        "DATE",
        "TIMESTAMP",
    }
)
"""`int(x)` is `CAST(x AS INT)`."""


def _at_all_of(cursor: Cursor) -> bool:
    """At the ALL of `SUM(ALL x)`, which changes nothing, and not at a column of that name."""
    following = cursor.ahead()
    begins = following.kind in ("name", "quoted", "number") and following.upper not in RESERVED - {"CASE"}
    return cursor.at_any("ALL") and begins


def _arguments(cursor: Cursor, parse: Whole) -> tuple[Expr, ...]:
    """Arguments up to and with the closing parenthesis; the opening one has been passed."""
    if cursor.accept_sign(")"):
        return ()
    arguments = [parse(cursor)]
    while cursor.accept_sign(","):
        arguments.append(parse(cursor))
    cursor.expect_sign(")", " or ','")
    return tuple(arguments)


def _with_condition(cursor: Cursor, parse: Whole, call: FunctionCall) -> FunctionCall:
    condition = None
    if cursor.at_word("FILTER") and cursor.ahead().text == "(":
        cursor.advance()
        cursor.advance()
        cursor.expect("WHERE", purpose=" in FILTER (WHERE …)")
        condition = parse(cursor)
        cursor.expect_sign(")")
    ignores_nulls = _nulls(cursor, call.name)
    may_be = (
        canonical(call.name) in (*APPROXIMATE, "l2_norm")
        or condition is not None
        or call.name.lower() == "count_if"
    )
    within = None
    if cursor.at_word("WITHIN") and cursor.ahead().kind == "number" and (may_be or not _is_last(cursor)):
        within = _within(cursor)
    if cursor.at_word("BUCKETS") and cursor.ahead().kind == "number":
        within = _buckets(cursor)
    if within is not None and not may_be:
        raise cursor.error(
            f"{call.name.upper()} is exact: {BELONGS}",
            cursor.since(call.span),
            "Leave it out.",
        )
    if cursor.at_word("OVER"):
        raise cursor.unsupported(
            "functions OVER a window are not available",
            cursor.token.span,
            "Put a window after the stream's name: FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE].",
        )
    span = cursor.since(call.span)
    return replace(call, span=span, condition=condition, within=within, ignores_nulls=ignores_nulls)


def _nulls(cursor: Cursor, name: str) -> bool | None:
    """`IGNORE NULLS` or `RESPECT NULLS` after a call; None without."""
    if not (cursor.at_any("IGNORE", "RESPECT") and cursor.ahead().upper == "NULLS"):
        return None
    word = cursor.advance()
    cursor.advance()
    if canonical(name) not in BY_ORDER:
        raise cursor.error(
            f"{name.upper()} does not take {word.upper} NULLS",
            cursor.since(word.span),
            "It belongs to FIRST, LAST and ANY_VALUE.",
        )
    return word.upper == "IGNORE"


def _is_last(cursor: Cursor) -> bool:
    """Whether `WITHIN p PERCENT` ends a statement: it is the question's then, and not of the call before it."""
    after = cursor.ahead(3)
    return after.kind == "end" or after.text == ";" or after.upper == "IN"


_MOST_BUCKETS: Final = 1_000_000


def _buckets(cursor: Cursor) -> Fraction:
    """`BUCKETS n`: n parts of equal weight; at most one is cut, and it counts half."""
    start = cursor.advance().span
    written = cursor.advance().text
    if not written.isdigit() or not 0 < int(written) <= _MOST_BUCKETS:
        raise cursor.error(
            f"BUCKETS takes a whole number from 1 to {_MOST_BUCKETS:,}, not '{written}'",
            cursor.since(start),
            "Write for example BUCKETS 10.",
        )
    return Fraction(1, 2 * int(written))


def _within(cursor: Cursor) -> Fraction:
    """`WITHIN p PERCENT`, as a fraction."""
    start = cursor.advance().span
    written = cursor.advance().text
    cursor.expect("PERCENT", purpose=" after WITHIN and a number")
    try:
        part = Fraction(written) / 100
    except ValueError:
        raise cursor.error(f"'{written}' is not a number of percent", cursor.since(start)) from None
    if not 0 < part <= 1:
        raise cursor.error(
            "an error is above 0 and at most 100 percent",
            cursor.since(start),
            "Write for example WITHIN 1 PERCENT.",
        )
    return part


def _cast(cursor: Cursor, parse: Whole) -> CastTo:
    name = cursor.advance()
    cursor.advance()
    operand = parse(cursor)
    cursor.expect("AS", purpose=" and the type of CAST")
    kind = column_type(cursor)
    cursor.expect_sign(")")
    return CastTo(operand, kind, name.upper == "TRY_CAST", cursor.since(name.span))


def _extract(cursor: Cursor, parse: Whole, start: Span) -> Expr:
    field = cursor.name("a field such as HOUR") if cursor.token.kind != "string" else cursor.advance().text
    cursor.expect("FROM", purpose=" and the timestamp of EXTRACT")
    operand = parse(cursor)
    cursor.expect_sign(")")
    return Extract(field, operand, cursor.since(start))


def _position(cursor: Cursor, parse: Whole, start: Span) -> Expr:
    """`POSITION('a' IN s)` is `locate('a', s)`; the needle is an operand, since IN would otherwise be a predicate."""
    arguments = [primary(cursor, parse)]
    if cursor.accept("IN"):
        name = "locate"
        arguments.append(parse(cursor))
    else:
        name = "position"
        cursor.expect_sign(",", " or IN")
        arguments.append(parse(cursor))
        if cursor.accept_sign(","):
            arguments.append(parse(cursor))
    cursor.expect_sign(")")
    return FunctionCall(name, tuple(arguments), cursor.since(start))


def _substring(cursor: Cursor, parse: Whole, start: Span) -> Expr:
    name = cursor.text[start.start : start.end]
    arguments = [parse(cursor)]
    while cursor.accept_sign(",") or cursor.accept("FROM") or cursor.accept("FOR"):
        arguments.append(parse(cursor))
    cursor.expect_sign(")")
    return FunctionCall(name, tuple(arguments), cursor.since(start))


_TRIMMED: Final = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def _trim(cursor: Cursor, parse: Whole, start: Span) -> Expr:
    """`TRIM([BOTH | LEADING | TRAILING] [characters] FROM text)`, or a call with the text as its last argument."""
    following = cursor.ahead()
    sided = cursor.at_any(*_TRIMMED) and (following.kind != "sign" or following.text == "(")
    name = _TRIMMED[cursor.advance().upper] if sided else "trim"
    arguments = [] if cursor.at_any("FROM") else [parse(cursor)]
    if sided or cursor.at_any("FROM"):
        cursor.expect("FROM", purpose=" and the text of TRIM")
        arguments.append(parse(cursor))
    else:
        while cursor.accept_sign(","):
            arguments.append(parse(cursor))
    cursor.expect_sign(")")
    return FunctionCall(name, tuple(arguments), cursor.since(start))


_SPECIAL: Final[dict[str, Callable[[Cursor, Whole, Span], Expr]]] = {
    "EXTRACT": _extract,
    "POSITION": _position,
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "TRIM": _trim,
}
