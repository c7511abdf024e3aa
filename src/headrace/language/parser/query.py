"""The parser of a whole query: one SELECT or several with UNION, EXCEPT or INTERSECT, in parentheses or ISTREAM(…);
ORDER BY and LIMIT, and EMIT EMPTY, WITH REVISIONS, WITH SHEDDING and WITH QOS at its end.

As in Spark: INTERSECT binds before the others, which associate to the left; ORDER BY and LIMIT at the end apply to all.
The result is a SELECT of everything, from a source of several SELECTs.
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
from headrace.language.parser.trailers.quality_clause import quality_clause
from headrace.language.parser.trailers.shedding_clause import shedding_clause
from headrace.language.syntax.ast import AllColumns, RevisionsClause, Select, SetOperator, Sets, Source
from headrace.language.syntax.cursor import Cursor

TOGETHER: Final = "together"
"""The alias of the rows of several SELECTs; queries need not write it."""
_EMITS_OF_OTHERS: Final = {
    "CHANGES": "Leave EMIT CHANGES out: a query over a relation emits its changes, and each window what it holds at its end.",
    "FINAL": "Leave EMIT FINAL out: a window emits when it ends.",
}
"""Words that follow EMIT in other dialects, and what is written here."""
_OPERATORS: Final = ("UNION", "EXCEPT", "MINUS", "INTERSECT")


def select(cursor: Cursor) -> Select:
    """Pass a SELECT, `ISTREAM(SELECT …)` or several with set operators, and what may follow: EMIT EMPTY, WITH REVISIONS, WITH SHEDDING, WITH QOS.

    Raises `UserError` for mistakes and `UnsupportedQuery` for forms that are not available.
    """
    cursor.read_select = select
    start, enclosed = cursor.token.span, cursor.at_sign("(") or at_emitted(cursor)
    first = _intersected(cursor)
    query = _united(cursor, first)
    if not (enclosed and query is first and query.span.start == start.start):
        query = _ordered(cursor, query)
    elif cursor.at_any("ORDER", "LIMIT"):
        if not _is_open(query):
            raise cursor.error(
                f"{cursor.token.upper} follows the parentheses of its SELECT",
                cursor.token.span,
                "Write it before the closing parenthesis, or SELECT … FROM (SELECT …) ORDER BY ….",
            )
        query = _ordered(cursor, query)
    return _trailers(cursor, query, start)


def _ordered(cursor: Cursor, query: Select) -> Select:
    if cursor.accept("ORDER"):
        query = replace(query, order_by=order_by(cursor))
    return replace(query, **limit(cursor))


def _is_open(query: Select) -> bool:
    """Whether ORDER BY and LIMIT after the parentheses around a SELECT mean the same as inside."""
    ordered = query.order_by or query.limit is not None
    trailer = query.emit_empty or query.revisions or query.shedding or query.quality
    return not (ordered or trailer or query.emit)


def _united(cursor: Cursor, query: Select) -> Select:
    while cursor.at_any("UNION", "EXCEPT", "MINUS"):
        query = _with_next(cursor, query, _intersected)
    return query


def _intersected(cursor: Cursor) -> Select:
    query = _single(cursor)
    while cursor.at_any("INTERSECT"):
        query = _with_next(cursor, query, _single)
    return query


def _with_next(cursor: Cursor, left: Select, following: Callable[[Cursor], Select]) -> Select:
    """`left` combined with the operator at the cursor and its right side."""
    start = cursor.token.span
    word = cursor.advance().upper
    everything = cursor.accept("ALL")
    if not everything:
        cursor.accept("DISTINCT")
    operator = _operator(word, everything=everything)
    if not at_select(cursor):
        named = cursor.token.kind in ("name", "quoted")
        remedy = "What has a name is read by SELECT * FROM name." if named else None
        raise cursor.expected(f"SELECT after {operator if word != 'MINUS' else word}", remedy)
    operands = [left, following(cursor)]
    sets = left.source.sets
    if sets is not None and not _is_enclosed(left, sets) and _is_flattened(sets.operator, operator):
        operands[:1] = sets.operands
        start = sets.span
    query = _together(Sets(operator, tuple(operands), start), left.span.to(cursor.before.span))
    cursor.check_selects(_depth(query), start)
    return query


def _operator(word: str, *, everything: bool) -> SetOperator:
    if word == "UNION":
        return "UNION ALL" if everything else "UNION"
    if word == "INTERSECT":
        return "INTERSECT ALL" if everything else "INTERSECT"
    return "EXCEPT ALL" if everything else "EXCEPT"


def _is_enclosed(query: Select, sets: Sets) -> bool:
    """Whether several SELECTs are in parentheses, and are read as one source."""
    return query.span.start < sets.operands[0].span.start


def _is_flattened(before: SetOperator, operator: SetOperator) -> bool:
    """Whether a row of operators means the same as one over all: UNION is of rows however often they occur."""
    return before == operator or (before == "UNION ALL" and operator == "UNION")


def _together(sets: Sets, span: Span) -> Select:
    items = sets.operands[0].items
    listed = AllColumns(None, items[0].span.to(items[-1].span))
    source = Source(TOGETHER, None, None, "rows", span, sets=sets)
    return Select((listed,), source, span, distinct=sets.operator == "UNION")


def _depth(query: Select) -> int:
    sets = query.source.sets
    return 0 if sets is None else 1 + max(_depth(operand) for operand in sets.operands)


def _single(cursor: Cursor) -> Select:
    """One SELECT, `ISTREAM(SELECT …)`, or a SELECT in parentheses."""
    start = cursor.token.span
    if cursor.at_sign("(") and at_select(cursor):
        cursor.advance()
        with cursor.inside_select(start):
            query = select(cursor)
        cursor.expect_sign(")", " of the SELECT")
        return replace(query, span=cursor.since(start))
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


def _trailers(cursor: Cursor, query: Select, start: Span) -> Select:
    while True:
        at = cursor.token.span
        if cursor.at_any("EMIT", "WITH") and query.source.sets is not None:
            raise cursor.error(
                f"{cursor.token.upper} belongs to one SELECT, and here follows several",
                at,
                "Put it into the parentheses of its SELECT: (SELECT … EMIT EMPTY) UNION ALL SELECT ….",
            )
        if cursor.accept("EMIT"):
            if not cursor.accept("EMPTY"):
                raise cursor.expected("EMPTY after EMIT", _EMITS_OF_OTHERS.get(cursor.token.upper))
            query = replace(query, emit_empty=cursor.since(at))
        elif cursor.accept("WITH"):
            query = _with(cursor, query, at)
        elif cursor.at_any(*_OPERATORS):
            raise cursor.error(
                f"{cursor.token.upper} follows ORDER BY, LIMIT, EMIT EMPTY or WITH, which end everything before them",
                at,
                "Put a SELECT that has its own in parentheses: (SELECT … LIMIT 3) UNION ALL SELECT ….",
            )
        else:
            return replace(query, span=cursor.since(start))


def _with(cursor: Cursor, query: Select, at: Span) -> Select:
    """Pass the clause after WITH behind a SELECT."""
    if cursor.accept("SHEDDING"):
        return replace(query, shedding=shedding_clause(cursor, at))
    if cursor.accept("QOS"):
        return replace(query, quality=quality_clause(cursor, at))
    if not cursor.accept("REVISIONS"):
        raise cursor.expected("REVISIONS, SHEDDING or QOS after WITH")
    within = duration(cursor, "how late a row may be") if cursor.accept("FOR") else None
    return replace(query, revisions=RevisionsClause(within, cursor.since(at)))


def parse_select(text: str, zone: str = "UTC") -> Select:
    """The one SELECT of a text; a `;` may end it. `zone` is that of times without one.

    Raises `UserError` for anything else.
    """
    cursor = Cursor(text, zone=zone)
    if not at_select(cursor):
        raise cursor.expected("SELECT")
    query = select(cursor)
    cursor.accept_sign(";")
    if not cursor.at_end:
        raise cursor.expected("the end of the SELECT")
    return query
