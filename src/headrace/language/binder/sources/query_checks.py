"""Bound queries as FROM reads them: a query WITH SHEDDING (repair) with its exact answers alone, one that revises windows not at all;
and the check that none has a column with a reserved name.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.algebra.query import Query
from headrace.errors import UnsupportedQuery, UserError
from headrace.schema import OURS


def readable(query: Query, what: str) -> Query:
    """The query as FROM reads it: rows are never retracted.

    Raises `UnsupportedQuery` for a query that late rows revise.
    """
    if query.revisions is not None and query.retracts_windows:
        raise UnsupportedQuery(
            f"{what} revises its windows, and cannot be read in FROM: rows that were read would be retracted",
            remedy="Read a query without WITH REVISIONS.",
        )
    return replace(query, settles=True, quality=None) if query.repair else query


def check_names(query: Query) -> None:
    """Raises `UserError` for a query with a column of an internal name."""
    for column in query.schema.names:
        if column.startswith(OURS):
            raise UserError(
                f"the column '{column}' of the answer cannot be called that: names that begin with {OURS} are reserved",
                remedy=f"Give it another name: … AS {column.lstrip('_') or 'x'}.",
            )
