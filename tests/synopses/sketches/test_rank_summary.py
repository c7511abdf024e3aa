"""What is below a value, in a few points: within its bound for any order of batches and merges, and in little."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.synopses.sketches.rank_sketch import Ranking, decode
from headrace.synopses.sketches.rank_summary import Doubles, Ranks
from tests.synopses.families import FAMILIES

ORDERS = {
    "random": lambda random, rows: random.normal(size=rows),
    "rising": lambda random, rows: np.arange(rows) * 1.0,
    "falling": lambda random, rows: -np.arange(rows) * 1.0,
    "few values": lambda random, rows: random.integers(0, 9, rows) * 1.0,
    "one heavy value": lambda random, rows: np.where(
        random.random(rows) < 0.9, 5.0, random.normal(size=rows)
    ),
    "ends first": lambda random, rows: np.arange(rows) * (-1.0) ** np.arange(rows),
    "wide": lambda random, rows: random.lognormal(0, 9, rows),
}


def folded(kind: Ranking, values: Doubles, weights: Doubles | None, random: np.random.Generator) -> bytes:
    """One synopsis of all rows: batches of any size, merged in any tree."""
    cuts = np.sort(random.integers(0, len(values) + 1, random.integers(0, 40)))
    parts = np.split(np.arange(len(values)), cuts)
    none = np.zeros
    blobs = [
        kind.made(values[part], None if weights is None else weights[part], none(len(part), np.int64), 1)[0]
        for part in parts
    ]
    while len(blobs) > 1:
        some = int(random.integers(2, 5))
        place = int(random.integers(0, max(len(blobs) - some, 0) + 1))
        group = np.array([*blobs[place : place + some]], object)
        blobs[place : place + some] = [kind.merged(group, np.zeros(len(group), np.int64), 1)[0]]
    return bytes(blobs[0])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("order", ORDERS)
def test_what_lies_below_a_value_is_known_within_the_error_after_any_merges(order: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = ORDERS[order](random, 1500)
    error = Fraction(1, int(random.integers(3, 60)))
    decoded = decode([folded(Ranking(error), values, None, random)])
    assert decoded.totals.tolist() == [len(values)]
    for limit in [*random.choice(values, 40), values.min() - 1, values.max() + 1, values.mean()]:
        for strictly in (False, True):
            low, high = decoded.upto(np.array([limit]), strictly=strictly)
            true = ((values < limit) if strictly else (values <= limit)).sum()
            assert low[0] <= true <= high[0]
            assert high[0] - low[0] <= 2 * (len(values) * error.numerator // error.denominator)
    for share in (0.0, 0.01, 0.5, 0.99, 1.0):
        value, bound = decoded.quantile(share)
        assert abs(value[0] - np.percentile(values, 100 * share)) <= bound[0] * (1 + 1e-9) + 1e-9 * abs(
            value[0]
        )
        place = (len(values) - 1) * share
        assert (values < value[0]).sum() <= place + 2 * error * len(values) + 1
        assert (values <= value[0]).sum() >= place - error * len(values)
    assert len(decoded.values) <= 6 / error + 4, "some points for each part of the error"


@pytest.mark.parametrize("seed", range(4))
def test_weights_count_as_much_as_they_weigh(seed: int) -> None:
    random = np.random.default_rng(seed)
    values, weights = random.normal(size=800), random.lognormal(0, 3, 800)
    decoded = decode([folded(Ranking(Fraction(1, 20)), values, weights, random)])
    total = weights.sum()
    assert decoded.totals[0] == pytest.approx(total)
    for limit in random.choice(values, 30):
        low, high = decoded.upto(np.array([limit]))
        true = weights[values <= limit].sum()
        assert low[0] <= true * (1 + 1e-9)
        assert high[0] >= true * (1 - 1e-9)
        assert high[0] - low[0] <= total / 10 * (1 + 1e-9)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from((-0.0, 0.0, 1.0, 2.5, np.inf, -np.inf, np.nan))),
        max_size=30,
    ),
    st.sampled_from((0.0, 1.0, np.nan, np.inf, -np.inf)),
    st.booleans(),
)
def test_few_rows_are_counted_exactly_and_nan_is_above_every_number(
    rows: list[tuple[int, float]], limit: float, strictly: bool
) -> None:
    keys, values = np.array([k for k, _ in rows], np.int64), np.array([v for _, v in rows], np.float64)
    low, high = Ranks.of(keys, values, None, 4).upto(np.full(4, limit), strictly=strictly)
    assert low.tolist() == high.tolist()
    rank = np.where(np.isnan(values), np.inf, 0.0)
    with np.errstate(invalid="ignore"):
        below = np.isnan(limit) & ~np.isnan(values) | (values < limit)
        same = (values == limit) | (np.isnan(values) & np.isnan(limit))
    wanted = np.bincount(keys[below | (same & (not strictly))], minlength=4)
    assert low.tolist() == wanted.tolist(), rank


def test_one_key_does_not_round_another_s_weights() -> None:
    ranks = Ranks.of(np.array([0, 1, 1]), np.array([1.0, 1.0, 2.0]), np.array([1e20, 0.25, 0.5]), 2)
    low, _ = ranks.upto(np.array([1.0, 1.0]))
    assert low.tolist() == [1e20, 0.25]


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_of_ones_by_time_keep_their_error_on_the_adversaries_of_other_synopses(family: str) -> None:
    """Values are the places of ones: bursts, gaps and the lower bound's blocks are uneven in exactly the ways that hurt."""
    bits = FAMILIES[family](2000, 500, 20, np.random.default_rng(1))
    values = np.flatnonzero(bits).astype(float)
    if not len(values):
        return
    decoded = decode([folded(Ranking(Fraction(1, 10)), values, None, np.random.default_rng(2))])
    for limit in range(0, 2000, 97):
        low, high = decoded.upto(np.array([float(limit)]))
        assert low[0] <= (values <= limit).sum() <= high[0]
        assert high[0] - low[0] <= 2 * (len(values) // 10)
