"""Limits of a query: how many of its windows may hold one row (a query above it is refused, since a slip in a unit may make gigabytes
of three rows), how many rows its join stores, constraints that joins find, and rows that they spill (refused where no join would heed them).
"""

from __future__ import annotations

from typing import Final

from headrace.algebra.query import Aggregate, Query, Windowed, every_node
from headrace.algebra.windows.cumulate import Cumulate
from headrace.algebra.windows.window import Custom, RowsSlide, TimeSlide, Window
from headrace.catalog.definitions import QueryDefinition
from headrace.errors import UserError
from headrace.planner.joins.outer_joins import joins_changes
from headrace.planner.joins.stream_joins import joins_windows, signature_of

MOST_WINDOWS: Final = 1_000_000
"""How many windows of a query may hold one row, where the query has no limit of its own: a week by seconds is allowed."""


def require_few_windows(definition: QueryDefinition, query: Query) -> None:
    """Refuse a query of which a single row would be in more windows than it allows.

    Counted are windows of time that slide and CUMULATE; windows of rows that slide where each row is emitted with each of them.
    Raises `UserError` that names the option which allows more.
    """
    most = MOST_WINDOWS if definition.max_windows_per_row is None else definition.max_windows_per_row
    nodes = every_node(query)
    aggregates = any(isinstance(node, Aggregate) for node in nodes)
    for node in nodes:
        count = _windows_of_a_row(node.window, aggregates=aggregates) if isinstance(node, Windowed) else 1
        if count > most:
            raise UserError(
                f"a row would be in {count:,} windows of '{definition.name}', and at most {most:,} are allowed",
                remedy=f"Take a longer SLIDE or a shorter RANGE, or allow it: CREATE QUERY {definition.name} "
                f"OPTIONS (maxWindowsPerRow '{count}') AS …",
            )


def require_limited_join(definition: QueryDefinition, query: Query) -> None:
    """Refuse a limit of rows for a query that is not one join of windows by a common key: no sample of keys would keep it; and constraints
    to be found, or rows to be spilled, for a query without such a join.

    Raises `UserError`.
    """
    options = {"constraints 'find'": definition.join_constraints == "find", "spill": definition.spill != 0}
    for option in [option for option, is_set in options.items() if is_set]:
        if joins_changes(query) or not joins_windows(query):
            raise UserError(
                f"{option} is for joins of windows of time by a common key, and '{definition.name}' has none",
                remedy="Leave the option out: declared constraints are always used.",
            )
    if definition.max_join_rows is not None and not signature_of(query):
        raise UserError(
            f"maxJoinRows limits a join of windows by one common key, and '{definition.name}' has none",
            remedy="Leave the option out, or write the join with the key (x.k = y.k AND y.k = z.k) as a query of its own, and read its results.",
        )


def _windows_of_a_row(window: Window, *, aggregates: bool) -> int:
    """How many windows of a query hold one row at most, where the window alone defines it; else 1."""
    if isinstance(window, TimeSlide):
        return -(-window.range // window.slide)
    if isinstance(window, RowsSlide) and not aggregates:
        return -(-window.count // window.slide)
    if isinstance(window, Custom) and isinstance(window.kind, Cumulate):
        return window.kind.steps
    return 1
