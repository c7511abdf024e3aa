"""Correlated aggregates of many keys at once: each key as if it were alone, whatever the other keys and the cut into batches."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.baselines.correlated.correlated import AboveMean, NearMinimum
from benchmarks.baselines.correlated.focused_histograms import STRATEGIES, Strategy
from benchmarks.baselines.correlated.sliding_correlated import SlidingAboveMean, SlidingNearMinimum
from benchmarks.baselines.rows.pane_minima import PaneMinima
from benchmarks.baselines.rows.recent_rows import Passing, RecentRows
from benchmarks.baselines.rows.rows_by_key import RowsByKey, advance, running
from benchmarks.baselines.snapshot import held_bytes, restore, snapshot
from benchmarks.correlated_data import GENERATORS, Doubles, great_first, reversed_order, sudden_drop
from benchmarks.one_key.landmark import OneAboveMean, OneNearMinimum
from benchmarks.one_key.sliding import OneSlidingAboveMean, OneSlidingNearMinimum
from headrace.synopses.arrays import Ints
from tests.examples import examples

WINDOW, SCALE, BUCKETS = 40, 9.0, 8

Many = Callable[[int, Strategy], Any]
One = Callable[[Strategy], Any]
KINDS: dict[str, tuple[Many, One]] = {
    "near the minimum": (
        lambda keys, way: NearMinimum.empty(keys, SCALE, BUCKETS, way),
        lambda way: OneNearMinimum(SCALE, BUCKETS, way),
    ),
    "above the mean": (
        lambda keys, way: AboveMean.empty(keys, BUCKETS, way),
        lambda way: OneAboveMean(BUCKETS, way),
    ),
    "above the mean, followed at every row": (
        lambda keys, way: AboveMean.empty(keys, BUCKETS, way, z=1.0, lazy=False),
        lambda way: OneAboveMean(BUCKETS, way, z=1.0, lazy=False),
    ),
    "sliding, near the minimum": (
        lambda keys, way: SlidingNearMinimum.empty(keys, SCALE, WINDOW, BUCKETS, way),
        lambda way: OneSlidingNearMinimum(SCALE, WINDOW, BUCKETS, way),
    ),
    "sliding, near the minimum, as printed": (
        lambda keys, way: SlidingNearMinimum.empty(
            keys, SCALE, WINDOW, BUCKETS, way, rebuilds=False, closed_panes=False
        ),
        lambda way: OneSlidingNearMinimum(SCALE, WINDOW, BUCKETS, way, rebuilds=False, closed_panes=False),
    ),
    "sliding, above the mean": (
        lambda keys, way: SlidingAboveMean.empty(keys, WINDOW, BUCKETS, way),
        lambda way: OneSlidingAboveMean(WINDOW, BUCKETS, way),
    ),
}

ORDERS = {
    "as drawn": lambda x: x,
    "falling": reversed_order,
    "rising": np.sort,
    "drop": sudden_drop,
    "great first": great_first,
}


def drawn(seed: int, rows: int, keys: int, data: str, order: str) -> tuple[Ints, Doubles, Doubles]:
    """Few rows of most keys and many of some, with ties, weights that are no integers."""
    random = np.random.default_rng(seed)
    owners = np.minimum(random.geometric(0.4, rows) - 1, keys - 1)
    x = ORDERS[order](np.ceil(4 * GENERATORS[data](rows, random)) / 4)
    return owners, x, random.uniform(0, 10, rows)


streams = st.builds(
    drawn,
    st.integers(0, 10_000),
    st.integers(1, 500),
    st.integers(1, 6),
    st.sampled_from(["USAGE", "ZIPF", "MULTIFRAC", "MGCTY"]),
    st.sampled_from(list(ORDERS)),
)
cuts = st.lists(st.floats(0, 1), max_size=4)


def parts(rows: int, at: list[float]) -> list[slice]:
    """Any cut into batches, empty ones too."""
    places = [0, *sorted(int(share * rows) for share in at), rows]
    return [slice(low, high) for low, high in itertools.pairwise(places)]


def roundings(y: Doubles) -> Iterator[Doubles]:
    """The weights, and as they could be after other roundings.

    Where two bounds are equal but for rounding, the plain way itself cuts now here, now there: each of its answers is right.
    """
    yield y
    for seed in range(40):
        yield y * (1 + 1e-13 * np.random.default_rng(seed).standard_normal(len(y)))


@pytest.mark.parametrize("kind", KINDS)
@example(drawn(88, 193, 4, "MGCTY", "great first"), [], "wholesale uniform")
@examples(30)
@given(streams, cuts, st.sampled_from(list(STRATEGIES)))
def test_each_key_is_answered_as_by_the_plain_way_of_one_key(
    kind: str, stream: tuple[Ints, Doubles, Doubles], at: list[float], method: str
) -> None:
    many, one = KINDS[kind]
    keys, x, y = stream
    together = many(7, STRATEGIES[method])
    answers = np.concatenate([together.follow(keys[p], x[p], y[p]) for p in parts(len(keys), at)])
    for key in range(7):
        mine = keys == key
        plain = (one(STRATEGIES[method]).add(x[mine], weights) for weights in roundings(y[mine]))
        assert any(answers[mine] == pytest.approx(answer, rel=1e-6, abs=1e-5) for answer in plain)
        last = answers[mine][-1] if mine.any() else 0
        assert together.answer()[key] == pytest.approx(last, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@examples(30)
@given(streams, cuts, st.sampled_from(list(STRATEGIES)))
def test_other_keys_and_the_cut_into_batches_do_not_show_in_the_last_bit(
    kind: str, stream: tuple[Ints, Doubles, Doubles], at: list[float], method: str
) -> None:
    many, _ = KINDS[kind]
    keys, x, y = stream
    together, cut = many(7, STRATEGIES[method]), many(7, STRATEGIES[method])
    together.add(keys, x, y)
    for p in parts(len(keys), at):
        cut.add(keys[p], x[p], y[p])
    alone = many(1, STRATEGIES[method])
    mine = keys == keys[0]
    alone.add(np.zeros(np.count_nonzero(mine), np.int64), x[mine], y[mine])
    for name in ("bounds", "weights"):
        held = getattr(together.histograms, name)
        assert np.array_equal(getattr(cut.histograms, name), held)
        assert np.array_equal(getattr(alone.histograms, name)[0], held[keys[0]])
    assert np.array_equal(cut.answer(), together.answer())


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_restored_answers_as_before_and_goes_on(kind: str) -> None:
    many, _ = KINDS[kind]
    keys, x, y = drawn(3, 900, 6, "USAGE", "as drawn")
    whole = many(6, Strategy())
    whole.add(keys[:500], x[:500], y[:500])
    again = restore(snapshot(whole))
    assert np.array_equal(again.answer(), whole.answer())
    rest = (keys[500:], x[500:], y[500:])
    assert np.array_equal(again.follow(*rest), whole.follow(*rest))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_no_rows_changes_nothing(kind: str) -> None:
    many, _ = KINDS[kind]
    synopsis = many(3, Strategy())
    before = snapshot(synopsis)
    assert len(synopsis.follow(np.empty(0, np.int64), np.empty(0), np.empty(0))) == 0
    assert snapshot(synopsis) == before
    assert synopsis.answer().tolist() == [0, 0, 0]


def test_a_landmark_of_some_keys_leaves_the_others() -> None:
    keys, x, y = drawn(5, 400, 4, "MGCTY", "as drawn")
    for kind in ("near the minimum", "above the mean"):
        synopsis, fresh = (KINDS[kind][0](4, Strategy()) for _ in range(2))
        synopsis.add(keys, x, y)
        before = synopsis.answer()
        synopsis.reset(np.array([0, 2]))
        assert synopsis.answer()[[0, 2]].tolist() == [0, 0]
        assert np.array_equal(synopsis.answer()[[1, 3]], before[[1, 3]])
        late = keys % 2 == 0
        assert np.array_equal(
            synopsis.follow(keys[late], x[late], y[late]), fresh.follow(keys[late], x[late], y[late])
        )


@pytest.mark.parametrize("method", STRATEGIES)
@pytest.mark.parametrize("kind", ["near the minimum", "above the mean"])
def test_two_parts_of_a_stream_merge_into_about_the_whole(kind: str, method: str) -> None:
    """Those of a landmark: the part whose range differs is spread once more, which is what the error is about."""
    many, _ = KINDS[kind]
    random = np.random.default_rng(2)
    keys, x = random.integers(0, 5, 6000), random.lognormal(3, 1, 6000)
    one, other, whole = (many(6, STRATEGIES[method]) for _ in range(3))
    half = random.random(6000) < 0.5
    for synopsis, rows in ((one, half), (other, ~half), (whole, half | ~half)):
        synopsis.add(keys[rows], x[rows], np.ones(np.count_nonzero(rows)))
    for merged in (one.merged(other), other.merged(one)):
        for key in range(5):
            mine = x[keys == key]
            near = mine < SCALE * mine.min() if "near" in kind else mine > mine.mean()
            assert merged.answer()[key] == pytest.approx(np.count_nonzero(near), abs=0.04 * len(mine))
        assert merged.answer()[5] == 0
        merged.add(keys, x, np.ones(6000))
        assert merged.answer()[:5] == pytest.approx(2 * whole.answer()[:5], rel=0.1)


@pytest.mark.parametrize("kind", ["near the minimum", "above the mean"])
def test_with_nothing_merged_a_key_keeps_its_answer(kind: str) -> None:
    many, _ = KINDS[kind]
    keys, x, y = drawn(4, 500, 3, "ZIPF", "as drawn")
    synopsis, nothing = many(3, Strategy()), many(3, Strategy())
    synopsis.add(keys, x, y)
    near = 1e-9 if "near" in kind else 0.05 * y.sum()
    for merged in (synopsis.merged(nothing), nothing.merged(synopsis)):
        assert merged.answer() == pytest.approx(synopsis.answer(), abs=near)
        if kind == "above the mean":
            assert merged.histograms.totals == pytest.approx(np.bincount(keys, y, 3))


def test_a_key_takes_a_few_numbers_a_bucket_and_a_window_its_rows_at_most_thrice() -> None:
    keys = np.random.default_rng(1).permutation(np.repeat(np.arange(20_000), 3))
    x, y = np.random.default_rng(2).lognormal(3, 1, len(keys)), np.ones(len(keys))
    for kind, (many, _) in KINDS.items():
        synopsis = many(20_000, Strategy())
        synopsis.add(keys, x, y)
        assert held_bytes(synopsis) == pytest.approx(synopsis.nbytes, abs=64)
        a_key = 8 * (2 * BUCKETS + 1 + 7)
        if "sliding" in kind:
            a_key += 8 * 10 + 16 * 3 * 3
        assert synopsis.nbytes <= a_key * 20_000, kind


@given(streams, cuts, st.integers(1, 60))
def test_the_last_rows_of_each_key_are_those_a_queue_would_hold(
    stream: tuple[Ints, Doubles, Doubles], at: list[float], window: int
) -> None:
    keys, x, y = stream
    recent = RecentRows.empty(7, window)
    queues: list[deque[tuple[float, float]]] = [deque() for _ in range(7)]
    for part in parts(len(keys), at):
        rows = RowsByKey.of(keys[part])
        passing = Passing(recent, rows, np.column_stack([x[part], y[part]])[rows.order])
        gone = np.empty((len(rows.order), 2))
        gone[rows.order] = passing.leaving()
        for key, row, left in zip(keys[part], zip(x[part], y[part], strict=True), gone, strict=True):
            leaves = queues[key].popleft() if len(queues[key]) == window else (0, 0)
            queues[key].append(row)
            assert tuple(left) == leaves
        held, begins = passing.windows(rows.present, recent.seen[rows.present] + rows.sizes)
        recent.keep(rows, passing.values)
        for key, low, high in zip(rows.present, begins[:-1], begins[1:], strict=True):
            assert [tuple(row) for row in held[low:high]] == list(queues[key])
        assert len(recent.values) <= 3 * sum(min(max(2 * len(queue), 4), window) for queue in queues)


@given(streams, cuts, st.integers(1, 60), st.booleans())
def test_the_least_of_panes_is_that_of_each_row_by_itself(
    stream: tuple[Ints, Doubles, Doubles], at: list[float], window: int, with_open: bool
) -> None:
    keys, x, _ = stream
    panes, came = PaneMinima.empty(7, window), np.zeros(7, np.int64)
    seen: list[list[float]] = [[] for _ in range(7)]
    pane, many = max(window // 5, 1), window // max(window // 5, 1)
    for part in parts(len(keys), at):
        rows = RowsByKey.of(keys[part])
        values = x[part][rows.order]
        numbers = came[rows.owners()] + rows.numbers() + 1
        came[rows.present] += rows.sizes
        least, greatest = panes.passed(rows, values, numbers, with_open=with_open)
        for key, value, low, high in zip(rows.owners(), values, least, greatest, strict=True):
            seen[key].append(float(value))
            full = len(seen[key]) // pane
            closed = [min(seen[key][pane * q : pane * (q + 1)]) for q in range(max(full - many, 0), full)]
            opened = [min(seen[key][full * pane :])] if len(seen[key]) % pane else []
            assert low == min(closed + opened)
            assert high == max(closed + opened * with_open, default=low)
    for key, values in enumerate(seen):
        assert bool(values) == np.isfinite(panes.least()[key])


@given(st.lists(st.integers(1, 70), max_size=12), st.integers(0, 99))
def test_what_runs_along_a_key_is_added_one_row_after_the_other(sizes: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    offsets = np.r_[0, np.cumsum(sizes, dtype=np.int64)].astype(np.int64)
    values, seeds = random.normal(0, 1e6, offsets[-1]), random.normal(0, 1, len(sizes))
    totals = running(np.add, values, offsets, seeds)
    for number, (low, high) in enumerate(itertools.pairwise(offsets.tolist())):
        assert totals[low:high].tolist() == list(itertools.accumulate([seeds[number], *values[low:high]]))[1:]


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 9))
def test_rows_that_fit_are_counted_once_each_and_layouts_are_made_only_where_none_fits(
    keys: list[int], every: int
) -> None:
    rows = RowsByKey.of(np.array(keys, np.int64))
    assert rows.owners().tolist() == sorted(keys)
    laid, counted = np.full(6, -1), []

    def fits(owner: Ints, at: Ints) -> Any:
        return at // every == laid[owner]

    def lay(owner: Ints, at: Ints) -> None:
        assert (at // every != laid[owner]).all()
        laid[owner] = at // every

    def count(owner: Ints, at: Ints, begins: Ints) -> None:
        assert np.array_equal(np.repeat(owner, np.diff(begins)), rows.owners()[at])
        assert (np.repeat(laid[owner], np.diff(begins)) == at // every).all()
        counted.extend(at.tolist())

    advance(rows, fits, lay, count)
    assert sorted(counted) == list(range(len(keys)))
