"""The changelog of a query WITH SHEDDING (repair): windows from the rows that were used, and again once all of their rows are exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.algebra.query import Query
from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, sources_of
from headrace.reference.values import Row, minus
from headrace.reference.windows import sliding_nodes
from headrace.time import BEGINNING, FOREVER, Instant


def repairs(
    query: Query, history: History, repaired_to: Sequence[Instant]
) -> list[tuple[int, Instant, int, Row]]:
    """(epoch, instant, -1 or +1, row) as emitted; rows before `repaired_to[e - 1]` are exact from epoch e on, up to a window's bound.

    Weights of the rows are those that they had when they came; a row that is exact stays so.
    """
    ((name,), (node,)) = sources_of(query), sliding_nodes(query)
    assert isinstance(node.window, TimeSlide | Landmark)
    stream, names, whole = history.streams[name], query.schema.names, set[int]()
    emitted: list[tuple[int, Instant, int, Row]] = []
    held: dict[Instant, list[Row]] = {}
    before = closed = BEGINNING
    for epoch, exact in enumerate(repaired_to, start=1):
        read = stream.after(epoch)
        whole |= {row.position for row in read.rows if row.at < _bound(node.window, exact)}
        rows = tuple(replace(row, weight=1.0) if row.position in whole else row for row in read.rows)
        known = replace(history, streams={**history.streams, name: replace(read, rows=rows)})
        now: dict[Instant, list[Row]] = {}
        for at, row in windows_answer(query, known, read.punctuation):
            now.setdefault(at, []).append(row)
        for at in sorted({*held, *now}):
            if at > closed or before < at <= exact:
                old, new = held.get(at, []), now.get(at, [])
                emitted += [(epoch, at, -1, row) for row in minus(old, new, names)]
                emitted += [(epoch, at, 1, row) for row in minus(new, old, names)]
                held[at] = new
        before, closed = exact, read.punctuation
    return emitted


def _bound(window: TimeSlide | Landmark, exact: Instant) -> Instant:
    """The last instant, not after another one, at which a window begins or ends."""
    if exact in (BEGINNING, FOREVER):
        return exact
    ends = exact - (exact - window.anchor) % window.slide
    if isinstance(window, Landmark):
        return ends
    starts = exact - (exact - window.anchor + window.range) % window.slide
    return max(ends, starts)
