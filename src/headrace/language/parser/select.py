"""The parser of one SELECT, from its select list and FROM to HAVING, and of the clauses ORDER BY and LIMIT."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from typing import Literal as Choice

from headrace.algebra.query import Ago
from headrace.errors import Span
from headrace.language.parser.durations import bound
from headrace.language.parser.expressions import expression
from headrace.language.parser.primaries import RESERVED, column
from headrace.language.parser.subqueries import EMITS, at_select
from headrace.language.parser.windows import bracket, grouped_window, is_window_call, table_function
from headrace.language.syntax.ast import (
    AllColumns,
    Expr,
    Item,
    JoinClause,
    OrderItem,
    Select,
    SessionWindow,
    Source,
    StartingWindow,
)
from headrace.language.syntax.cursor import Cursor
from headrace.time import Instant

_TABLE_FUNCTIONS: Final = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_OUTER: Final[dict[str, Choice["inner", "left", "right", "full"]]] = {
    "LEFT": "left",
    "RIGHT": "right",
    "FULL": "full",
}
_NO_ALIAS: Final = RESERVED | {
    "LATE",
    "REJECTS",
    "LEFT",
    "RIGHT",
    "NATURAL",
    "SEMI",
    "ANTI",
    "MINUS",
    "OFFSET",
    "LATERAL",
    "WITHIN",
}
_KIND_OF_JOIN: Final = "Write JOIN … ON. As the name of a source the word takes AS before it."
_JOINS_OF_OTHERS: Final = {
    "ASOF": "For the latest row of each key write SELECT RSTREAM(…) FROM a [NOW] AS x, b [PARTITION BY k ROWS 1] AS y WHERE x.k = y.k.",
    **dict.fromkeys(("ANY", "POSITIONAL", "TEMPORAL"), _KIND_OF_JOIN),
    **dict.fromkeys(("SEMI", "ANTI"), "Write EXISTS or NOT EXISTS in WHERE."),
}
"""Words that precede JOIN in other dialects, and what is written here: they are no names of sources there."""


def core(cursor: Cursor) -> Select:
    """Pass a SELECT up to its HAVING: ORDER BY and LIMIT follow the last SELECT of a set operator."""
    start = cursor.token.span
    if cursor.at_any("WITH"):
        raise cursor.unsupported(
            "WITH is not available yet", start, "Register the inner SELECT as a query and name it in FROM."
        )
    cursor.expect("SELECT")
    distinct = cursor.accept("DISTINCT")
    if not distinct:
        cursor.accept("ALL")
    emit, items = _select_list(cursor)
    cursor.expect("FROM", purpose=" and a stream")
    source, after, joins = _sources(cursor)
    if cursor.before.upper == "WINDOW" and cursor.at_any("TUMBLING", "HOPPING", "SESSION"):
        raise cursor.error(
            "WINDOW is no clause here",
            cursor.before.span,
            "A window follows its stream: FROM s [RANGE TUMBLING 1 MINUTE].",
        )
    clauses: dict[str, Any] = {"distinct": distinct, "emit": emit, "joins": joins}
    if cursor.accept("WHERE"):
        clauses["where"] = expression(cursor)
    clauses["beyond"] = _beyond(cursor, source, after if joins else None)
    bounds = cursor.token.span
    if cursor.accept("BEGIN"):
        clauses |= {"bounds": _bounds(cursor), "bounds_span": cursor.since(bounds)}
    if cursor.accept("GROUP"):
        clauses["group_by"], clauses["window"] = _group_by(cursor)
    having = cursor.token.span
    if cursor.accept("HAVING"):
        clauses |= {"having": expression(cursor), "having_span": having}
    return Select(items, source, cursor.since(start), **clauses)


def _beyond(cursor: Cursor, source: Source, joins: Span | None) -> Span | None:
    """The place of the first clause that a SELECT over one relation may not have; the cursor is after its WHERE."""
    if source.window is not None:
        return source.window.span
    if joins is not None:
        return joins
    return cursor.token.span if cursor.at_any("BEGIN", "GROUP", "HAVING", "ORDER", "LIMIT") else None


def limit(cursor: Cursor) -> dict[str, Any]:
    """Pass a LIMIT, if there is one."""
    start, clause = cursor.token.span, dict[str, Any]()
    if cursor.accept("LIMIT"):
        clause["limit"] = cursor.whole_number("a number of rows after LIMIT")
        clause["limit_span"] = cursor.since(start)
    if cursor.at_any("OFFSET"):
        raise cursor.unsupported("OFFSET is not available", cursor.token.span, "LIMIT keeps the first rows.")
    return clause


def _select_list(
    cursor: Cursor,
) -> tuple[Choice["istream", "dstream", "rstream"] | None, tuple[Item | AllColumns, ...]]:
    if cursor.at_any("TOP") and cursor.ahead().kind == "number":
        raise cursor.error(
            "TOP is not available",
            cursor.token.span,
            "ORDER BY … LIMIT keeps the first rows of each window, and is written at the end.",
        )
    emit = EMITS.get(cursor.token.upper)
    if emit is None or cursor.ahead().text != "(":
        return None, _items(cursor)
    cursor.advance()
    cursor.advance()
    items = _items(cursor)
    cursor.expect_sign(")")
    return emit, items


def _items(cursor: Cursor) -> tuple[Item | AllColumns, ...]:
    items = [_item(cursor)]
    while cursor.accept_sign(","):
        items.append(_item(cursor))
    return tuple(items)


def _item(cursor: Cursor) -> Item | AllColumns:
    start = cursor.token.span
    if cursor.accept_sign("*"):
        return AllColumns(None, start)
    if cursor.token.kind in ("name", "quoted") and cursor.ahead().text == "." and cursor.ahead(2).text == "*":
        qualifier = cursor.advance().text
        cursor.advance()
        cursor.advance()
        return AllColumns(qualifier, cursor.since(start))
    value = expression(cursor)
    alias = None
    if cursor.accept("AS"):
        alias = cursor.name("a name after AS")
    elif cursor.token.kind == "quoted" or (
        cursor.token.kind == "name" and cursor.token.upper not in RESERVED
    ):
        alias = cursor.advance().text
    return Item(value, alias, cursor.since(start))


def _sources(cursor: Cursor) -> tuple[Source, Span, tuple[JoinClause, ...]]:
    """The first source, the place after it, and the other sources."""
    first, joins = _source(cursor), []
    after = cursor.token.span
    while True:
        if cursor.accept_sign(",") or cursor.accept("CROSS", "JOIN"):
            joins.append(JoinClause("inner", _source(cursor), None, ()))
        elif cursor.at_any("NATURAL") or cursor.at_word("LEFT", "SEMI") or cursor.at_word("LEFT", "ANTI"):
            raise cursor.unsupported(
                "NATURAL joins are not available"
                if not cursor.at_any("LEFT")
                else "LEFT SEMI and LEFT ANTI joins are not available",
                cursor.token.span,
                "Write JOIN … ON." if not cursor.at_any("LEFT") else "Write EXISTS or NOT EXISTS in WHERE.",
            )
        elif cursor.at_any("JOIN", "INNER", *_OUTER):
            joins.append(_join(cursor))
        else:
            return first, after, tuple(joins)


def _join(cursor: Cursor) -> JoinClause:
    kind = _OUTER.get(cursor.token.upper, "inner")
    if kind == "inner":
        cursor.accept("INNER")
    else:
        cursor.advance()
        cursor.accept("OUTER")
    cursor.expect("JOIN")
    source = _source(cursor)
    if cursor.accept("ON"):
        return JoinClause(kind, source, expression(cursor), ())
    if not cursor.accept("USING"):
        remedy = "Write the distance as a condition: ON x.k = y.k AND y.at BETWEEN x.at AND x.at + INTERVAL 1 HOUR."
        raise cursor.expected(
            "ON and a condition, or USING and columns", remedy if cursor.at_any("WITHIN") else None
        )
    cursor.expect_sign("(", " and columns after USING")
    names = [column(cursor)]
    while cursor.accept_sign(","):
        names.append(column(cursor))
    cursor.expect_sign(")", " or ','")
    return JoinClause(kind, source, None, tuple(names))


def _source(cursor: Cursor) -> Source:
    start = cursor.token.span
    if cursor.at_sign("("):
        cursor.advance()
        if at_select(cursor):
            return _derived(cursor, start)
        return _in_parentheses(cursor, start)
    if cursor.at_word("TABLE") and cursor.ahead().text == "(":
        cursor.advance()
        cursor.advance()
        name, window = table_function(cursor)
        cursor.expect_sign(")")
        return Source(name, _alias(cursor), window, "rows", start)
    if cursor.token.upper in _TABLE_FUNCTIONS and cursor.ahead().text == "(":
        name, window = table_function(cursor)
        return Source(name, _alias(cursor), window, "rows", start)
    if cursor.token.upper in RESERVED:
        raise cursor.expected("a stream, a relation or a query")
    return _read_as(cursor, _united(cursor))


def _named(cursor: Cursor) -> Source:
    """A name in FROM, with the channel of a stream; the columns of `system.epochs` are read as those of `epochs`."""
    start = cursor.token.span
    name = cursor.dotted_name("a stream, a relation or a query")
    span = cursor.since(start)
    alias = None if span == start else cursor.before.text
    channel: Choice["rows", "late", "rejects"] = "rows"
    if cursor.accept("LATE"):
        channel = "late"
    elif cursor.accept("REJECTS"):
        channel = "rejects"
    reducer = cursor.name("the name of a reducer") if cursor.accept("REDUCED", "BY") else None
    return Source(name, alias, None, channel, span, reducer=reducer)


def _united(cursor: Cursor) -> Source:
    """`A UNION ALL B …`: names of streams that are read as one, or one name."""
    start, first, others = cursor.token.span, _named(cursor), list[Source]()
    while cursor.at_any("UNION") and not _unites_selects(cursor):
        at = cursor.token.span
        cursor.advance()
        if not cursor.accept("ALL"):
            raise cursor.unsupported(
                "UNION of streams would have to store all rows permanently, to recognise equal ones",
                at,
                "Write UNION ALL, which keeps all rows.",
            )
        others.append(replace(_named(cursor), alias=None))
    return replace(first, others=tuple(others), span=cursor.since(start)) if others else first


def _unites_selects(cursor: Cursor) -> bool:
    """At UNION: whether a SELECT follows, and not the name of a stream."""
    return at_select(cursor, 2 if cursor.ahead().upper in ("ALL", "DISTINCT") else 1)


def _in_parentheses(cursor: Cursor, start: Span) -> Source:
    """`(A UNION ALL B)`, `(A [ROWS 1])` after the opening parenthesis."""
    source = _read_as(cursor, _united(cursor))
    if cursor.at_any("UNION", "EXCEPT", "MINUS", "INTERSECT"):
        raise cursor.error(
            f"{cursor.token.upper} comes between SELECTs, or UNION ALL between names of streams without windows",
            cursor.token.span,
            "Write (SELECT * FROM a UNION ALL SELECT * FROM b) AS t.",
        )
    cursor.expect_sign(")", " of the source")
    return _read_as(cursor, replace(source, span=cursor.since(start)))


def _read_as(cursor: Cursor, source: Source) -> Source:
    """The source with its alias and its window, in either order; both may follow the parentheses around it."""
    alias = _alias(cursor)
    if cursor.at_sign("[") and source.window is not None:
        raise cursor.error(
            "the window of the source is already inside the parentheses",
            cursor.token.span,
            "Keep one of them.",
        )
    brackets = bracket(cursor) if cursor.at_sign("[") else source.window
    return replace(source, alias=alias or _alias(cursor) or source.alias, window=brackets)


def _derived(cursor: Cursor, start: Span) -> Source:
    """A SELECT in FROM, after its opening parenthesis."""
    with cursor.inside_select(start):
        assert cursor.read_select is not None
        inner = cursor.read_select(cursor)
    cursor.expect_sign(")", " of the SELECT in FROM")
    span = cursor.since(start)
    alias = _alias(cursor)
    brackets = bracket(cursor) if cursor.at_sign("[") else None
    alias = alias or _alias(cursor) or "subquery"
    return Source(alias, alias, brackets, "rows", span, inner)


def _alias(cursor: Cursor) -> str | None:
    if cursor.accept("AS"):
        return cursor.name("a name after AS")
    if cursor.at_any(*_JOINS_OF_OTHERS) and cursor.ahead().upper in ("JOIN", "INNER", "LEFT"):
        word = cursor.token.upper
        raise cursor.unsupported(f"{word} joins are not available", cursor.token.span, _JOINS_OF_OTHERS[word])
    if cursor.token.kind == "quoted" or (cursor.token.kind == "name" and cursor.token.upper not in _NO_ALIAS):
        return cursor.advance().text
    return None


def _bounds(cursor: Cursor) -> tuple[Instant | Ago, Instant | Ago]:
    begin = bound(cursor, "the begin of the interval")
    cursor.expect("END", purpose=" after the begin of BEGIN … END")
    start = cursor.token.span
    end = bound(cursor, "the end of the interval")
    backwards = (
        begin.duration < end.duration
        if isinstance(begin, Ago) and isinstance(end, Ago)
        else isinstance(begin, int) and isinstance(end, int) and begin > end
    )
    if backwards:
        raise cursor.error("the interval of BEGIN … END ends before it begins", cursor.since(start))
    return begin, end


def _group_by(cursor: Cursor) -> tuple[tuple[Expr, ...], StartingWindow | SessionWindow | None]:
    cursor.expect("BY", purpose=" after GROUP")
    groups: list[Expr] = []
    window: StartingWindow | SessionWindow | None = None
    while True:
        if cursor.at_any("ROLLUP", "CUBE", "GROUPING") and (
            cursor.ahead().text == "(" or cursor.ahead().upper == "SETS"
        ):
            raise cursor.unsupported(
                f"{cursor.token.upper} is not available",
                cursor.token.span,
                "Register a query for each grouping.",
            )
        item = expression(cursor)
        if not is_window_call(item):
            groups.append(item)
        elif window is None:
            window = grouped_window(cursor, item)
        else:
            raise cursor.error("GROUP BY has two windows", item.span, "Register a query for each.")
        if not cursor.accept_sign(","):
            return tuple(groups), window


def order_by(cursor: Cursor) -> tuple[OrderItem, ...]:
    """Pass the items of ORDER BY; the cursor is after ORDER."""
    cursor.expect("BY", purpose=" after ORDER")
    items: list[OrderItem] = []
    while True:
        start = cursor.token.span
        value = expression(cursor)
        descending = cursor.accept("DESC")
        if not descending:
            cursor.accept("ASC")
        nulls_first = not descending
        if cursor.accept("NULLS"):
            nulls_first = cursor.accept("FIRST")
            if not nulls_first:
                cursor.expect("LAST", purpose=" or FIRST after NULLS")
        items.append(OrderItem(value, descending, nulls_first, cursor.since(start)))
        if not cursor.accept_sign(","):
            return tuple(items)
