"""The windows of a query whose windows slide, as a sequence: when each is emitted, its bounds, and the rows that it
holds.

Time and landmark windows of one FROM close together, at common ends; a window of rows closes at every
slide-th row of its partition. Both give a sequence of `Closing`s, each with the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headrace.algebra.query import Query, Windowed, walk
from headrace.algebra.windows.window import (
    Custom,
    Delta,
    Landmark,
    RowsSlide,
    Session,
    TimeSlide,
    TupleSlide,
    slides,
)
from headrace.dataclass import dataclass
from headrace.errors import UnsupportedQuery
from headrace.reference.relational import Frame, Moment, partitions, position_of, stream_rows, time_of
from headrace.reference.scalar import evaluate
from headrace.reference.values import Row
from headrace.schema import to_arrow
from headrace.time import BEGINNING, FOREVER, Instant

Emitted: TypeAlias = list[tuple[Instant, Frame]]
"""Closings with the instants at which they are emitted."""


@dataclass(frozen=True, slots=True)
class Closing:
    """Windows that close together at `emitted`, read at `instant` (the last one inside them).

    `occupied`: whether the windows have an answer. `series` is the partition of a window of rows.
    """

    emitted: Instant
    instant: Instant
    frames: Mapping[Windowed, Frame]
    occupied: bool = True
    series: int = 0


def sliding_nodes(query: Query) -> list[Windowed]:
    """The windows of the query that slide."""
    return [node for node in walk(query.root) if isinstance(node, Windowed) and slides(node.window)]


class TimeWindows:
    """The windows of a query whose windows slide in time, by their common ends.

    A window has an answer if it holds a row; with EMIT EMPTY every window from the first such one on has one, up to
    the punctuation `passed` or the last such window.
    Landmark windows hold a row permanently; ends after the first one past the last row are left out unless
    `limit` is finite.
    """

    def __init__(self, query: Query, moment: Moment, limit: Instant, passed: Instant | None = None) -> None:
        self.nodes, self.limit = sliding_nodes(query), limit
        self.rows = {node: stream_rows(node.source, moment) for node in self.nodes}
        every = replace(moment, shedding=False)
        self.all_rows = (
            {node: stream_rows(node.source, every) for node in self.nodes} if moment.shedding else self.rows
        )
        self.slide, self.anchor = self._lattice()
        holding = {end for node in self.nodes for end in self._ends(node)}
        if query.emit_empty and holding:
            bound = limit if passed is None else passed
            last = max(holding) if bound == FOREVER else max(*holding, self.next_end(bound) - self.slide)
            holding = set(range(min(holding), last + 1, self.slide))
        self.occupied = holding

    def _lattice(self) -> tuple[int, Instant]:
        lattices = set()
        for node in self.nodes:
            assert isinstance(node.window, TimeSlide | Landmark)
            lattices.add((node.window.slide, node.window.anchor % node.window.slide))
        if len(lattices) != 1:
            raise UnsupportedQuery("windows of one FROM share slide and origin")
        return lattices.pop()

    def _ends(self, node: Windowed) -> list[Instant]:
        """Ends of the windows that hold a row of the node's stream."""
        times = [time_of(row, node) for row in self.rows[node]]
        if isinstance(node.window, TimeSlide):
            reach = [(self.next_end(at), at + node.window.range) for at in times]
        else:
            ended = times and self.limit == FOREVER
            every = (time_of(row, node) for row in self.all_rows[node]) if ended else ()
            last = max(map(self.next_end, every), default=self.limit)
            reach = [(self.next_end(at), last) for at in times]
        return [end for first, last in reach for end in range(first, last + 1, self.slide)]

    def next_end(self, at: Instant) -> Instant:
        """The first window end after an instant."""
        return at - (at - self.anchor) % self.slide + self.slide

    def closing(self, end: Instant) -> Closing:
        """The windows with that end."""
        frames = {}
        for node in self.nodes:
            window = node.window
            assert isinstance(window, TimeSlide | Landmark)
            number = (end - window.anchor) // window.slide
            held = tuple(row for row in self.rows[node] if window.holds(number, time_of(row, node)))
            start = window.bounds(number)[0] if isinstance(window, TimeSlide) else None
            frames[node] = Frame(held, start, end, number)
        return Closing(end, end - 1, frames, end in self.occupied)

    def closed(self, *, vacated: bool) -> list[tuple[Closing, Closing]]:
        """(before, now) for every closed window with an answer; with `vacated` also for those that follow one."""
        ends = set(self.occupied)
        if vacated and not any(isinstance(node.window, Landmark) for node in self.nodes):
            ends |= {end + self.slide for end in ends}
        return [
            (self.closing(end - self.slide), self.closing(end)) for end in sorted(ends) if end <= self.limit
        ]


