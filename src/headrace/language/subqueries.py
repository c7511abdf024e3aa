"""How is a SELECT inside a condition read: `IN (SELECT y FROM r WHERE …)`, `EXISTS (SELECT 1 FROM r WHERE …)`?"""

from __future__ import annotations

from headrace.language.ast import Select
from headrace.language.cursor import Cursor


def at_subselect(cursor: Cursor) -> bool:
    """True after a parenthesis in which a SELECT stands."""
    streamed = cursor.at_any("ISTREAM", "DSTREAM", "RSTREAM") and cursor.ahead(2).upper == "SELECT"
    return streamed or cursor.at_any("SELECT", "WITH")


def subselect(cursor: Cursor) -> Select:
    """Pass a SELECT and the parenthesis after it.

    Raises `UserError` for mistakes, `UnsupportedQuery` where no SELECT is around.
    """
    start = cursor.token.span
    if cursor.at_any("WITH"):
        raise cursor.unsupported("WITH is not available yet", start, "Write the SELECT itself.")
    if cursor.read_select is None:
        raise cursor.unsupported(
            "a SELECT inside an expression stands in the WHERE of a query only",
            start,
            "JOIN the relation instead.",
        )
    with cursor.inside_select(start):
        found = cursor.read_select(cursor)
    cursor.expect_sign(")", " of the SELECT")
    return found
