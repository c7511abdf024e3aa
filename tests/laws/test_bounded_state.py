"""Law 8, bounded state: when punctuation has passed rows, only what answers to come depend on is still there.

The bound of each kind of window is defined here in the words of the reference: rows of windows that may still answer, rows
that punctuation has not passed, what the last window of each partition held, one cell a group of what never ends. Runs are merged
after the last epoch, so that what is left is what the operator declares to need.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Distinct,
    Emit,
    Join,
    Query,
    Top,
    Windowed,
    find_window,
    walk,
)
from headrace.algebra.windows.window import (
    Custom,
    Delta,
    Landmark,
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
    slides,
)
from headrace.operators.relations.interval_blocks import LEVELS
from headrace.reference.evaluate import _moment
from headrace.reference.history import History, record
from headrace.reference.relational import Moment, partitions, stream_rows, time_of
from headrace.reference.scalar import evaluate
from headrace.reference.values import Row, row_identity
from headrace.reference.windows import row_windows
from headrace.time import Instant
from tests.examples import examples
from tests.laws import strategies as some
from tests.laws.driving import described, driven, epochs
from tests.laws.test_laws import KINDS, SCHEMAS

CELLS = ("count", "sum", "avg", "min", "max", "var_samp", "var_pop", "stddev_samp", "stddev_pop")
"""Aggregates that are one cell a group."""
LONG = 1000 * some.TICK
MATCHES = 2
"""Rows of the relation that one row meets at most."""


def history_of(seed: int, count: int, cuts: int, slack: int, by: int) -> History:
    """Rows as those of other laws, but many, and at the end an epoch without rows that moves punctuation on `by`."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "k": [None, "a", "b", ""][rng.integers(4)],
            "g": [None, 0, 1, 2][rng.integers(4)],
            "x": [None, *range(-3, 7)][rng.integers(11)],
            "y": [None, 0.5, -1.25, 3.0, math.nan][rng.integers(5)],
            "at": (index + int(rng.integers(-3, 1))) * some.TICK,
        }
        for index in range(-5, count - 5)
    ]
    places = [0, *sorted(rng.integers(0, count + 1, cuts).tolist()), count]
    stream = record([rows[low:high] for low, high in itertools.pairwise(places)], "at", slack * some.TICK)
    last = max([stream.punctuation, *(row.at for row in stream.rows)])
    names = [{"id": 1, "name": "one"}, {"id": 1, "name": "two"}, {"id": 2, "name": None}]
    assert len(names) == MATCHES + 1
    passed = replace(stream, punctuations=(*stream.punctuations, last + by))
    return History({"s": passed}, {"names": tuple(names)})


def declared(query: Query, history: History) -> int:
    """How many rows of state the query may have, once merged."""
    node = find_window(query.root)
    assert node is not None
    closed = history.punctuation(query)
    moment = _moment(query, history, None)
    snapshot = any(isinstance(inner, Bounds) for inner in walk(query.root))
    needs = of_snapshot if snapshot else NEEDS[type(node.window)]
    needed, beside = needs(query, node, moment, closed)
    return _copies(query) * needed + beside


def _copies(query: Query) -> int:
    """In how many places one row may be at once: a store for each aggregate besides the plain one, once for each match."""
    stores = 1 + sum(isinstance(node, Aggregate) and len(node.aggregates) for node in walk(query.root))
    matched = any(isinstance(node, Join) for node in walk(query.root))
    return stores * (MATCHES if matched else 1)


