"""Buckets with sizes of their own: histograms of several errors one after the other, as few buckets as each error allows, and every window within
half of the bucket that it cuts.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.synopses.histograms.bucket_coding import decoded_older, encoded_older
from headrace.synopses.histograms.buckets import Buckets
from headrace.synopses.histograms.canonical_form import Form
from headrace.synopses.histograms.exponential_histogram import Histograms
from tests.synopses.families import FAMILIES

KEYS = 3


def folded(form: Form, keys: np.ndarray, times: np.ndarray, counts: np.ndarray) -> Histograms:
    return Histograms.empty(form, KEYS).absorb(keys, times, counts)


def estimates(buckets: Buckets, start: int) -> list[tuple[int, int]]:
    """Per key the estimate of a window from `start` on, and its error."""
    cells, found = buckets.cells(), []
    for key in range(buckets.keys):
        live = np.flatnonzero((cells.keys == key) & (cells.times >= start))
        found.append((int(cells.weights[live].sum()), int(cells.slack[live[-1]]) if len(live) else 0))
    return found


def assert_within(buckets: Buckets, k: int, keys: np.ndarray, times: np.ndarray, counts: np.ndarray) -> None:
    for start in np.unique(np.r_[times, times + 1, 0]).tolist():
        for key, (value, error) in enumerate(estimates(buckets, start)):
            true = int(counts[(keys == key) & (times >= start)].sum())
            assert abs(value - true) <= error <= true // k
            assert (value > 0) == (true > 0)


@given(data=st.data())
def test_histograms_of_several_errors_one_after_the_other_are_within_the_largest(data: st.DataObject) -> None:
    """Thinned whenever the error rises, as a group is whose error changes from epoch to epoch."""
    first = data.draw(st.integers(1, 12), "k")
    parts = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4), "doubled")
    ones = st.tuples(st.integers(0, KEYS - 1), st.integers(0, 4), st.integers(0, 30))
    buckets, now = Buckets.of(Histograms.empty(Form(1, 1), KEYS)), 0
    all_rows: list[tuple[int, int, int]] = []
    for doubled in parts:
        rows = data.draw(st.lists(ones, max_size=40), "ones")
        keys, steps, counts = (np.array([row[n] for row in rows], np.int64) for n in range(3))
        times = now + np.cumsum(steps)
        now = int(times.max(initial=now))
        all_rows += zip(keys.tolist(), times.tolist(), counts.tolist(), strict=True)
        form = Form(first, -(-first // 2)).coarser(doubled)
        newer = folded(form, keys, times, counts)
        thin = buckets.thinned(form.first, newer.totals)
        assert len(thin.times) <= len(buckets.times)
        assert thin.totals().tolist() == buckets.totals().tolist()
        assert thin.thinned(form.first, newer.totals).times.tolist() == thin.times.tolist()
        buckets = Buckets.of(newer).followed_by(thin)
    keys, times, counts = (np.array([row[n] for row in all_rows], np.int64) for n in range(3))
    least = Form(first, 1).coarser(max(parts)).first
    assert_within(buckets, least, keys, times, counts)


@pytest.mark.parametrize("doubled", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_thinned_ones_are_about_as_few_as_a_histogram_of_the_error_has(family: str, doubled: int) -> None:
    form = Form(40, 20)
    counts = FAMILIES[family](6000, 3000, 20, np.random.default_rng(2))
    keys, times = np.zeros(len(counts), np.int64), np.arange(len(counts))
    fine, coarse = (folded(each, keys, times, counts) for each in (form, form.coarser(doubled)))
    thin = Buckets.of(fine).thinned(form.coarser(doubled).first, np.zeros(KEYS, np.int64))
    assert len(thin.times) <= 1.1 * len(coarse.times) + 4
    some = np.random.default_rng(3).choice(len(counts), 60, replace=False)
    for start in some.tolist():
        value, error = estimates(thin, start)[0]
        true = int(counts[start:].sum())
        assert abs(value - true) <= error <= true // form.coarser(doubled).first


@given(
    rows=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 1 << 40)), max_size=6), max_size=5),
    doubled=st.integers(0, 6),
)
def test_what_was_coded_is_decoded(rows: list[list[tuple[int, int]]], doubled: int) -> None:
    offsets = np.r_[0, np.cumsum([len(row) for row in rows])].astype(np.int64)
    bases = np.array([1000 + number for number in range(len(rows))], np.int64)
    times = [
        bases[n] - sum(step for step, _ in row[: i + 1])
        for n, row in enumerate(rows)
        for i in range(len(row))
    ]
    sizes = [size for row in rows for _, size in row]
    buckets = Buckets(offsets, np.array(times, np.int64), np.array(sizes, np.int64))
    coded = encoded_older(bases, buckets, doubled)
    found, doublings = decoded_older(bases, coded)
    assert doublings.tolist() == [doubled] * len(rows)
    assert found.offsets.tolist() == offsets.tolist()
    assert found.times.tolist() == buckets.times.tolist()
    assert found.sizes.tolist() == buckets.sizes.tolist()


def test_by_hand() -> None:
    """Ones at 9, 8, 7, 6; then two at 5 and four at 3; half of a bucket may be half of what is certainly in a window that cuts it, the first one included."""
    buckets = Buckets(np.array([0, 6, 6]), np.array([9, 8, 7, 6, 5, 3]), np.array([1, 1, 1, 1, 2, 4]))
    thin = buckets.thinned(2, np.array([0, 0]))
    assert thin.times.tolist() == [9, 8, 5, 3]
    assert thin.sizes.tolist() == [1, 3, 2, 4]
    assert estimates(thin, 6) == [(1 + 2, 1), (0, 0)]
    assert estimates(thin, 0) == [(1 + 3 + 2 + 2, 2), (0, 0)]
    assert thin.take(np.array([1, 0])).offsets.tolist() == [0, 0, 4]
    assert thin.since(8).times.tolist() == [9, 8]
    after_two = buckets.thinned(2, np.array([2, 0]))
    assert (after_two.times.tolist(), after_two.sizes.tolist()) == ([9, 6], [3, 7])
