"""The parser of WITH SHEDDING and its one option in parentheses: `WITH SHEDDING (repair)`."""

from __future__ import annotations

from headrace.errors import Span, did_you_mean
from headrace.language.syntax.ast import SheddingClause
from headrace.language.syntax.cursor import Cursor


def shedding_clause(cursor: Cursor, start: Span) -> SheddingClause:
    """Pass what may follow WITH SHEDDING, which began at `start`.

    Raises `UserError` for anything else in parentheses.
    """
    if not cursor.accept_sign("("):
        return SheddingClause(cursor.since(start))
    at = cursor.token.span
    if not cursor.accept("REPAIR"):
        remedy = did_you_mean(cursor.token.text.lower(), ("repair",)) or "Write WITH SHEDDING (repair)."
        raise cursor.expected("repair in the parentheses after SHEDDING", remedy)
    repair = cursor.since(at)
    cursor.expect_sign(")", " after repair")
    return SheddingClause(cursor.since(start), repair)
