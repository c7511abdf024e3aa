"""Unit-time costs against counts: the formulas give what a join counts in a second; the choices are the least of all."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.unit_time import (
    METHODS,
    Costs,
    Share,
    cheapest,
    direction_cost,
    join,
    memory_split,
    pairs_found,
    processor_split,
)
from benchmarks.suite.joins_costs import joins_costs

COSTS = Costs(3.0, 5.0, 7.0)


def regular(rates: tuple[int, int], seconds: int, keys: int) -> list[tuple[float, int, int]]:
    """Rows at even distances, keys in turn."""
    return sorted(
        ((number + 0.5) / rate, stream, number % keys)
        for stream, rate in enumerate(rates)
        for number in range(rate * seconds)
    )


@pytest.mark.parametrize("methods", list(product(METHODS, METHODS)))
def test_a_second_of_a_steady_join_counts_what_the_formula_says(methods) -> None:
    rates, windows, keys = (20, 8), (4.0, 5.0), 10
    before, after = (join(regular(rates, seconds, keys), methods, windows) for seconds in (40, 60))
    counted = (after[1].cost(COSTS) - before[1].cost(COSTS)) / 20
    first = direction_cost(methods[0], rates[1], rates[0], windows[0], keys, COSTS)
    second = direction_cost(methods[1], rates[0], rates[1], windows[1], keys, COSTS)
    assert counted == pytest.approx(first + second, rel=0.05)
    found = (after[0] - before[0]) / 20
    assert found == pytest.approx(pairs_found(rates, (rates[0] * 4.0, rates[1] * 5.0), keys), rel=0.05)


RATE = st.sampled_from((0.1, 1.0, 5.0, 50.0, 500.0))


@given(rates=st.tuples(RATE, RATE), seconds=st.tuples(RATE, RATE), keys=st.integers(1, 200))
def test_the_choice_costs_least_of_all_four(rates, seconds, keys) -> None:
    def cost(methods) -> float:
        return direction_cost(methods[0], rates[1], rates[0], seconds[0], keys, COSTS) + direction_cost(
            methods[1], rates[0], rates[1], seconds[1], keys, COSTS
        )

    chosen = cheapest(rates, seconds, keys, COSTS)
    assert cost(chosen) == pytest.approx(min(map(cost, product(METHODS, METHODS))))


@given(
    rates=st.tuples(RATE, RATE),
    seconds=st.tuples(RATE, RATE),
    memory=st.floats(0.5, 1000),
    part=st.floats(0, 1),
)
def test_no_other_division_of_the_memory_finds_more_pairs(rates, seconds, memory, part) -> None:
    kept = memory_split(rates, seconds, memory)
    whole = tuple(rate * window for rate, window in zip(rates, seconds, strict=True))
    assert sum(kept) <= memory + 1e-9
    first = min(part * memory, whole[0])
    other = (first, min(memory - first, whole[1]))
    assert pairs_found(rates, kept, 7) >= pairs_found(rates, other, 7) - 1e-9


@pytest.mark.parametrize("rates", [(40, 40), (80, 5), (5, 80)])
@pytest.mark.parametrize("part", [0.1, 0.3, 0.6, 0.9])
def test_a_share_of_the_processor_is_spent_and_no_plain_way_finds_more_pairs_with_it(rates, part) -> None:
    windows, keys, seconds = (6.0, 3.0), 8, 60
    arrivals = regular(rates, seconds, keys)
    whole, counts = join(arrivals, cheapest(rates, windows, keys, COSTS), windows)
    budget = part * counts.cost(COSTS) / seconds
    chosen = processor_split(rates, windows, keys, budget, COSTS)

    def run(first: Share, second: Share) -> tuple[int, float]:
        pairs, counts = join(arrivals, (first.method, second.method), windows, shares=(first, second))
        return pairs, counts.cost(COSTS) / seconds

    pairs, cost = run(*chosen)
    assert cost <= budget * 1.1
    assert pairs <= whole
    for methods in product(METHODS, METHODS):
        for kept in (share / 6 for share in range(7)):
            shed = [Share(method, kept, kept) for method in methods]
            half = (
                [Share(methods[0], kept, 1.0), Share(methods[1])],
                [Share(methods[0]), Share(methods[1], kept, 1.0)],
            )
            for ways in (shed, *half):
                others, spent = run(*ways)
                assert spent > budget or others <= pairs * 1.1 + 5, (chosen, ways)


def test_bars_hold_at_a_small_size() -> None:
    assert not [str(ratio) for ratio in joins_costs(10_000, 1).ratios if not ratio.passed]
