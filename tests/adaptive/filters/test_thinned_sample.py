"""Samples of which costly filters see a part: what cheap ones drop stays exact, the rest is right in the mean; and changes that only the
last filters of an order show.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.filters.order_cost import Bools
from headrace.adaptive.filters.ordering import drops_otherwise
from headrace.adaptive.filters.thinned_sample import ONE_OF, cheap, thinned

MATRICES = st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=60)


def sets_of(dropped: Bools, weights: list[int]) -> Counter[tuple[bool, ...]]:
    counts = Counter[tuple[bool, ...]]()
    for row, weight in zip(dropped.tolist(), weights, strict=True):
        counts[tuple(row)] += weight
    return counts


def test_a_filter_is_cheap_if_the_dearest_costs_eight_times_as_much() -> None:
    assert cheap(np.array([1.0, 8.0, 2.0])).tolist() == [True, False, False]
    assert not cheap(np.array([100.0, 100.0])).any()


@given(MATRICES)
def test_the_weights_count_each_set_of_cheap_filters_exactly(rows: list[tuple[bool, ...]]) -> None:
    dropped = np.array(rows)
    chosen, weights = thinned(dropped)
    assert sets_of(dropped[chosen], weights.tolist()) == sets_of(dropped, [1] * len(dropped))
    assert sorted(set(chosen.tolist())) == chosen.tolist()


@given(MATRICES)
def test_rows_that_no_cheap_filter_drops_are_all_chosen_and_few_of_the_others(
    rows: list[tuple[bool, ...]],
) -> None:
    dropped = np.array(rows)
    chosen, weights = thinned(dropped)
    left = np.flatnonzero(~dropped.any(axis=1))
    assert set(left) <= set(chosen)
    assert set(weights[np.isin(chosen, left)].tolist()) <= {1}
    assert len(chosen) - len(left) <= len(dropped) / ONE_OF + 2**3


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ((9000, 500, 500), False),
        ((8000, 450, 550), False),
        ((9000, 850, 150), True),  # next to nothing of all, and most of what the last two drop
        ((5000, 2500, 2500), True),
        ((9000, 200, 20), False),  # too few rows
    ],
)
def test_a_change_is_seen_among_the_rows_that_reach_the_last_filters(
    now: tuple[int, ...], changed: bool
) -> None:
    assert drops_otherwise((9000, 500, 500), now, (0, 1, 2)) == changed


def test_positions_are_those_of_the_order() -> None:
    """The last two are the first and the third."""
    assert drops_otherwise((500, 9000, 500), (850, 9000, 150), (1, 0, 2))
    assert not drops_otherwise((500, 9000, 500), (600, 9000, 400), (1, 0, 2))
