"""Checks of joins of streams: which sources, windows, outer joins and clauses go together; and the window that
`BEGIN NOW - INTERVAL d` is for a joined stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import columns_of
from headrace.algebra.expressions.series import AT, POSITION
from headrace.algebra.query import Ago, QueryScan, StreamScan
from headrace.algebra.windows.window import Changing, Rows, TimeRange, TimeSlide, Unbounded
from headrace.language.binder.expressions.scope import BoundSource
from headrace.language.binder.sources.bounds import is_range
from headrace.language.syntax.ast import Select, SessionWindow, StartingWindow
from headrace.language.syntax.refusals import fail, refuse
from headrace.time import Instant, render_duration

_WINDOWS: Final = (
    "Write [RANGE d SLIDE e] after each of them, with one slide and origin, or windows without SLIDE: FROM a x [RANGE"
    " 5 MINUTES], b y [ROWS 100] WHERE x.k = y.k."
)


def check_grouped_window(window: StartingWindow | SessionWindow, streams: Sequence[BoundSource]) -> None:
    """Raises `UnsupportedQuery` for GROUP BY window(…) over several streams."""
    if len(streams) > 1:
        refuse("GROUP BY a window is of one stream, and joined rows have two times", window.span, _WINDOWS)


def bounded(source: BoundSource, begin: Instant | Ago, end: Instant | Ago) -> BoundSource:
    """A joined stream under bounds with NOW: under `BEGIN NOW - INTERVAL d` it is [RANGE d]; with a [RANGE r] both apply.

    Raises `UnsupportedQuery` for other windows, and `UserError` where `END NOW - INTERVAL d` leaves no row in its window.
    """
    if not isinstance(source.window, Unbounded | TimeRange):
        refuse(
            "NOW in BEGIN … END over joined streams is an interval, and allows no window but [RANGE d]",
            source.span,
            "Leave the window out, or give two instants.",
        )
    window = source.window
    if isinstance(begin, Ago):
        range_ = begin.duration if isinstance(window, Unbounded) else window.range
        window = TimeRange(min(range_, begin.duration))
    if isinstance(end, Ago) and isinstance(window, TimeRange) and window.range < end.duration:
        fail(
            f"BEGIN … END holds no row: it ends {render_duration(end.duration)} before NOW,"
            f" and rows are held for {render_duration(window.range)}",
            source.span,
            "Begin earlier, or end later.",
        )
    return replace(source, window=window, bare=False)


def check_together(select: Select, streams: Sequence[BoundSource]) -> None:
    """Raises `UserError` or `UnsupportedQuery`, with the reason, for streams that cannot be joined."""
    for source in streams:
        _check_source(source)
    _check_windows(streams)
    if streams[0].sliding and select.emit in ("istream", "dstream"):
        refuse(
            f"{select.emit.upper()} over windows of joined streams is not available",
            streams[0].span,
            "Leave it out: each window's rows are emitted once; or leave out SLIDE.",
        )
    if select.emit_empty is not None:
        refuse("EMIT EMPTY over joined streams is not available", select.emit_empty, "Leave it out.")
    if select.revisions is not None:
        refuse(
            "WITH REVISIONS over joined streams is not available",
            select.revisions.span,
            "Leave it out, or give the streams a SLACK that keeps their late rows.",
        )


def is_of_now(streams: Sequence[BoundSource]) -> bool:
    """Whether joined streams have rows only at the times of rows of one under `[NOW]`."""
    padding = [index for index, source in enumerate(streams) if source.kind in ("right", "full")]
    return any(
        source.window == TimeRange(0)
        and (index == 0 or source.kind in ("inner", "right"))
        and index >= max(padding, default=0)
        for index, source in enumerate(streams)
    )


def check_outer_joins(select: Select, sources: Sequence[BoundSource]) -> None:
    """Raises `UserError` or `UnsupportedQuery` for outer joins of streams that have no meaning, or none yet.

    `sources` are those of FROM, in order, each with the kind of its join.
    """
    outer = [source for source in sources if source.window is not None and source.kind != "inner"]
    streams = [source for source in sources if source.window is not None]
    for source, clause in zip(sources[1:], select.joins, strict=True):
        if source not in outer:
            continue
        name = f"{source.kind.upper()} JOIN"
        before = sources[: sources.index(source)]
        stored = [item for item in before if item.window is None]
        if source.kind != "left" and stored:
            refuse(
                f"a {name} of streams comes before the stored relation '{stored[0].alias}'",
                source.span,
                "Write the streams first: FROM a FULL JOIN b ON …, r; and a single one with LEFT JOIN.",
            )
        if clause.using and source.kind != "left":
            refuse(f"USING is not available with a {name}", clause.using[0].span, "Write ON a.k = b.k.")
        names = {column for item in sources if item.window is None for column in item.scan.schema.names}
        if source.on is not None and columns_of(source.on) & names:
            refuse(
                f"the condition of a {name} of streams reads a stored relation",
                source.span,
                "Join the stream with the relation in a SELECT of its own: FROM (SELECT … FROM a JOIN r …) AS t.",
            )
    if outer and streams[0].sliding and len(streams) > 2:
        refuse(
            "an outer join of windows that slide is of two streams",
            streams[2].span,
            "Leave out SLIDE, or join two of them in a query of their own and read that.",
        )
    if outer and select.bounds is not None and not is_range(select.bounds):
        refuse(
            "BEGIN … END with an outer join of streams is an interval up to NOW",
            select.bounds_span or outer[0].span,
            "Put the bounds into SELECTs of their own: FROM (SELECT … FROM a BEGIN … END …) AS t.",
        )


def _check_source(source: BoundSource) -> None:
    scan = source.scan
    if isinstance(scan, StreamScan) and scan.channel != "rows":
        refuse(
            f"{scan.channel.upper()} rows come after their time: no window joins them",
            source.span,
            "Select them by themselves.",
        )
    if isinstance(scan, QueryScan) and scan.time is not None:
        refuse(
            f"'{scan.name}' is read at the times of '{scan.time}', and joined with a stream",
            source.span,
            "Write those windows in a query of their own, and join its results.",
        )
    if not isinstance(source.window, TimeSlide | TimeRange | Unbounded | Rows | Changing):
        refuse(
            "windows that are joined slide with time, by [RANGE d SLIDE e], or have no SLIDE",
            source.span,
            _WINDOWS,
        )


def _check_windows(streams: Sequence[BoundSource]) -> None:
    first = streams[0]
    for other in streams[1:]:
        if first.sliding != other.sliding:
            refuse(
                f"the window of '{(first if first.sliding else other).alias}' slides,"
                f" '{(other if first.sliding else first).alias}' holds rows at every instant",
                other.span,
                _WINDOWS,
            )
        one, two = first.window, other.window
        if not (isinstance(one, TimeSlide) and isinstance(two, TimeSlide)):
            continue
        if (one.slide, one.anchor) != (two.slide, two.anchor):
            fail(
                f"the windows of '{first.alias}' and '{other.alias}' do not end together",
                other.span,
                "Windows in one FROM share slide and origin; their ranges may differ.",
            )


def check_aggregates(aggregates: Iterable[NamedAggregate], source: BoundSource) -> None:
    """Raises `UnsupportedQuery` for aggregates that depend on the order of rows: pairs have none."""
    what = "the rows of a relation" if isinstance(source.window, Changing) else "joined rows"
    for item in aggregates:
        argument = item.call.argument
        names = frozenset[str]() if argument is None else columns_of(argument)
        if any(name.endswith((AT, POSITION)) for name in names):
            refuse(
                f"{item.call.function.upper()} depends on the order of rows, and {what} have none",
                source.span,
                "Aggregate the stream in a SELECT of its own, and read that.",
            )
