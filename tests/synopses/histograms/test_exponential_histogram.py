"""Counts over windows stay within their bound at every instant, and each repair of the printed text is needed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.histograms.batch_counting import Counting
from headrace.errors import UserError
from headrace.synopses.arrays import Ints
from headrace.synopses.histograms.canonical_form import Form
from headrace.synopses.histograms.exponential_histogram import Histograms
from tests.synopses.families import FAMILIES
from tests.synopses.one_by_one import OneByOne

ELEMENTS, WINDOW = 450, 150


def form(k: int) -> Form:
    return Form.within(Fraction(1, k))


def held(values: Ints, now: int, window: int) -> int:
    return int(values[max(0, now - window) : now].sum())


def partial_column(counted: Histograms, values: Ints, start: int, stop: int, window: int) -> Histograms:
    """Elements start..stop-1 taken in as one batch, in windows of at most `window` elements."""
    times = np.flatnonzero(values[start:stop]) + start
    added = counted.since(start - window).absorb(np.zeros(len(times), np.int64), times, values[times])
    return added.since(stop - window)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 40])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_error_is_at_most_one_kth_of_the_truth_at_every_instant_and_for_every_smaller_window(
    family: str, k: int, seed: int
) -> None:
    values = FAMILIES[family](ELEMENTS, WINDOW, k, np.random.default_rng((k, seed)))
    counted = Histograms.empty(form(k), 1)
    for now in range(1, ELEMENTS + 1):
        counted = partial_column(counted, values, now - 1, now, WINDOW)
        for window in (WINDOW, 1 + now % WINDOW):
            true = held(values, now, window)
            estimate, slack = (int(part[0]) for part in counted.estimate(now - window))
            assert abs(estimate - true) <= slack
            assert k * slack <= true
            assert (estimate > 0) == (true > 0), "a window that holds something never looks empty"


@given(data=st.data())
def test_any_cut_into_batches_keeps_the_bound_for_many_keys(data: st.DataObject) -> None:
    keys, k = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 12))
    rows = data.draw(
        st.lists(
            st.tuples(st.integers(0, keys - 1), st.integers(0, 3), st.sampled_from((0, 1, 1, 2, 7, 1000))),
            max_size=80,
        )
    )
    owner, counts = (np.array([row[place] for row in rows], np.int64) for place in (0, 2))
    times = np.cumsum(np.array([row[1] for row in rows], np.int64))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    length = data.draw(st.integers(1, 60))
    counter = Counting(Histograms.empty(form(k), keys), length)
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        counter.add(owner[start:stop], times[start:stop], counts[start:stop])
        if data.draw(st.booleans()):
            counter.settle()
        since = int(times[stop - 1]) - data.draw(st.integers(0, length - 1)) if stop else 0
        true = np.zeros(keys, np.int64)
        live = times[:stop] >= since
        np.add.at(true, owner[:stop][live], counts[:stop][live])
        estimates, slack = counter.estimate(since)
        assert (np.abs(estimates - true) <= slack).all()
        assert (k * slack <= true).all()


@given(st.integers(1, 9), st.lists(st.integers(0, 9), max_size=120), st.data())
def test_batches_come_to_what_one_by_one_insertion_comes_to(
    k: int, steps: list[int], data: st.DataObject
) -> None:
    times = np.cumsum(np.array(steps, np.int64))
    slow = OneByOne(k)
    for time in times.tolist():
        slow.insert(time)
    counted = Histograms.empty(form(k), 1)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(times)), max_size=4)))
    for start, stop in zip([0, *cuts], [*cuts, len(times)], strict=True):
        counted = counted.absorb(np.zeros(stop - start, np.int64), times[start:stop])
    assert list(zip(counted.times.tolist(), counted.sizes().tolist(), strict=True)) == slow.buckets
    assert slow.merges <= max(len(times), 1), "a one costs at most one merge, amortised"


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_the_canonical_form_is_valid_and_the_only_one(k: int) -> None:
    cut = form(k)
    counts = np.arange(1, 3000)
    levels = cut.levels(counts)
    sizes = 1 << np.arange(levels.shape[1])
    assert (levels @ sizes == counts).all()
    least = np.where(np.arange(levels.shape[1]) == 0, cut.first, cut.rest)
    top = levels.shape[1] - 1 - np.argmax(levels[:, ::-1] > 0, axis=1)
    below = np.arange(levels.shape[1]) < top[:, None]
    assert (levels <= least + 1).all()
    assert (levels >= least)[below].all()
    valid = {
        tuple(row): int(row @ sizes)
        for row in np.stack(np.meshgrid(*[np.arange(n + 2) for n in least[:4]], indexing="ij"), -1).reshape(
            -1, 4
        )
        @ np.eye(4, levels.shape[1], dtype=np.int64)
        if (filled := np.flatnonzero(row)).size and (row >= least)[: filled[-1]].all()
    }
    assert len(set(valid.values())) == len(valid), "two forms of one count"


def test_the_worked_example_is_for_two_buckets_of_a_size_at_most() -> None:
    """32 16 8 8 4 4 2 1 1, then a one, then two: as in the text, which has k/2 = 2; it holds for k/2 = 1."""
    slow = OneByOne(2, ones_up_to=2, others_up_to=2)
    slow.buckets = [(0, size) for size in (1, 1, 2, 4, 4, 8, 8, 16, 32)]
    slow.insert(1)
    assert [size for _, size in slow.buckets] == [1, 2, 2, 4, 4, 8, 8, 16, 32]
    slow.insert(2)
    slow.insert(3)
    assert [size for _, size in slow.buckets] == [1, 2, 4, 8, 16, 16, 32]
    as_said = OneByOne(4, ones_up_to=3, others_up_to=3)
    as_said.buckets = [(0, size) for size in (1, 1, 2, 4, 4, 8, 8, 16, 32)]
    as_said.insert(1)
    assert [size for _, size in as_said.buckets] != [1, 2, 2, 4, 4, 8, 8, 16, 32]


def worst(slow: OneByOne, values: Ints, window: int) -> float:
    """The largest relative error at any instant."""
    error = 0.0
    for now in range(1, len(values) + 1):
        if values[now - 1]:
            slow.insert(now - 1)
        slow.expire(now - window)
        true = held(values, now, window)
        if true:
            error = max(error, abs(slow.estimate(now - window) - true) / true)
    return error


@pytest.mark.parametrize(
    ("repair", "printed"),
    [
        ("a merged bucket keeps the newer time", {"merged_keeps_newer": False}),
        ("there are k to k + 1 buckets of size 1", {"ones_up_to": 6}),
        ("a lone bucket of size 1 counts in full", {"lone_one_in_full": False}),
    ],
)
def test_the_printed_version_breaks_the_bound_that_the_repaired_one_keeps(
    repair: str, printed: dict[str, int]
) -> None:
    k, window = 10, 200
    values = np.r_[np.ones(600, np.int64), np.zeros(window, np.int64)]
    assert worst(OneByOne(k), values, window) <= 1 / k, repair
    assert worst(OneByOne(k, **printed), values, window) > 1 / k, repair  # type: ignore[arg-type]


def test_there_are_at_most_as_many_buckets_as_the_theorem_says() -> None:
    """(k/2 + 1)(lg(2NR/k + 1) + 1), and k/2 more for the repaired ones."""
    for k in (2, 10, 20, 100):
        for family, largest in (("all ones", 1), ("half", 1), ("sums", 1 << 20)):
            values = FAMILIES[family](5000, 5000, k, np.random.default_rng(3))
            counted = partial_column(Histograms.empty(form(k), 1), values, 0, 5000, 5000)
            theorem = (k / 2 + 1) * (np.log2(2 * 5000 * largest / k + 1) + 1) + k / 2 + 1
            assert counted.buckets()[0] <= theorem
            assert counted.buckets()[0] <= form(k).most_buckets(int(values.sum()))


@pytest.mark.parametrize("k", [1, 2, 5, 10])
def test_the_bound_on_buckets_is_reached_just_before_a_count_gets_another_level(k: int) -> None:
    counts = np.arange(1, 3000)
    most = np.maximum.accumulate(form(k).levels(counts).sum(axis=1))
    bound = np.array([form(k).most_buckets(int(count)) for count in counts])
    assert (most <= bound).all()
    before = form(k).starts()[1:8] - 1
    assert (most[before - 1] == bound[before - 1]).all()


def test_ten_million_elements_at_one_percent_take_less_than_a_thousandth_of_the_window() -> None:
    elements = 10_000_000
    counter = Counting(Histograms.empty(form(100), 1), elements)
    most = 0
    for start in range(0, elements, 1_000_000):
        times = np.arange(start, start + 1_000_000)
        for part in np.array_split(times, 250):
            counter.add(np.zeros(len(part), np.int64), part)
            most = max(most, counter.nbytes)
    assert most * 100 <= elements * 8, "one percent of the times of all ones"
    assert counter.histograms.nbytes * 1000 <= elements * 8
    assert abs(int(counter.estimate(0)[0][0]) - elements) * 100 <= elements


def test_histograms_of_some_keys_are_those_histograms() -> None:
    random = np.random.default_rng(5)
    keys, times = random.integers(0, 9, 900), np.arange(900)
    counted = Histograms.empty(form(7), 9).absorb(keys, times)
    picked = counted.take(np.array([8, 0, 3]))
    alone = Histograms.empty(form(7), 1).absorb(np.zeros((keys == 3).sum(), np.int64), times[keys == 3])
    assert (picked.estimate(450)[0] == counted.estimate(450)[0][[8, 0, 3]]).all()
    assert picked.take(np.array([2])).times.tolist() == alone.times.tolist()


def test_many_keys_are_counted_as_each_alone() -> None:
    random = np.random.default_rng(6)
    keys, times = random.integers(0, 10_000, 30_000), np.arange(30_000)
    counted = (
        Histograms.empty(form(3), 10_000)
        .absorb(keys[:20_000], times[:20_000])
        .absorb(keys[20_000:], times[20_000:])
    )
    for key in (0, 4095, 4096, 9999):
        mine = times[keys == key]
        alone = Histograms.empty(form(3), 1).absorb(np.zeros(len(mine), np.int64), mine)
        assert counted.take(np.array([key])).times.tolist() == alone.times.tolist()


def test_what_cannot_be_counted_is_refused() -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(UserError, match="less than 2\\^61"):
        Histograms.empty(form(2), 1).absorb(one, one, np.array([-1]))
    with pytest.raises(UserError, match="less than 2\\^61"):
        Histograms.empty(form(2), 1).absorb(one, one, np.array([1 << 61]))
    with pytest.raises(UserError, match="at most 100 percent"):
        Form.within(Fraction(0))
