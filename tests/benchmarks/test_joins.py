"""The join plans of the benchmarks find the pairs that the definition of a window join names, in order or out of it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.joins import (
    NONE,
    Arrived,
    Rows,
    global_order,
    input_held,
    out_of_order,
    output_sorted,
    pairs_of,
)
from benchmarks.disorder import low_watermarks
from benchmarks.suite.joins import in_step
from benchmarks.suite.joins_unions import Source, rows_held
from benchmarks.window_join_runner import window_join

STREAM = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=14)


def steps_of(streams: tuple[list[tuple[int, int]], list[tuple[int, int]]], size: int) -> list[Arrived]:
    """The streams a few rows at a time, with the true low watermark of each; at the end both are complete."""
    low = [low_watermarks(np.array([at for at, _ in stream])) for stream in streams]
    steps = []
    for start in range(0, max(map(len, streams)) + size, size):
        rows, bounds = [], []
        for stream, known in zip(streams, low, strict=True):
            part = stream[start : start + size]
            rows.append(Rows(*(np.array([row[place] for row in part], np.int64) for place in (0, 1))))
            done = start + size >= len(stream)
            bounds.append(99 if done else int(known[start + size - 1]))
        steps.append(Arrived((rows[0], rows[1]), (bounds[0], bounds[1])))
    return steps


@pytest.mark.parametrize("way", [out_of_order, output_sorted, input_held, window_join])
@given(
    left=STREAM, right=STREAM, ranges=st.tuples(st.integers(0, 8), st.integers(0, 8)), size=st.integers(1, 5)
)
def test_every_plan_finds_each_pair_once_and_keeps_its_word(
    way, left: list[tuple[int, int]], right: list[tuple[int, int]], ranges: tuple[int, int], size: int
) -> None:
    joined = way(steps_of((left, right), size), ranges)
    wanted = sorted(
        (l_at, r_at)
        for l_at, l_key in left
        for r_at, r_key in right
        if l_key == r_key and l_at - ranges[1] <= r_at <= l_at + ranges[0]
    )
    pairs = [list(zip(*(side.tolist() for side in step), strict=True)) for step in joined.pairs]
    assert sorted(pair for step in pairs for pair in step) == wanted
    for number, complete in enumerate(joined.complete):
        later = [pair for step in pairs[number + 1 :] for pair in step]
        assert all(t0 >= complete for t0, _ in later)


def test_a_row_stays_joinable_for_the_range_of_its_own_stream() -> None:
    """Query Q5-8 of the thesis: three minutes on the left, two on the right; its equation has them exchanged."""
    left, right = [(180, 0)], [(659, 0), (360, 0), (361, 0), (60, 0), (59, 0)]
    joined = out_of_order(steps_of((left, right), 9), (180, 120))
    assert sorted(joined.pairs[0][1].tolist()) == [60, 360]


def test_repair_19_a_late_input_makes_the_other_side_wait_for_its_delay_and_its_range() -> None:
    """Golden example 12: band of two minutes, S0 at most five late, S1 in order. S0 is kept 2 minutes, S1 7 (printed: 5)."""
    minute, band = 60, (120, 120)
    keys = np.zeros(1, np.int64)
    steps = []
    for now in range(0, 30 * minute, minute):
        seen = Rows(np.array([now]), keys), Rows(np.array([now]), keys)
        steps.append(Arrived(seen, (now - 5 * minute, now)))
    late = 24 * minute  # the last row of S0 comes as late as it may
    last = Rows(np.array([late]), keys), Rows(np.array([], np.int64), keys[:0])
    steps.append(Arrived(last, (29 * minute, 29 * minute)))
    kept_of_first, kept_of_second = 2, 7
    joined = out_of_order(steps, band)
    assert joined.held[-2] == kept_of_first + 1 + kept_of_second + 1, (
        "one row a minute, both ends of the band counted"
    )
    expected = [at for at in range(0, 30 * minute, minute) if late - band[1] <= at <= late + band[0]]
    assert sorted(joined.pairs[-1][1].tolist()) == expected
    kept_as_printed = [at for at in expected if at >= 29 * minute - 5 * minute]
    assert kept_as_printed != expected, "five minutes of S1 would have lost pairs of the late row"


def test_the_plan_in_order_holds_what_waits_for_a_late_source() -> None:
    sources = [Source(np.arange(0, 100_000, 1000), late) for late in (0.0, 0.0, 20.0)]
    alone = rows_held([sources[0]], [sources[1]], 10, 100)
    beside = rows_held([sources[0]], [sources[1], sources[2]], 10, 100)
    assert beside.peak[1] - alone.peak[1] >= 20
    assert beside.mean[0] <= beside.mean[1]


def both_of(steps: list[Arrived]) -> tuple[Rows, Rows]:
    """All rows of both streams."""
    left, right = NONE, NONE
    for step in steps:
        left, right = left.and_(step.rows[0]), right.and_(step.rows[1])
    return left, right


def behind(steps: list[Arrived], by: int) -> list[Arrived]:
    """The second stream so many steps later."""
    bounds = [step.bounds[1] for step in steps]
    return [
        Arrived(
            (step.rows[0], steps[number - by].rows[1] if number >= by else NONE),
            (step.bounds[0], bounds[number - by] if number >= by else 0),
        )
        for number, step in enumerate(steps)
    ]


def counted(pairs: list[tuple[np.ndarray, np.ndarray]]) -> Counter[tuple[int, int]]:
    return Counter(pair for t0, t1 in pairs for pair in zip(t0.tolist(), t1.tolist(), strict=True))


def test_the_order_of_arrival_is_right_for_streams_in_step_and_wrong_where_one_is_behind() -> None:
    """G10: with the second stream a second behind, pairs whose first row is two to three seconds earlier must appear, and do not; G9:
    rows that are too far from each other are joined.
    """
    steps, ranges = in_step(8), (3000, 2000)
    assert counted(global_order(steps, ranges).pairs) == counted([pairs_of(*both_of(steps), ranges)])
    apart = behind(steps, 4)
    wanted = counted([pairs_of(*both_of(apart), ranges)])
    for exact in (out_of_order, window_join):
        assert counted(exact(apart, ranges).pairs) == wanted
    lost = wanted - counted(global_order(apart, ranges).pairs)
    assert len(lost) > 20
    assert all(-3000 <= t0 - t1 <= -2000 + 500 for t0, t1 in lost)
    far = behind(steps, 12)
    wrong = counted(global_order(far, ranges).pairs) - counted([pairs_of(*both_of(far), ranges)])
    assert len(wrong) > 20
    assert all(t0 - t1 > 2000 for t0, t1 in wrong)


def test_our_operator_holds_what_the_algorithm_out_of_order_holds() -> None:
    """Also where one stream is behind, after every step."""
    for steps in (in_step(8), behind(in_step(8), 6)):
        assert window_join(steps, (2000, 1000)).held == out_of_order(steps, (2000, 1000)).held
