"""The parser of a SELECT inside an expression, after its opening parenthesis; and tests of whether a SELECT, or one
inside ISTREAM, DSTREAM or RSTREAM, begins at the cursor.
"""

from __future__ import annotations

from typing import Final
from typing import Literal as Choice

from headrace.language.syntax.ast import Select
from headrace.language.syntax.cursor import Cursor

EMITS: Final[dict[str, Choice["istream", "dstream", "rstream"]]] = {
    "ISTREAM": "istream",
    "DSTREAM": "dstream",
    "RSTREAM": "rstream",
}


def at_emitted(cursor: Cursor) -> bool:
    """True at `ISTREAM(`."""
    return cursor.token.upper in EMITS and cursor.ahead().text == "("


def at_select(cursor: Cursor, ahead: int = 0) -> bool:
    """True where a SELECT begins `ahead` tokens on, bare, in parentheses, or inside ISTREAM, DSTREAM or RSTREAM."""
    while cursor.ahead(ahead).text == "(" and cursor.ahead(ahead).kind == "sign":
        ahead += 1
    word = cursor.ahead(ahead).upper
    return word in ("SELECT", "WITH") or (word in EMITS and cursor.ahead(ahead + 1).text == "(")


def at_subselect(cursor: Cursor) -> bool:
    """True for a SELECT after a parenthesis; a function may be called ISTREAM."""
    return at_select(cursor) and (not at_emitted(cursor) or at_select(cursor, 2))


def subselect(cursor: Cursor) -> Select:
    """Pass a SELECT and the parenthesis after it.

    Raises `UserError` for mistakes, `UnsupportedQuery` outside of a SELECT.
    """
    start = cursor.token.span
    if cursor.at_any("WITH"):
        raise cursor.unsupported("WITH is not available yet", start, "Write the SELECT itself.")
    if cursor.read_select is None:
        raise cursor.unsupported(
            "a SELECT inside an expression is allowed only in the WHERE of a query",
            start,
            "JOIN the relation instead.",
        )
    with cursor.inside_select(start):
        query = cursor.read_select(cursor)
    cursor.expect_sign(")", " of the SELECT")
    return query
