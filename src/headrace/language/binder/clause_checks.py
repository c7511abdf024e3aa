"""Checks of a SELECT's clauses against its sources and each other: HAVING, EMIT EMPTY, RSTREAM, LIMIT, ORDER BY, and
aggregates that depend on the order of rows; each is refused where it has no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.query import QueryScan
from headrace.algebra.windows.window import Changing
from headrace.language.binder.sources.from_clause import From
from headrace.language.binder.sources.stream_joins import check_aggregates, is_of_now
from headrace.language.binder.subqueries.semijoins import check_order
from headrace.language.syntax.ast import Select
from headrace.language.syntax.refusals import fail, refuse


def check_clauses(
    select: Select,
    sources: From,
    aggregates: Sequence[NamedAggregate],
    *,
    grouped: bool,
    streams_rows: bool,
    semijoined: bool,
) -> None:
    """Raises `UserError` for a clause without meaning together with the others.

    `streams_rows`: the SELECT emits the rows of a bare stream; `semijoined`: WHERE has a semijoin.
    """
    stream = sources.stream
    if select.having is not None and not grouped:
        fail("HAVING needs GROUP BY or an aggregate", select.having.span, "Use WHERE for conditions on rows.")
    if select.emit_empty is not None and not (stream.sliding and grouped):
        fail("EMIT EMPTY needs a window with SLIDE and aggregates", select.emit_empty, "Leave it out.")
    is_at_times_of_side = isinstance(stream.scan, QueryScan) and stream.scan.time is not None
    if sources.others or isinstance(stream.window, Changing) or is_at_times_of_side:
        check_aggregates(aggregates, stream)
    elif semijoined:
        check_order(aggregates, select)
    if select.emit == "rstream" and not (stream.sliding or is_of_now(sources.streams)):
        fail(
            "RSTREAM needs a window with SLIDE, or [NOW]: over another window it would emit all its rows at every instant",
            stream.span,
            "Write for example FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE], or use ISTREAM.",
        )
    joined = bool(sources.others) or semijoined
    if select.emit == "rstream" and joined and aggregates and not select.group_by and not stream.sliding:
        refuse(
            "RSTREAM over joins of [NOW] needs GROUP BY with aggregates: without pairs no group has an instant",
            stream.span,
            "Add GROUP BY, or aggregate in a SELECT of its own.",
        )
    if streams_rows and select.limit_span is not None:
        fail(
            "LIMIT needs a window: the rows of a bare stream never end",
            select.limit_span,
            "Write for example FROM s [ROWS 100].",
        )
    if streams_rows and select.order_by:
        fail(
            "ORDER BY needs a window: the rows of a bare stream come in their own order",
            select.order_by[0].span,
            "Write for example FROM s [ROWS 100].",
        )
