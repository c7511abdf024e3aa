"""How are SELECTs read that stand beside each other: `A UNION ALL B`, `A EXCEPT B`, `A INTERSECT B`?

As in Spark: INTERSECT binds before the others, which go from left to right; ORDER BY and LIMIT at the end are of the whole. What
comes out is a SELECT of everything, from a source that is several SELECTs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from headrace.errors import Span
from headrace.language.parser.durations import duration
from headrace.language.parser.select import core, limit, order_by
from headrace.language.parser.subqueries import EMITS, at_emitted, at_select
from headrace.language.syntax.ast import AllColumns, RevisionsClause, Select, SetOperator, Sets, Source
from headrace.language.syntax.cursor import Cursor

TOGETHER: Final = "together"
"""What the rows of several SELECTs are called; nobody needs to write it."""
_OPERATORS: Final = ("UNION", "EXCEPT", "MINUS", "INTERSECT")


def select(cursor: Cursor) -> Select:
    """Pass a SELECT, `ISTREAM(SELECT …)` or several with set operators, and what may follow: EMIT EMPTY, WITH REVISIONS, WITH SHEDDING.

    Raises `UserError` for mistakes and `UnsupportedQuery` for forms that are not available.
    """
    cursor.read_select = select
    start, enclosed = cursor.token.span, cursor.at_sign("(") or at_emitted(cursor)
    first = _intersected(cursor)
    found = _united(cursor, first)
    if not (enclosed and found is first and found.span.start == start.start):
        found = _ordered(cursor, found)
    elif cursor.at_any("ORDER", "LIMIT"):
        if not _is_open(found):
            raise cursor.error(
                f"{cursor.token.upper} follows the parentheses of its SELECT",
                cursor.token.span,
                "Write it before the closing parenthesis, or SELECT … FROM (SELECT …) ORDER BY ….",
            )
        found = _ordered(cursor, found)
    return _trailers(cursor, found, start)


def _ordered(cursor: Cursor, found: Select) -> Select:
    if cursor.accept("ORDER"):
        found = replace(found, order_by=order_by(cursor))
    return replace(found, **limit(cursor))


def _is_open(found: Select) -> bool:
    """Whether ORDER BY and LIMIT behind the parentheses around a SELECT mean the same as inside."""
    ordered = found.order_by or found.limit is not None
    trailer = found.emit_empty or found.revisions or found.shedding
    return not (ordered or trailer or found.emit)


def _united(cursor: Cursor, found: Select) -> Select:
    while cursor.at_any("UNION", "EXCEPT", "MINUS"):
        found = _with_next(cursor, found, _intersected)
    return found


def _intersected(cursor: Cursor) -> Select:
    found = _single(cursor)
    while cursor.at_any("INTERSECT"):
        found = _with_next(cursor, found, _single)
    return found


def _with_next(cursor: Cursor, left: Select, following: Callable[[Cursor], Select]) -> Select:
    """The operator at the cursor and what follows it, with what is left of it."""
    start = cursor.token.span
    word = cursor.advance().upper
    everything = cursor.accept("ALL")
    if not everything:
        cursor.accept("DISTINCT")
    operator: SetOperator = "EXCEPT" if word in ("EXCEPT", "MINUS") else "INTERSECT"
    if word == "UNION":
        operator = "UNION ALL" if everything else "UNION"
    elif everything:
        raise cursor.unsupported(
            f"{word} ALL is not available: it would count how often a row is on either side",
            cursor.since(start),
            f"Write {word}, which asks whether a row is there; or count: SELECT k, COUNT(*) AS n … GROUP BY k.",
        )
    if not at_select(cursor):
        named = cursor.token.kind in ("name", "quoted")
        remedy = "What has a name is read by SELECT * FROM name." if named else None
        raise cursor.wanted(f"SELECT after {operator if word != 'MINUS' else word}", remedy)
    operands = [left, following(cursor)]
    sets = left.source.sets
    if sets is not None and not _is_enclosed(left, sets) and _is_flattened(sets.operator, operator):
        operands[:1] = sets.operands
        start = sets.span
    found = _together(Sets(operator, tuple(operands), start), left.span.to(cursor.before.span))
    cursor.check_selects(_depth(found), start)
    return found


def _is_enclosed(found: Select, sets: Sets) -> bool:
    """Whether parentheses stand around several SELECTs, which are then read as one."""
    return found.span.start < sets.operands[0].span.start


def _is_flattened(before: SetOperator, operator: SetOperator) -> bool:
    """Whether one operator over all that stand in a row means the same: UNION is of rows however often they are there."""
    return before == operator or (before == "UNION ALL" and operator == "UNION")


def _together(sets: Sets, span: Span) -> Select:
    items = sets.operands[0].items
    listed = AllColumns(None, items[0].span.to(items[-1].span))
    source = Source(TOGETHER, None, None, "rows", span, sets=sets)
    return Select((listed,), source, span, distinct=sets.operator == "UNION")


def _depth(found: Select) -> int:
    sets = found.source.sets
    return 0 if sets is None else 1 + max(_depth(each) for each in sets.operands)


def _single(cursor: Cursor) -> Select:
    """One SELECT, `ISTREAM(SELECT …)`, or what stands in parentheses."""
    start = cursor.token.span
    if cursor.at_sign("(") and at_select(cursor):
        cursor.advance()
        with cursor.inside_select(start):
            found = select(cursor)
        cursor.expect_sign(")", " of the SELECT")
        return replace(found, span=cursor.since(start))
    if not at_emitted(cursor):
        return core(cursor)
    emit = EMITS[cursor.advance().upper]
    cursor.expect_sign("(")
    with cursor.inside_select(start) if at_emitted(cursor) else nullcontext():
        inner = select(cursor)
    if inner.emit is not None:
        raise cursor.error(
            "a query has one relation-to-stream operator",
            start,
            "Leave one of ISTREAM, DSTREAM, RSTREAM out.",
        )
    cursor.expect_sign(")")
    return replace(inner, emit=emit, span=cursor.since(start))


def _trailers(cursor: Cursor, found: Select, start: Span) -> Select:
    while True:
        at = cursor.token.span
        if cursor.at_any("EMIT", "WITH") and found.source.sets is not None:
            raise cursor.error(
                f"{cursor.token.upper} belongs to one SELECT, and here follows several",
                at,
                "Put it into the parentheses of its SELECT: (SELECT … EMIT EMPTY) UNION ALL SELECT ….",
            )
        if cursor.accept("EMIT"):
            cursor.expect("EMPTY", purpose=" after EMIT")
            found = replace(found, emit_empty=cursor.since(at))
        elif cursor.accept("WITH"):
            found = _with(cursor, found, at)
        elif cursor.at_any(*_OPERATORS):
            raise cursor.error(
                f"{cursor.token.upper} follows ORDER BY, LIMIT, EMIT EMPTY or WITH, which end everything before them",
                at,
                "Put a SELECT that has its own in parentheses: (SELECT … LIMIT 3) UNION ALL SELECT ….",
            )
        else:
            return replace(found, span=cursor.since(start))


def _with(cursor: Cursor, found: Select, at: Span) -> Select:
    """What follows WITH after a SELECT."""
    if cursor.accept("SHEDDING"):
        return replace(found, shedding=cursor.since(at))
    if not cursor.accept("REVISIONS"):
        raise cursor.wanted("REVISIONS or SHEDDING after WITH")
    within = duration(cursor, "how late a row may be") if cursor.accept("FOR") else None
    return replace(found, revisions=RevisionsClause(within, cursor.since(at)))


def parse_select(text: str, zone: str = "UTC") -> Select:
    """The one SELECT of a text; a `;` may end it. Its times are those of a zone's clocks where they do not say.

    Raises `UserError` for anything else.
    """
    cursor = Cursor(text, zone=zone)
    if not at_select(cursor):
        raise cursor.wanted("SELECT")
    found = select(cursor)
    cursor.accept_sign(";")
    if not cursor.at_end:
        raise cursor.wanted("the end of the SELECT")
    return found
