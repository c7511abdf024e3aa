"""FIFO, Greedy and Chain against the printed table (Babu 2005, section 4.3; B17), and Chain against the best of all schedules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models.schedules.chains import Chain, PathOperator, chains, sizes_of
from benchmarks.models.schedules.queue_replay import (
    Strategy,
    chain_strategy,
    fifo,
    greedy,
    least_peak,
    least_queued,
    pulled_peak,
    replayed,
)

FALLS_FIRST = (PathOperator(1, 0.2), PathOperator(1, 0.0))
FALLS_LAST = (PathOperator(1, 0.9), PathOperator(1, 1.0), PathOperator(1, 0.0))
ARRIVALS = tuple(range(7))


@pytest.mark.parametrize(
    ("path", "strategy", "printed", "mean"),
    [
        (FALLS_FIRST, fifo, [1.0, 1.2, 2.0, 2.2, 3.0, 3.2, 4.0], 2.4),
        (FALLS_FIRST, greedy, [1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2], 1.6),
        (FALLS_FIRST, chain_strategy(FALLS_FIRST), [1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2], 1.6),
        (FALLS_LAST, fifo, [1.0, 1.9, 2.9, 3.0, 3.9, 4.9, 5.0], 3.2),
        (FALLS_LAST, greedy, [1.0, 1.9, 2.8, 3.7, 4.6, 5.5, 6.4], 3.7),
        (FALLS_LAST, chain_strategy(FALLS_LAST), [1.0, 1.9, 2.9, 3.0, 3.9, 4.9, 5.0], 3.2),
    ],
)
def test_the_printed_table(
    path: tuple[PathOperator, ...], strategy: Strategy, printed: list[float], mean: float
) -> None:
    sizes = replayed(path, ARRIVALS, strategy)
    assert sizes == pytest.approx(printed)
    assert round(sum(sizes) / len(sizes), 1) == mean


def test_chains_of_the_table() -> None:
    first, second = chains(FALLS_FIRST)
    assert (first.first, first.end, second.first, second.end) == (0, 1, 1, 2)
    assert (first.slope, second.slope) == pytest.approx((0.8, 0.2))
    (whole,) = chains(FALLS_LAST)
    assert (whole.first, whole.end) == (0, 3)
    assert whole.slope == pytest.approx(1 / 3)


def test_all_strategies_empty_the_queues_after_a_burst() -> None:
    """Seven batches of two units each need fourteen; a last arrival at 14 finds nothing else queued."""
    for strategy in (fifo, greedy, chain_strategy(FALLS_FIRST)):
        assert replayed(FALLS_FIRST, [*ARRIVALS, 14], strategy)[-1] == 1.0
        assert replayed(FALLS_FIRST, [*ARRIVALS, 13], strategy)[-1] > 1.0


def test_an_operator_that_has_started_is_not_interrupted() -> None:
    """Its batch counts until it ends, at 3; what it leaves is queued then."""
    slow = (PathOperator(3, 0.5), PathOperator(1, 0.0))
    assert replayed(slow, [0, 1, 2, 3, 4], fifo) == [1.0, 2.0, 3.0, 3.5, 4.0]
    assert replayed(slow, [0, 1, 2, 3, 4], chain_strategy(slow)) == [1.0, 2.0, 3.0, 3.5, 4.0]


def test_an_operator_without_time_is_refused() -> None:
    with pytest.raises(ValueError, match="takes time"):
        PathOperator(0, 0.5)


paths = st.lists(
    st.builds(PathOperator, st.sampled_from([1.0, 2.0, 5.0]), st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.5])),
    min_size=1,
    max_size=6,
)


@given(paths)
def test_chains_are_the_lower_envelope(path: list[PathOperator]) -> None:
    """They cover the path, fall ever less steeply, and the line of sizes over time is nowhere below a chain's own line."""
    result, sizes = chains(path), sizes_of(path)
    assert [chain.first for chain in result] == [0, *[chain.end for chain in result[:-1]]]
    assert result[-1].end == len(path)
    slopes = [chain.slope for chain in result]
    assert slopes == sorted(slopes, reverse=True)
    for chain in result:
        time = 0.0
        for operator in range(chain.first, chain.end):
            time += path[operator].time
            assert sizes[operator + 1] >= sizes[chain.first] - chain.slope * time - 1e-9
        assert sizes[chain.end] == pytest.approx(sizes[chain.first] - chain.slope * time)


unit_paths = st.lists(
    st.builds(PathOperator, st.just(1.0), st.sampled_from([0.0, 0.1, 0.4, 0.7, 0.9, 1.0])),
    min_size=1,
    max_size=3,
).map(lambda path: [*path, PathOperator(1.0, 0.0)])


@given(unit_paths, st.integers(1, 6))
def test_chain_queues_little_more_than_the_best_schedule(path: list[PathOperator], batches: int) -> None:
    """At no time more than one batch above what a clairvoyant would have queued in the mean; the others exceed it by more."""
    best = least_queued(tuple(path), batches)
    queued = replayed(path, range(batches), chain_strategy(path))
    assert best - 1e-9 <= sum(queued) / batches <= best + 1


def test_the_best_schedule_of_the_table() -> None:
    """Greedy is best for the first path, FIFO nearly so for the second; each is the other's worst."""
    assert least_queued(FALLS_FIRST, 7) == pytest.approx(1.6)
    assert least_queued(FALLS_LAST, 7) == pytest.approx(22.6 / 7)


def test_of_equal_falls_the_longest_is_one_chain() -> None:
    assert chains([PathOperator(2, 0.5), PathOperator(2, 0.0)]) == [Chain(0, 2, 0.25)]


def test_greedy_counts_the_time_that_a_fall_takes() -> None:
    """The first operator takes more elements out than the second, in four times the time: the second one runs first."""
    slow_first = (PathOperator(4, 0.3), PathOperator(1, 0.0))
    assert replayed(slow_first, [0, 0, 4, 5], greedy) == [1.0, 2.0, 2.3, 3.0]


expanding_paths = st.lists(
    st.builds(PathOperator, st.just(1.0), st.sampled_from([0.0, 0.2, 1.0, 3.0, 8.0])), min_size=1, max_size=4
).map(lambda path: [*path, PathOperator(1.0, 0.0)])


@given(expanding_paths, st.integers(1, 4))
def test_who_reads_a_batch_once_the_queues_are_empty_queues_least(
    path: list[PathOperator], batches: int
) -> None:
    """Tasks read so. Also with operators that expand no strategy has a smaller peak: each batch has to pass where it is largest."""
    assert pulled_peak(path) == pytest.approx(least_peak(tuple(path), batches))