def row_windows(
    query: Query, moment: Moment, limit: Instant, punctuation: Instant = BEGINNING
) -> list[tuple[Closing | None, Closing]]:
    """(before, now) for every window that ends at a row, each partition's one after the other.

    Rows numbered in stream order count when they are below `limit`, rows numbered by arrival count on arrival.
    """
    nodes = sliding_nodes(query)
    if len(nodes) != 1:
        raise UnsupportedQuery("a window that slides by rows is the only source of its FROM")
    (node,) = nodes
    window = node.window
    assert isinstance(window, RowsSlide | TupleSlide | Delta | Session | Custom)
    rows = stream_rows(node.source, moment)
    if isinstance(window, Delta):
        on = window.on
        rows = moment.rejects.survivors(rows, lambda row: row | {"#on": evaluate(on, row)})
    if isinstance(window, Custom):
        arguments = window.on
        rows = moment.rejects.survivors(
            rows, lambda row: row | {"#on": [evaluate(argument, row) for argument in arguments]}
        )
        every = [rows]
    else:
        every = partitions(rows, window.partition, moment.rejects)
    pairs: list[tuple[Closing | None, Closing]] = []
    for series, part in enumerate(every):
        before = None
        for emitted, frame in _frames(node, part, limit, punctuation):
            now = Closing(emitted, emitted, {node: frame}, series=series)
            pairs.append((before, now))
            before = now
    return pairs


def _frames(node: Windowed, part: list[Row], limit: Instant, punctuation: Instant) -> Emitted:
    if isinstance(node.window, Delta):
        return _delta_frames(node, part, limit, BEGINNING if punctuation == FOREVER else punctuation)
    if isinstance(node.window, Custom):
        return [(frame.end, frame) for frame in _user_frames(node, node.window, part) if frame.end <= limit]
    if isinstance(node.window, Session):
        frames = _session_frames
    else:
        frames = _rows_frames if isinstance(node.window, RowsSlide) else _tuple_frames
    return [(frame.end, frame) for frame in frames(node, part, limit)]


def _delta_frames(node: Windowed, part: list[Row], limit: Instant, punctuation: Instant) -> Emitted:
    """Each window with the row that begins the next one; when the stream has ended the last window at its last row, or at the
    punctuation if that was later.
    """
    window, groups, first = node.window, list[list[Row]](), None
    assert isinstance(window, Delta)
    for row in (row for row in part if time_of(row, node) < limit):
        value = None if row["#on"] is None or isnan(row["#on"]) else row["#on"]
        if not groups or (first is not None and window.leaves(first, value)):
            groups.append([])
            first = None
        groups[-1].append(row)
        first = value if first is None else first
    ends = [time_of(following[0], node) for following in groups[1:]]
    if limit == FOREVER and groups:
        ends.append(max(time_of(groups[-1][-1], node), punctuation))
    return [
        (end, Frame(tuple(held), time_of(held[0], node), time_of(held[-1], node), number))
        for number, (end, held) in enumerate(zip(ends, groups, strict=False), start=1)
    ]


def _rows_frames(node: Windowed, part: list[Row], limit: Instant) -> list[Frame]:
    window = node.window
    assert isinstance(window, RowsSlide)
    if window.numbered == "row_num":
        rows = sorted(part, key=lambda row: position_of(row, node))
    else:
        rows = [row for row in part if time_of(row, node) < limit]
    frames = []
    for number in range(1, len(rows) // window.slide + 1):
        last = number * window.slide
        held = tuple(rows[max(0, last - window.count) : last])
        frames.append(Frame(held, time_of(held[0], node), time_of(held[-1], node), number))
    return frames


def _tuple_frames(node: Windowed, part: list[Row], limit: Instant) -> list[Frame]:
    window = node.window
    assert isinstance(window, TupleSlide)
    arrived = window.numbered == "row_num"
    numbered = sorted(part, key=lambda row: position_of(row, node)) if arrived else part
    chosen = (row for number, row in enumerate(numbered, start=1) if number % window.every == 0)
    ends = sorted({end for row in chosen if (end := time_of(row, node)) < limit})
    return [
        Frame(
            tuple(row for row in part if window.holds(end, time_of(row, node))), end - window.range, end, end
        )
        for end in ends
    ]


def _session_frames(node: Windowed, part: list[Row], limit: Instant) -> list[Frame]:
    """The sessions that no later row, at `limit` or above, can join."""
    window = node.window
    assert isinstance(window, Session)
    sessions: list[list[Row]] = []
    for row in part:
        if sessions and time_of(row, node) - time_of(sessions[-1][-1], node) <= window.gap:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    frames = []
    for rows in sessions:
        start, end = time_of(rows[0], node), time_of(rows[-1], node) + window.gap
        if end < limit:
            frames.append(Frame(tuple(rows), start, end, start))
    return frames


def _user_frames(node: Windowed, window: Custom, rows: list[Row]) -> list[Frame]:
    """The windows that hold a row, in the order of their ends: `wids` has their numbers, `holds` tests their rows."""
    kind, frames = window.kind, []
    at = np.array([time_of(row, node) for row in rows], np.int64)
    columns = [
        pa.array([row["#on"][index] for row in rows], to_arrow(argument.type))
        for index, argument in enumerate(window.on)
    ]
    for number in sorted(set(np.asarray(kind.wids(at, *columns)[1]).tolist())):
        held = tuple(row for row in rows if kind.holds(number, time_of(row, node), *row["#on"]))
        start, end = (int(bound[0]) for bound in kind.bounds(np.array([number], np.int64)))
        frames.append(Frame(held, start, end, number))
    return sorted(frames, key=lambda frame: (frame.end, frame.id))


def slides_by_rows(query: Query) -> bool:
    """True when the windows depend on the rows."""
    return any(
        isinstance(node.window, RowsSlide | TupleSlide | Delta | Session | Custom)
        for node in sliding_nodes(query)
    )
