"""The join plans of the benchmarks find the pairs that the definition of a window join names, in order or out of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.joins import Arrived, Rows, input_held, out_of_order, output_sorted
from benchmarks.disorder import low_watermarks
from benchmarks.suite.joins import Source, _rows_held

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


@pytest.mark.parametrize("way", [out_of_order, output_sorted, input_held])
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
    alone = _rows_held([sources[0]], [sources[1]], 10, 100)
    beside = _rows_held([sources[0]], [sources[1], sources[2]], 10, 100)
    assert beside.peak[1] - alone.peak[1] >= 20
    assert beside.mean[0] <= beside.mean[1]
