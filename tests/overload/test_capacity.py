"""Static analysis: rates through a network, and the rate at which a simulated hub saturates, predicted at a fraction of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulated_hub import NoControl, SimulatedHub, SimulatedQuery
from headrace.algebra.quality_of_service import QualityOfService, UtilityGraph
from headrace.overload.capacity import Box, CostLine, needed, saturation
from headrace.overload.controller import Control

LOSS = UtilityGraph(((0.0, 1.0), (1.0, 0.0)))


def test_demand_behind_a_saturated_box_counts() -> None:
    """A box that can do 10 rows a second is given 1000: what follows it is asked for all the same."""
    boxes = [Box("slow", 0.1, ("s",)), Box("after", 0.001, ("slow",), 0.5), Box("last", 0.01, ("after",))]
    assert needed(boxes, {"s": 1000}) == pytest.approx(100 + 1 + 5)


def test_a_box_that_two_feed_gets_the_rows_of_both_and_fan_out_copies_them() -> None:
    boxes = [Box("a", 0.0, ("s",), 0.5), Box("b", 0.0, ("s", "t")), Box("both", 0.001, ("a", "b"))]
    assert needed(boxes, {"s": 10, "t": 4}) == pytest.approx(0.001 * (5 + 14))


def test_what_is_dropped_before_a_box_is_not_worked_on() -> None:
    assert needed([Box("q", 0.01, ("s",), share=0.25)], {"s": 100}) == pytest.approx(0.25)
    assert saturation([Box("q", 0.01, ("s",), share=0.25)], {"s": 100}) == pytest.approx(4)
    assert saturation([], {"s": 100}) == float("inf")


@given(
    fixed=st.floats(0, 0.1),
    cost=st.floats(1e-6, 1e-3),
    sizes=st.lists(st.integers(1, 6), min_size=2, unique=True),
)
def test_what_a_row_costs_is_told_from_what_an_epoch_costs(
    fixed: float, cost: float, sizes: list[int]
) -> None:
    line = CostLine()
    for rows in [1000 * size * size for size in sizes] + [100_000]:
        line = line.after(rows, fixed + cost * rows, 1.0)
    assert line.per_row == pytest.approx(cost, rel=1e-3)


@given(
    fixed=st.floats(1e-4, 0.1),
    cost=st.floats(1e-6, 1e-3),
    pause=st.floats(3, 100),
    at=st.integers(6, 19),
)
def test_one_pause_of_the_machine_does_not_change_the_line(
    fixed: float, cost: float, pause: float, at: int
) -> None:
    line = CostLine()
    for number in range(20):
        rows = 1000 * (1 + number % 4)
        seconds = fixed + cost * rows
        line = CostLine(*line.after(rows, seconds * pause if number == at else seconds, 1.0).as_json())
    assert line.per_row == pytest.approx(cost, rel=1e-3)
    mean = line.fixed + line.per_row * line.rows / line.weight
    assert mean == pytest.approx((line.seconds + line.excess) / line.weight), (
        "the pause counts as cost of epochs"
    )
    assert line.excess > 0


@given(
    fixed=st.floats(1e-4, 0.1),
    cost=st.floats(1e-6, 1e-4),
    closing=st.floats(0, 0.9),
    window=st.integers(8000, 20_000),
)
def test_what_closing_windows_costs_is_no_cost_of_rows(
    fixed: float, cost: float, closing: float, window: int
) -> None:
    """Of small epochs those with more rows close windows more often; in a large one many close together."""
    line, sent, seconds = CostLine(), 0, 0.0
    for number in range(64):
        rows = 1000 * (1 + number * 5 % 8)
        closes = (sent + rows) // window > sent // window
        spent = fixed * (1 + closing * closes) + cost * rows
        line = CostLine(*line.after(rows, spent, 0.0, closes=closes).as_json())
        sent, seconds = sent + rows, seconds + spent
    assert line.per_row == pytest.approx(cost, rel=1e-3)
    assert line.closing == pytest.approx(fixed * closing, rel=1e-3, abs=1e-6)
    assert line.expected(5000, closes=True) == pytest.approx(fixed * (1 + closing) + cost * 5000, rel=1e-3)
    assert line.fixed * line.weight + line.per_row * line.rows == pytest.approx(seconds)


def test_closing_that_follows_from_the_rows_of_an_epoch_is_not_separated() -> None:
    """Every large epoch closes windows and no small one does: which of the two costs, is not known."""
    line = CostLine()
    for rows in (1000, 9000) * 10:
        line = line.after(rows, 0.01 + 1e-6 * rows + 0.002 * (rows > 5000), 0.0, closes=rows > 5000)
    assert line.closing == 0
    assert line.per_row == pytest.approx(1e-6 + 0.002 / 8000)


@pytest.mark.parametrize("every", [2, 4, 10])
def test_epochs_that_are_slow_now_and_then_count_with_all_their_seconds(every: int) -> None:
    line, seconds = CostLine(), 0.0
    for number in range(80):
        size = 1000 * (1 + number % 3)
        spent = 1e-6 * size + (0.05 if number % every == every - 1 else 0.005)
        line, seconds = line.after(size, spent, 0.0), seconds + spent
    assert line.fixed * line.weight + line.per_row * line.rows == pytest.approx(seconds)


@pytest.mark.parametrize("times", [3, 10])
def test_costs_that_change_count_from_the_second_slow_epoch_on(times: int) -> None:
    line, seconds, rows = CostLine(), 0.0, 0
    for number in range(60):
        size = 1000 * (1 + number % 4)
        spent = 1e-6 * size * (1 if number < 20 else times)
        line, seconds, rows = line.after(size, spent, 0.0), seconds + spent, rows + size
        assert line.seconds + line.excess == pytest.approx(seconds)
    assert line.per_row > 0.5 * times * 1e-6
    assert line.fixed * line.weight + line.per_row * line.rows == pytest.approx(seconds)


def test_old_measurements_fade() -> None:
    line = CostLine().after(1000, 1.0, 0).after(1000, 9.0, 600)
    assert line.per_row == pytest.approx(9e-3, rel=1e-3)


@pytest.mark.parametrize("fixed", [0.0, 0.02])
@pytest.mark.parametrize("costs", [(1e-4,), (1e-4, 3e-4, 1e-5), (2e-5,) * 8])
def test_saturation_is_predicted_at_a_third_of_it(costs: tuple[float, ...], fixed: float) -> None:
    """Epochs of all sizes at a third of the capacity; each takes a tenth more or less than in the model."""
    queries = {
        f"q{number}": SimulatedQuery(QualityOfService(loss=LOSS), cost) for number, cost in enumerate(costs)
    }
    capacity = 1 / (1e-5 + sum(costs))
    hub = SimulatedHub(queries, 1e-5, Control(at=1e-9), fixed=fixed, noise=0.1)
    rng = np.random.default_rng(3)
    hub.run(lambda _: capacity / 3 * float(rng.uniform(0.2, 1.8)), 60)
    predicted = hub.control.saturation(hub.stated)
    assert grows(queries, predicted * 1.2)
    assert not grows(queries, predicted * 0.8)


def grows(queries: dict[str, SimulatedQuery], rate: float) -> bool:
    """Whether more and more rows wait at a rate."""
    points = SimulatedHub(queries, 1e-5, NoControl()).run(lambda _: rate, 60).points
    return points[-1].delay > 2 * points[len(points) // 2].delay
