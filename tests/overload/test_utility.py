"""Graphs of utility: what they are between their points, which are refused, and what losing important rows costs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.quality_of_service import Importance, QualityOfService, UtilityGraph, faults

DELAY = UtilityGraph(((2.0, 1.0), (4.0, 0.9), (10.0, 0.0)))


@pytest.mark.parametrize(
    ("place", "utility"), [(0, 1), (2, 1), (3, 0.95), (4, 0.9), (7, 0.45), (10, 0), (99, 0)]
)
def test_utility_is_linear_between_points_and_flat_outside(place: float, utility: float) -> None:
    assert DELAY.at(place) == pytest.approx(utility)


def test_the_good_zone_ends_where_utility_begins_to_fall() -> None:
    assert DELAY.good_until == 2
    assert UtilityGraph(((0.0, 1.0), (3.0, 1.0), (4.0, 0.0))).good_until == 3


@given(points=st.lists(st.tuples(st.integers(0, 20), st.integers(-2, 12)), min_size=1, max_size=5))
def test_a_graph_without_faults_begins_at_1_and_falls_ever_faster(points: list[tuple[int, int]]) -> None:
    graph = tuple((float(place), utility / 10) for place, utility in points)
    falls = [
        (before[1] - after[1]) / (after[0] - before[0]) if after[0] > before[0] else None
        for before, after in itertools.pairwise(graph)
    ]
    is_valid = (
        graph[0][1] == 1
        and all(0 <= utility <= 1 for _, utility in graph)
        and all(fall is not None and fall >= 0 for fall in falls)
        and all(
            one is not None and other is not None and one <= other + 1e-9
            for one, other in itertools.pairwise(falls)
        )
    )
    assert (not list(faults(graph))) == is_valid


def test_a_fault_is_at_the_point_that_is_wrong() -> None:
    assert [number for number, *_ in faults(((0.0, 1.0), (0.5, 0.5), (0.4, 0.2)))] == [2]
    assert [number for number, *_ in faults(((0.0, 0.9), (0.5, 0.5)))] == [0]
    assert [number for number, *_ in faults(((0.0, 1.0), (0.5, 1.5)))] == [1, 1]


def test_losing_rows_that_hardly_count_is_hardly_a_loss() -> None:
    quality = QualityOfService(
        loss=UtilityGraph(((0.0, 1.0), (1.0, 0.0))), importance=Importance("v", (100.0,), (0.1, 1.0))
    )
    assert quality.lost((0.0, 1.0), (0.5, 0.5)) == pytest.approx(0.1 / 1.1)
    assert quality.lost((1.0, 0.0), (0.5, 0.5)) == pytest.approx(1 / 1.1)
    assert quality.lost((0.5, 0.5), (0.9, 0.1)) == pytest.approx(0.5)
    assert quality.lost((0.5, 0.5), (0.0, 0.0)) == 0
    assert quality.utility(0, quality.lost((0.5, 0.5), (0.9, 0.1))) == pytest.approx(0.5)


def test_a_late_answer_of_few_rows_is_worth_the_product() -> None:
    quality = QualityOfService(DELAY, UtilityGraph(((0.0, 1.0), (1.0, 0.0))))
    assert quality.utility(7, 0.5) == pytest.approx(0.45 * 0.5)
    assert QualityOfService().utility(1e9, 1) == 1
