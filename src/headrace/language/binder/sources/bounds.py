"""Bounds `BEGIN b END e` as conditions on event time, to be added to WHERE: for joined streams, where NOW is a bound of
their windows, and for windows that slide or count rows, where NOW is refused (docs/semantics.md, Bounds).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from headrace.algebra.expressions.expression import Call, Expression, Literal, conjunction
from headrace.algebra.query import Ago, StreamScan, UnionAll
from headrace.algebra.windows.window import Changing, Rows, TimeRange, Unbounded
from headrace.language.binder.expressions.scope import BoundSource
from headrace.language.syntax.ast import Select
from headrace.language.syntax.refusals import refuse
from headrace.schema import BOOLEAN
from headrace.time import Instant


def condition(select: Select, stream: BoundSource) -> Expression | None:
    """The bounds as a condition on the rows of such a window, to be added to WHERE; None over other windows.

    Raises `UnsupportedQuery` for NOW, and where the stream's time is not one of its columns.
    """
    if select.bounds is None or isinstance(stream.window, TimeRange | Unbounded):
        return None
    begin, end = select.bounds
    if isinstance(begin, Ago) or isinstance(end, Ago):
        _refuse_now(select, stream)
    return _within(select, stream, begin, end, _with_window(stream))


def are_instants(bounds: tuple[Instant | Ago, Instant | Ago]) -> bool:
    """Whether the bounds are constants."""
    return not any(isinstance(bound, Ago) for bound in bounds)


def is_range(bounds: tuple[Instant | Ago, Instant | Ago]) -> bool:
    """Whether the bounds are an interval up to NOW, which is a window of that range."""
    return isinstance(bounds[0], Ago) and bounds[1] == Ago()


def follows_now(bounds: tuple[Instant | Ago, Instant | Ago]) -> bool:
    """Whether the bounds end before NOW, by an interval."""
    return isinstance(bounds[1], Ago) and bounds[1].duration > 0


def joined_condition(select: Select, streams: Sequence[BoundSource]) -> Expression | None:
    """The bounds that are instants as a condition on the rows of every joined stream; None without any.

    Raises `UnsupportedQuery` for a stream whose time is not one of its columns.
    """
    if select.bounds is None or all(isinstance(bound, Ago) for bound in select.bounds):
        return None
    begin, end = select.bounds
    return conjunction([_within(select, stream, begin, end, "over joined streams") for stream in streams])


def _within(
    select: Select, stream: BoundSource, begin: Instant | Ago, end: Instant | Ago, where: str
) -> Expression:
    """The condition that a row's time is within the bounds that are instants, of which there is one at least."""
    time = stream.find(stream.scan.time or "") if isinstance(stream.scan, StreamScan | UnionAll) else None
    if time is None:
        refuse(
            f"BEGIN … END {where} compares the stream's time column, and here there is none",
            select.bounds_span,
            "Put BEGIN … END into the query that is read, or leave out the window or its SLIDE.",
        )
    return conjunction(
        [
            Call(sign, (time, Literal(bound, time.type)), BOOLEAN)
            for sign, bound in ((">=", begin), ("<=", end))
            if not isinstance(bound, Ago)
        ]
    )


def _refuse_now(select: Select, stream: BoundSource) -> NoReturn:
    remedy = "Give two instants, or leave out the window or its SLIDE."
    if isinstance(stream.window, Changing):
        reason = "the rows of a relation have no time"
        remedy = "Put BEGIN … END into the SELECT that is read."
    elif isinstance(stream.window, Rows):
        reason = "a window of ROWS changes only when rows come, and rows would leave it as NOW moves on"
        remedy = "Give two instants, or use a window of time: FROM s [RANGE 10 MINUTES]."
    else:
        reason = "NOW moves on, and a window that has ended is emitted once"
    refuse(
        f"NOW in BEGIN … END is not available {_with_window(stream)}: {reason}", select.bounds_span, remedy
    )


def _with_window(stream: BoundSource) -> str:
    relation = isinstance(stream.window, Changing)
    return "over a relation" if relation else "with a window that slides or counts rows"
