"""The generated streams have the disorder that their names promise."""

from __future__ import annotations

import numpy as np

from benchmarks import disorder

ROWS, SECONDS = 3000, 300


def test_a_band_is_no_deeper_than_asked_for() -> None:
    shallow, deep = (disorder.measured(disorder.band(ROWS, SECONDS, depth, 1)) for depth in (5, 50))
    assert shallow.slack <= 5
    assert 40 <= deep.slack <= 50
    assert deep.displaced > shallow.displaced > 0.5
    assert disorder.measured(disorder.band(ROWS, SECONDS, 0, 1)) == disorder.Disorder(0, 0, 0.0)


def test_a_dumped_cache_is_sorted_by_blocks_and_by_nothing_else() -> None:
    arrivals = disorder.block_sorted(ROWS, SECONDS, 30, 2)
    blocks = arrivals.at // 30
    assert (np.diff(blocks) >= 0).all()
    assert 25 <= disorder.measured(arrivals).slack < 30


def test_skewed_sources_are_in_order_each_and_apart_by_their_skew() -> None:
    arrivals = disorder.skewed(ROWS, SECONDS, (0, 20, 45), 3)
    assert all((np.diff(arrivals.at[arrivals.source == source]) >= 0).all() for source in range(3))
    assert 43 <= disorder.measured(arrivals).slack <= 46
    behind = np.maximum.accumulate(arrivals.at) - arrivals.at
    for source, skew in enumerate((0, 20, 45)):
        assert abs(np.median(behind[arrivals.source == source]) - skew) <= 2


def test_a_lull_holds_back_what_would_arrive_in_it() -> None:
    arrivals, plain = disorder.lulls(ROWS, SECONDS, ((100, 160),), 5, 4), disorder.band(ROWS, SECONDS, 5, 4)
    assert disorder.measured(arrivals).slack > 50 > disorder.measured(plain).slack
    assert sorted(arrivals.at.tolist()) == sorted(plain.at.tolist())


def test_the_share_of_late_rows_is_as_asked_for() -> None:
    measured = disorder.measured(disorder.mostly_punctual(ROWS, SECONDS, 0.1, 60, 5))
    assert 0.06 <= measured.displaced <= 0.13
    assert 40 <= measured.slack <= 60


def test_no_bound_above_the_low_watermark_holds_and_that_one_does() -> None:
    at = disorder.band(200, 40, 9, 6).at
    low = disorder.low_watermarks(at)
    assert all((at[index + 1 :] >= low[index]).all() for index in range(len(at)))
    assert all(low[index] in at[index + 1 :] for index in range(len(at) - 1))


def test_the_rows_of_slack_that_are_measured_are_needed_and_enough() -> None:
    at = np.array([5, 3, 9, 4, 8, 2, 10])
    assert disorder.measured(disorder.Arrivals(at, at * 0)) == disorder.Disorder(7, 5, 4 / 7)