def of_time(query: Query, node: Windowed, moment: Moment, closed: Instant) -> tuple[int, int]:
    """Rows of windows that have not ended, once for each level of blocks; for ISTREAM also the last window that has."""
    window = node.window
    assert isinstance(window, TimeSlide)
    times = [time_of(row, node) for row in stream_rows(node.source, moment)]
    ends = [at + window.range - (at + window.range - window.anchor) % window.slide for at in times]
    opened = sum(end > max(at, closed) for at, end in zip(times, ends, strict=True))
    last = (closed - window.anchor) // window.slide
    levels = (2 * window.range // window.slide + 2).bit_length()
    emits_changes = isinstance(query.root, Emit) and query.root.kind != "rstream"
    before = MATCHES * sum(window.holds(last, at) for at in times) + 1 if emits_changes else 0
    return levels * opened, 2 * query.emit_empty + before


def of_landmark(query: Query, node: Windowed, moment: Moment, closed: Instant) -> tuple[int, int]:
    """What has no end: a cell a group, or every row; rows that no end has passed yet."""
    window = node.window
    assert isinstance(window, Landmark)
    rows = stream_rows(node.source, moment)
    edge = closed - (closed - window.anchor) % window.slide
    waiting = sum(time_of(row, node) >= edge for row in rows)
    return waiting + 2 * for_ever(query, node, rows, moment), 2 * query.emit_empty + 1


def of_all(query: Query, node: Windowed, moment: Moment, closed: Instant) -> tuple[int, int]:
    """The same for a relation of everything; rows that are only inserted are emitted and expire."""
    if query.emission == "stream" and not isinstance(query.root, Emit):
        return 0, 0
    rows = stream_rows(node.source, moment)
    waiting = sum(time_of(row, node) >= closed for row in rows)
    return waiting + 2 * for_ever(query, node, rows, moment), 2


def for_ever(query: Query, node: Windowed, rows: list[Row], moment: Moment) -> int:
    """Groups where every aggregate is one cell, else rows; none where a row is emitted once and never retracted."""
    aggregates = [inner for inner in walk(query.root) if isinstance(inner, Aggregate)]
    if not aggregates:
        once = not slides(node.window) and not any(
            isinstance(inner, Top | Distinct) for inner in walk(query.root)
        )
        return 0 if once else len(rows)
    (whole,) = aggregates
    if not all(item.call.function in CELLS and not item.call.distinct for item in whole.aggregates):
        return len(rows)
    names = tuple(str(index) for index in range(len(whole.keys)))
    groups = {
        row_identity(
            {name: evaluate(key.expression, row) for name, key in zip(names, whole.keys, strict=True)}, names
        )
        for row in rows
    }
    return max(1, len(groups))


def of_range(query: Query, node: Windowed, moment: Moment, closed: Instant) -> tuple[int, int]:
    """Rows that hold at the next instant to emit, at every level of buckets; the answers that hold; one first instant."""
    window = node.window
    assert isinstance(window, TimeRange)
    rows = stream_rows(node.source, moment)
    held = sum(time_of(row, node) + window.range >= closed for row in rows)
    return (LEVELS + 3) * held, 2


def of_snapshot(query: Query, node: Windowed, moment: Moment, closed: Instant) -> tuple[int, int]:
    """Rows between the bounds, where NOW is not moved by punctuation, and those that may come between them."""
    (bounds,) = (inner for inner in walk(query.root) if isinstance(inner, Bounds))
    times = [time_of(row, node) for row in stream_rows(node.source, moment)]
    now = max(times, default=closed)
    begin = now - bounds.begin.duration if isinstance(bounds.begin, Ago) else bounds.begin
    held = sum(at >= min(begin, closed) for at in times)
    return (LEVELS + 3) * held, 2


def of_last(query: Query, node: Windowed, moment: Moment, closed: Instant) -> tuple[int, int]:
    """The last n rows of each partition."""
    window = node.window
    assert isinstance(window, Rows)
    rows = stream_rows(node.source, moment)
    waiting = [row for row in rows if time_of(row, node) >= closed]
    passed = [row for row in rows if time_of(row, node) < closed]
    stored = sum(
        min(window.count, len(part)) for part in partitions(passed, window.partition, moment.rejects)
    )
    return len(waiting) + stored, 1


def of_rows(query: Query, node: Windowed, moment: Moment, closed: Instant) -> tuple[int, int]:
    """Rows that wait and those of windows to come; of each partition the last window, and how far it has come."""
    window = node.window
    rows = stream_rows(node.source, moment)
    needed = sum(time_of(row, node) >= closed for row in rows)
    emits_changes = (
        isinstance(query.root, Emit) and query.root.kind != "rstream"
    )  # what differs of the last from the one before
    lasts = {closing.series: (before, closing) for before, closing in row_windows(query, moment, closed)}
    both = [
        each
        for pair in lasts.values()
        for each in (*(pair if emits_changes else ()), pair[1])
        if each is not None
    ]
    shown = sum(len(frame.rows) + 1 for each in both for frame in each.frames.values())
    if isinstance(window, Custom):
        ends = [(number, window.kind.bounds(np.array([number], np.int64))[1][0]) for number in range(-60, 60)]
        opened = [number for number, end in ends if end > closed]
        values_of = [tuple(evaluate(each, row) for each in window.on) for row in rows]
        needed += sum(
            window.kind.holds(number, time_of(row, node), *values)
            for number in opened
            for row, values in zip(rows, values_of, strict=True)
        )
        return needed, MATCHES * shown + 1
    parts = partitions(rows, window.partition, moment.rejects)
    if isinstance(window, RowsSlide):  # rows as they are; the last window is among them
        stored = sum(min(len(part), window.count + (1 + emits_changes) * window.slide) for part in parts)
        return 0, MATCHES * (needed + stored)
    if isinstance(window, TupleSlide):
        needed += sum(closed - window.range < time_of(row, node) < closed for row in rows)
    else:
        ended = {
            id(row)
            for _, each in row_windows(query, moment, closed)
            for frame in each.frames.values()
            for row in frame.rows
        }
        needed += sum(id(row) not in ended for row in rows)
    return needed, MATCHES * shown + 3 * len(parts)


NEEDS = {
    TimeSlide: of_time,
    Landmark: of_landmark,
    Unbounded: of_all,
    TimeRange: of_range,
    Rows: of_last,
    RowsSlide: of_rows,
    TupleSlide: of_rows,
    Delta: of_rows,
    Session: of_rows,
    Custom: of_rows,
}


HISTORIES = st.builds(
    history_of,
    st.integers(0, 10**6),
    st.integers(15, 40),
    st.integers(0, 4),
    st.sampled_from((0, 2, 6)),
    st.sampled_from((LONG, 3 * some.TICK, 0)),
)


@pytest.mark.parametrize("kind", KINDS)
@examples(16)
@given(data=st.data())
def test_what_is_left_when_punctuation_has_passed_is_what_answers_to_come_depend_on(
    kind: str, data: st.DataObject
) -> None:
    query = data.draw(KINDS[kind](), "query")
    history = data.draw(HISTORIES, "history")
    note(described(query))
    last = len(epochs(history.streams["s"])) - 1
    merges = data.draw(st.sets(st.integers(0, last)), "compactions") | {last}
    run = driven(query, history, SCHEMAS, tasks=1, final=False, compact_after=merges)
    assert run.state_rows <= declared(query, history)
