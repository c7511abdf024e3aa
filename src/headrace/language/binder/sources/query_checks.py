"""Checks of bound queries: none that FROM reads may revise its windows, none may have a column with a reserved name."""

from __future__ import annotations

from headrace.algebra.query import Query
from headrace.errors import UnsupportedQuery, UserError
from headrace.schema import OURS


def check_read(query: Query, what: str) -> None:
    """Raises `UnsupportedQuery` for a query that retracts rows."""
    if query.retracts_windows:
        revises, without = ("repairs", "SHEDDING (repair)") if query.repair else ("revises", "REVISIONS")
        raise UnsupportedQuery(
            f"{what} {revises} its windows, and cannot be read in FROM: rows that were read would be retracted",
            remedy=f"Read a query without WITH {without}.",
        )


def check_names(query: Query) -> None:
    """Raises `UserError` for a query with a column of an internal name."""
    for column in query.schema.names:
        if column.startswith(OURS):
            raise UserError(
                f"the column '{column}' of the answer cannot be called that: names that begin with {OURS} are reserved",
                remedy=f"Give it another name: … AS {column.lstrip('_') or 'x'}.",
            )
