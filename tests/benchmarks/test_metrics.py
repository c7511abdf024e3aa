"""The metrics of a run with disorder, on eleven rows whose windows can be listed by hand."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.__main__ import EXPERIMENTS, SUITE
from benchmarks.disorder import Arrivals
from benchmarks.progressing import run

# The first row and the last have the same key. The first is in the windows that end at 10, 20, … 60.
AT = np.array([5, *[100] * 9, 6])
ARRIVALS = Arrivals(AT, np.zeros(11, np.int64))


def test_without_slack_a_late_row_is_lost_and_the_windows_it_belongs_to_are_wrong() -> None:
    result = run(ARRIVALS, "SLACK 0 SECONDS", epoch_rows=1)
    assert result.latency == np.mean([100 - end for end in (10, 20, 30, 40, 50, 60)])
    assert (result.lost, result.wrong) == (1 / 11, 1.0)


def test_with_enough_slack_or_promises_nothing_is_lost() -> None:
    waiting = run(ARRIVALS, "SLACK 100 SECONDS", epoch_rows=1)
    assert (waiting.lost, waiting.wrong) == (0, 0)
    assert math.isnan(waiting.latency), "no window is closed by the rows themselves"
    promised = run(ARRIVALS, "PUNCTUATED EXTERNALLY", epoch_rows=1, punctuate=True)
    assert (promised.lost, promised.wrong) == (0, 0)
    assert promised.latency == np.mean([100 - end for end in (10, 20, 30, 40, 50, 60)])


def test_the_peak_is_the_largest_state_of_an_epoch() -> None:
    waiting, lost = (run(ARRIVALS, f"SLACK {slack} SECONDS", epoch_rows=1) for slack in (100, 0))
    assert waiting.peak == max(waiting.state) > lost.state[-1]
    assert waiting.state[0] == 1, "the partial of one row"


def test_every_experiment_has_a_benchmark() -> None:
    assert list(EXPERIMENTS) == [f"E{number}" for number in range(1, 14)]
    assert set(EXPERIMENTS.values()) <= SUITE.keys()
