"""How is a SELECT inside a condition read: `IN (SELECT y FROM r WHERE …)`, `EXISTS (SELECT 1 FROM r WHERE …)`?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.language.ast import Expr, Subselect
from headrace.language.cursor import Cursor

_CLAUSES: Final = frozenset(
    [
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "CROSS",
        "NATURAL",
        "ON",
        "USING",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "MINUS",
        "LATERAL",
        "BEGIN",
        "EMIT",
        "WITH",
        "OFFSET",
    ]
)


def subselect(cursor: Cursor, whole: Callable[[Cursor], Expr]) -> Subselect:
    """Pass a SELECT over one relation and the parenthesis after it.

    Raises `UserError` for mistakes, `UnsupportedQuery` for more than SELECT, FROM and WHERE.
    """
    start = cursor.token.span
    if cursor.at_any("WITH"):
        raise cursor.unsupported("WITH is not available yet", start, "Write the SELECT itself.")
    cursor.expect("SELECT")
    cursor.accept("DISTINCT")
    items: list[Expr | None] = [None if cursor.accept_sign("*") else _item(cursor, whole)]
    while cursor.accept_sign(","):
        items.append(None if cursor.accept_sign("*") else _item(cursor, whole))
    cursor.expect("FROM", purpose=" and a relation")
    source = cursor.token.span
    name = cursor.name("a relation")
    at = cursor.since(source)
    alias = cursor.name("a name after AS") if cursor.accept("AS") else None
    if alias is None and cursor.token.kind in ("name", "quoted") and cursor.token.upper not in _CLAUSES:
        alias = cursor.advance().text
    where = whole(cursor) if cursor.accept("WHERE") else None
    if not cursor.at_sign(")") and (cursor.token.upper in _CLAUSES or cursor.at_sign(",", "[")):
        raise cursor.unsupported(
            "a SELECT inside a condition has SELECT, one relation in FROM, and WHERE only",
            cursor.token.span,
            "JOIN the relation, or make one that holds what is asked.",
        )
    span = cursor.since(start)
    cursor.expect_sign(")", " of the SELECT")
    return Subselect(tuple(items), name, alias, where, at, span)


def _item(cursor: Cursor, whole: Callable[[Cursor], Expr]) -> Expr:
    found = whole(cursor)
    if cursor.accept("AS"):
        cursor.name("a name after AS")
    return found
