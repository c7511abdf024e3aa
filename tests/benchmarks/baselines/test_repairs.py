"""Misprints and gaps of the texts on histograms and correlated aggregates: what is printed fails where the repair does not.

Those of buckets, canonical forms and general functions are with the tests of their subjects, in the other files of this folder.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import comb, log2

import numpy as np
import pytest

from benchmarks.baselines.correlated.correlated import AboveMean
from benchmarks.baselines.correlated.focused_histograms import STRATEGIES, FocusedHistograms, Strategy
from benchmarks.baselines.correlated.sliding_correlated import SlidingAboveMean, SlidingNearMinimum
from benchmarks.correlated_data import FACTORS, GENERATORS, Doubles, multifrac, zipf
from benchmarks.lower_bounds import block_length, blocks, least_bits, streams
from benchmarks.rmse import of_last
from headrace.synopses.histograms.canonical_form import Form
from headrace.synopses.histograms.exponential_histogram import Histograms
from tests.benchmarks.baselines.one_key import followed

WINDOWS = [(window, k) for window in (100, 400, 1000, 5000, 100_000) for k in (4, 8, 20, 40)]


def test_the_floor_of_the_number_of_blocks_fits_into_a_window_and_the_ceiling_does_not() -> None:
    """R6: lg(N/B) rounded up, as Lemma 1 has it once, would need more instants than there are."""
    overfull = 0
    for window, k in WINDOWS:
        base, many = block_length(window, k), blocks(window, k)
        assert many == int(np.floor(log2(window / base)))
        assert base * (2**many - 1) <= window
        overfull += base * (2 ** int(np.ceil(log2(window / base))) - 1) > window
    assert overfull > 0


def test_what_may_fail_needs_fewer_bits_and_not_more() -> None:
    """R7: with the printed sign, being right only half of the time would take more memory than being right always."""
    for window, k in WINDOWS:
        surely, hardly = least_bits(window, k), least_bits(window, k, 0.5)
        assert hardly == pytest.approx(surely - 1), "a coin says which half of the streams are distinguished"
        printed = surely - log2(1 - 0.5)
        assert printed > surely, "what always succeeds is also right half of the time, in `surely` bits"
        assert k > 2 * window**0.5 or surely >= k / 16 * log2(window / k) ** 2, "Theorem 2"


def test_any_two_streams_of_the_lower_bound_are_distinguished() -> None:
    """While zeros follow; so the count of streams is one of states that are needed."""
    window, k, random = 64, 8, np.random.default_rng(1)
    base, many = block_length(window, k), blocks(window, k)
    assert streams(window, k) == comb(base, k // 4) ** many
    choices = list(itertools.combinations(range(base), k // 4))
    drawn = {tuple(random.integers(0, len(choices), many).tolist()) for _ in range(60)}
    signatures = set()
    for members in drawn:
        parts = []
        for level, member in enumerate(members):
            block = np.zeros((base, 1 << level), np.int64)
            block[list(choices[member])] = 1
            parts.insert(0, block.ravel())
        ones = np.flatnonzero(np.concatenate(parts))
        counted = Histograms.empty(Form(k, k // 2), 1).absorb(np.zeros(len(ones), np.int64), ones)
        now = sum(map(len, parts))
        signatures.add(tuple(int(counted.estimate(now + zeros - window)[0][0]) for zeros in range(window)))
    assert len(signatures) == len(drawn)


def test_an_error_over_the_last_w_positions_is_over_w_of_them() -> None:
    """R22: from n - w to n there are w + 1, so a constant error would come out greater than it is."""
    errors, window = np.full(40, 3.0), 10
    assert of_last(errors, window).tolist() == [3.0] * 31
    printed = [np.sqrt((errors[n - window : n + 1] ** 2).sum() / window) for n in range(window, 40)]
    assert min(printed) > 3.1
    one = np.r_[np.zeros(20), 5.0, np.zeros(19)]
    assert np.count_nonzero(of_last(one, window)) == window


@dataclass
class ConstantSpace:
    """As printed: buckets alone. Which row leaves is not known, so a part of every bucket leaves instead."""

    window: int
    bounds: Doubles
    weights: Doubles = field(default_factory=lambda: np.zeros(10))
    rows: int = 0

    def add(self, value: float, mean: float) -> float:
        if self.rows == self.window:
            self.weights *= 1 - 1 / self.window
        self.rows = min(self.rows + 1, self.window)
        bucket = np.clip(np.searchsorted(self.bounds, value, side="right") - 1, 0, 9)
        self.weights[bucket] += 1
        held = FocusedHistograms(self.bounds[None], self.weights[None])
        return float(self.weights.sum() - held.below(np.array([[mean]]))[0, 0])


def test_the_row_that_leaves_has_to_be_known() -> None:
    """R23: "constant space" is for the buckets; without the rows themselves a window that changed does not expire."""
    window, random = 200, np.random.default_rng(3)
    few, side = random.random(1600) < 0.1, np.where(np.arange(1600) // 400 % 2 == 0, 1, -1)
    x = (
        50 + side * np.where(few, 18, -2) + random.normal(0, 1, 1600)
    )  # the mean stays, what is above it does not
    held = [x[max(index - window + 1, 0) : index + 1] for index in range(1600)]
    means = np.array([part.mean() for part in held])
    exact = np.array([(part > mean).sum() for part, mean in zip(held, means, strict=True)])
    printed = ConstantSpace(window, np.linspace(0, 100, 11))
    blind = np.array(
        [printed.add(value, mean) for value, mean in zip(x.tolist(), means.tolist(), strict=True)]
    )
    ours = followed(SlidingAboveMean.empty(1, window), x)
    errors = [of_last(answers - exact, window).mean() for answers in (ours, blind)]
    assert 2 * errors[0] < errors[1], errors


def test_an_exponent_of_seven_would_make_nearly_all_values_equal() -> None:
    """R24: printed, lambda = 7; a lost point: with 0.7 the least value is as rare as any."""
    printed, ours = (zipf(4000, np.random.default_rng(2), exponent) for exponent in (7.0, 0.7))
    assert (printed == printed.min()).mean() > 0.95
    assert (ours == ours.min()).mean() < 0.05
    near = [(x < FACTORS["ZIPF"] * x.min()).mean() for x in (printed, ours)]
    assert near[0] == 1.0, "eps = 1000 would ask for every row"
    assert near[1] < 0.5


def landmark_above(x: Doubles) -> Doubles:
    means = np.cumsum(x) / np.arange(1, len(x) + 1)
    return np.array([(x[: index + 1] > mean).sum() for index, mean in enumerate(means.tolist())])


@pytest.mark.parametrize("method", ["wholesale uniform", "wholesale quantile"])
def test_following_the_mean_at_every_row_smears_what_was_counted(method: str) -> None:
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(2):
        x = GENERATORS["MULTIFRAC"](2000, np.random.default_rng(seed))
        exact = landmark_above(x)
        for lazy, found_errors in errors.items():
            received = followed(AboveMean.empty(1, 10, STRATEGIES[method], lazy=lazy), x)
            found_errors.append(float(np.sqrt(np.mean((received - exact) ** 2))))
    assert 3 * np.mean(errors[True]) < np.mean(errors[False]), errors


def test_an_open_pane_of_a_few_rows_makes_the_region_jump() -> None:
    errors: dict[bool, list[float]] = {True: [], False: []}
    window, factor = 500, 100.0
    for seed in range(3):
        x = multifrac(2500, np.random.default_rng(seed), levels=14)
        least = [x[max(index - window + 1, 0) : index + 1].min() for index in range(2500)]
        exact = np.array(
            [(x[max(p - window + 1, 0) : p + 1] < factor * low).sum() for p, low in enumerate(least)]
        )
        for closed, found_errors in errors.items():
            synopsis = SlidingNearMinimum.empty(
                1, factor, window, strategy=Strategy(), rebuilds=False, closed_panes=closed
            )
            received = followed(synopsis, x)
            found_errors.append(float(of_last(received - exact, window).mean()))
    assert np.mean(errors[True]) < np.mean(errors[False]), errors


def test_weights_below_zero_are_counted_and_not_hidden() -> None:
    """A row that leaves another bucket than it entered: the drift is reported, and counting again ends it."""
    negatives = {}
    for rebuilds in (True, False):
        synopsis = SlidingAboveMean.empty(1, 100, z=1.0, rebuilds=rebuilds)
        followed(synopsis, GENERATORS["USAGE"](1500, np.random.default_rng(4)))
        assert synopsis.histograms.weights.sum() == pytest.approx(100)
        negatives[rebuilds] = int(synopsis.negative[0])
    assert negatives[False] > negatives[True], negatives
