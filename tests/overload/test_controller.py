"""Control of overload on a simulated clock: spikes are waited out, floods are not, rows return, and nothing oscillates."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks.simulated_hub import EqualShares, SimulatedHub, SimulatedQuery, most_in_a_minute
from headrace.algebra.quality_of_service import QualityOfService, UtilityGraph
from headrace.overload.controller import (
    CALM_SECONDS,
    HEADROOM,
    PATIENCE_SECONDS,
    Control,
    Observed,
    QueryWork,
    Stated,
)
from headrace.overload.road_map import Step

DELAY = UtilityGraph(((2.0, 1.0), (10.0, 0.0)))
QUERIES = {
    "tolerant": SimulatedQuery(QualityOfService(DELAY, UtilityGraph(((0.0, 1.0), (0.95, 0.8)))), 6e-4),
    "linear": SimulatedQuery(QualityOfService(DELAY, UtilityGraph(((0.0, 1.0), (1.0, 0.0)))), 2e-4),
    "strict": SimulatedQuery(
        QualityOfService(DELAY, UtilityGraph(((0.0, 1.0), (0.1, 0.9), (0.5, 0.0)))), 5e-5
    ),
    "exact": SimulatedQuery(QualityOfService(DELAY), 5e-5),
}
"""Together 9e-4 seconds a row; with reading, saturated at 1000 rows a second."""
OTHERS = 5e-5
CAPACITY = 1 / (OTHERS + sum(query.seconds_per_row for query in QUERIES.values()))


def hub(until: float, *floods: tuple[float, float, float], usual: float = 0.5) -> SimulatedHub:
    """Floods are (from, to, times the capacity); else half of it."""

    def rate(at: float) -> float:
        now = next((times for low, high, times in floods if low <= at < high), usual)
        return now * CAPACITY

    return SimulatedHub(QUERIES, OTHERS, Control(at=1e-9)).run(rate, until)


@pytest.mark.parametrize("times", [2, 3.5, 5])
def test_a_spike_of_two_seconds_drops_nothing(times: float) -> None:
    done = hub(120, (30, 32, times))
    assert done.control.changes == 0
    assert done.points[-1].delay < 1
    assert max(point.delay for point in done.points) > 2  # answers were late, for a while


@pytest.mark.parametrize("times", [1.5, 3, 5])
def test_in_a_long_flood_answers_are_in_time_again_and_stay_so(times: float) -> None:
    done = hub(330, (30, 330, times))
    assert done.control.changes >= 1
    assert all(point.delay <= 2 for point in done.points if point.began > 110)
    assert done.control.load(done.stated) <= HEADROOM + 0.1  # rates are averages of the last second
    shares = done.control.shares(done.stated)
    assert shares["exact"] == (1.0,)
    assert shares["tolerant"] < (1.0,)


def flooded_for(seconds: float, policy: type[Control]) -> SimulatedHub:
    """Rows of a flood of three times the capacity count, and all of them are answered."""

    def rate(at: float) -> float:
        return (3.0 if at >= 20 else 0.4) * CAPACITY

    return SimulatedHub(QUERIES, OTHERS, policy(at=1e-9), counts_from=20).run(rate, 20 + seconds).drain()


@pytest.mark.parametrize("seconds", [20, 60])
def test_a_short_flood_too_is_answered_better_than_from_equal_shares(seconds: float) -> None:
    """Rows that wait are dropped as later ones are: for their sake not everything has to be."""
    ours, equal = (flooded_for(seconds, policy) for policy in (Control, EqualShares))
    assert ours.utility > 1.3 * equal.utility
    assert max(point.delay for point in ours.points) < DELAY.last


def test_only_as_much_is_dropped_for_rows_that_wait_as_pays() -> None:
    """Rows that wait cost no more than what is left of them: the strict query, cheap and worthless at half its rows, sees all of them."""
    done = flooded_for(20, Control)
    changed = [point for point in done.points if point.changes]
    assert changed[0].ended - 20 < 2 * PATIENCE_SECONDS
    assert {step.query for step in done.control.steps} == {"tolerant", "linear"}


def test_after_the_flood_all_rows_return() -> None:
    done = hub(200, (30, 100, 5))
    assert any(point.changes for point in done.points)
    assert done.control.steps == ()
    assert done.points[-1].utility == len(QUERIES)


@pytest.mark.parametrize("period", [4, 11, 16, 31, 60])
def test_load_that_goes_up_and_down_does_not_make_control_do_so(period: float) -> None:
    floods = [(at, at + period / 2, 3.0) for at in range(0, 600, math.ceil(period))]
    done = hub(600, *floods, usual=0.3)
    assert most_in_a_minute(done.points) <= 60 / PATIENCE_SECONDS / 2


def test_under_constant_load_shares_settle() -> None:
    done = hub(900, (30, 900, 3))
    assert done.points[-1].changes == next(point.changes for point in done.points if point.began > 200)


def test_two_floods_are_undone_in_the_reverse_order() -> None:
    """The second flood takes rows from the linear query too; these return first, when it ends."""
    quality = {name: query.quality for name, query in QUERIES.items()}
    stated = {name: Stated(each, ("s",)) for name, each in quality.items()}
    control, seen = Control(at=1e-9), list[tuple[Step, ...]]()
    for second in range(1, 200):
        rate = CAPACITY * (0.5 if second < 20 or second > 140 else 1.4 if second < 60 or second > 100 else 4)
        shares = {name: share for name, (share,) in control.shares(stated).items()}
        work = {
            name: QueryWork(rate * shares[name], rate * shares[name] * query.seconds_per_row)
            for name, query in QUERIES.items()
        }
        busy = rate * OTHERS + sum(each.seconds for each in work.values())
        is_late = {"s": 20.0 if busy > 1 else 0.2}
        control = control.after(Observed(float(second), busy, {"s": rate}, {}, is_late, work), stated)
        if not seen or control.steps != seen[-1]:
            seen.append(control.steps)
    sizes = [len(steps) for steps in seen]
    top = sizes.index(max(sizes))
    assert seen[0] == seen[-1] == ()
    assert 1 <= sizes[1] < sizes[top]
    assert seen[top][: sizes[1]] == seen[1]
    for before, after in zip(seen[top:], seen[top + 1 :], strict=False):
        kept = after[:-1] if after and after[-1] != before[len(after) - 1] else after
        assert before[: len(kept)] == kept  # what is left was dropped first


def test_control_is_its_json_and_nothing_else() -> None:
    at = hub(60, (10, 60, 5)).control
    stated = {name: Stated(query.quality, ("s",)) for name, query in QUERIES.items()}
    again = Control.from_json(json.loads(json.dumps(at.as_json())))
    assert again == at
    seen = Observed(
        at.at + 1, 0.9, {"s": 5000}, {"s": 9000}, {"s": 30.0}, {"tolerant": QueryWork(100, 0.06, (100,))}
    )
    assert again.after(seen, stated) == at.after(seen, stated)


def test_a_hub_that_is_busy_but_in_time_drops_nothing() -> None:
    """Epochs one after the other, each in time: there is no more to do than time, whatever the load is estimated at."""
    stated = {name: Stated(query.quality, ("s",)) for name, query in QUERIES.items()}
    control = Control(at=1e-9)
    for number in range(1, 200):
        seen = Observed(
            number / 10, 0.1, {"s": 100}, {"s": 50}, {"s": 0.2}, {"tolerant": QueryWork(100, 0.09)}
        )
        control = control.after(seen, stated)
    assert control.load(stated) > 0.9
    assert control.steps == ()


def test_answers_that_are_late_while_there_is_time_are_waited_for() -> None:
    """What waits is being worked off: a second with more rows is the first of five, however late answers are."""
    stated = {name: Stated(query.quality, ("s",)) for name, query in QUERIES.items()}
    control = Control(at=1e-9)
    for second in range(1, 40):
        rows = CAPACITY * (0.4 if second < 30 else 2)
        work = {"tolerant": QueryWork(rows, rows * 6e-4)}
        seen = Observed(float(second), rows / CAPACITY, {"s": rows}, {"s": 0}, {"s": 20.0}, work)
        control = control.after(seen, stated)
        assert bool(control.steps) == (second >= 30 + PATIENCE_SECONDS)


def test_queries_without_a_graph_of_delay_are_to_be_answered_within_seconds() -> None:
    loss = QualityOfService(loss=UtilityGraph(((0.0, 1.0), (1.0, 0.5))))
    for delay, sheds in ((4.0, False), (6.0, True)):
        control = Control(at=1e-9)
        for second in range(1, 30):
            seen = Observed(float(second), 1.0, {"s": 100}, {}, {"s": delay}, {"q": QueryWork(100, 0.9)})
            control = control.after(seen, {"q": Stated(loss, ("s",))})
        assert bool(control.steps) == sheds


def test_waits_are_long_enough_for_a_spike_to_end() -> None:
    assert 2 < PATIENCE_SECONDS <= CALM_SECONDS


def test_an_epoch_takes_no_more_rows_than_are_done_in_half_of_the_least_good_delay() -> None:
    done = hub(60)
    assert done.control.epoch_rows(done.stated) * done.per_row == pytest.approx(DELAY.good_until / 2, rel=0.1)
    assert Control(at=1e-9).epoch_rows(done.stated) == math.inf
    flooded = hub(100, (30, 100, 5))
    lasted = [point.ended - point.began for point in flooded.points if point.began > 60]
    assert max(lasted) < DELAY.good_until


def with_sketches(exactly: float, sketched: float, *, epochs: int = 40) -> list[Control]:
    """The control of an overloaded query that costs so many seconds a row, after each epoch of a second."""
    queries = {"q": Stated(QualityOfService(DELAY, sketches=0.9), ("s",))}
    control, seen = Control(at=1e-9), list[Control]()
    for second in range(1, epochs):
        cost = sketched if control.shares(queries)["q"] == (0.0,) else exactly
        rows = 900.0 + second % 2 * 200
        work = QueryWork(rows, rows * cost, (int(rows),))
        done = Observed(second, 1.0, {"s": rows}, {"s": 4000.0}, {"s": 5.0}, {"q": work})
        control = Control.from_json(json.loads(json.dumps(control.after(done, queries).as_json())))
        seen.append(control)
    return seen


def test_a_query_that_stays_late_is_sketched_and_its_cost_then_is_measured() -> None:
    controls = with_sketches(9e-4, 3e-4)
    queries = {"q": Stated(QualityOfService(DELAY, sketches=0.9), ("s",))}
    assert controls[0].shares(queries)["q"] == (1.0,)
    assert controls[-1].shares(queries)["q"] == (0.0,)
    assert controls[-1].changes == 1
    assert controls[-1].remaining("q") == pytest.approx(1 / 3, rel=0.05)
    assert controls[-1].worth(queries)["q"].lost == 0


def test_sketches_that_turn_out_to_cost_more_are_taken_back_and_not_tried_again() -> None:
    controls = with_sketches(4e-4, 8e-4, epochs=90)
    shares = [
        control.shares({"q": Stated(QualityOfService(DELAY, sketches=0.9), ("s",))})["q"][0]
        for control in controls
    ]
    assert 3 <= shares.count(0.0) <= 4
    assert shares[-1] == 1
    assert controls[-1].changes == 2


def test_epochs_that_are_small_because_rows_looked_dear_become_larger() -> None:
    """The first rows take long, as those of a new process do, and epochs take whole records: all have the same size, which shows no slope."""
    stated = {"exact": Stated(QualityOfService(DELAY), ("s",))}
    control, rows, waiting = Control(at=1e-9), 2000.0, 1e6
    for busy in (20.0, 0.12, 0.12):
        waiting -= rows
        seen = Observed(control.at + busy, busy, {"s": rows}, {"s": waiting}, {"s": 1.0})
        control = control.after(seen, stated)
    assert 2000 / 0.12 <= control.epoch_rows(stated) < 2 * 2000 / 0.12


def test_rows_that_will_be_late_are_as_bad_as_answers_that_were() -> None:
    """Five seconds pass since rows wait for too long, which is before the first answers are late."""

    def rate(at: float) -> float:
        return (5.0 if at >= 20 else 0.4) * CAPACITY

    done = SimulatedHub(QUERIES, OTHERS, Control(at=1e-9)).run(rate, 60)
    late = next(point.ended for point in done.points if point.delay > DELAY.good_until)
    dropped = next(point.ended for point in done.points if point.changes)
    assert dropped < late + PATIENCE_SECONDS


def test_what_was_done_before_shares_changed_says_nothing_about_later_epochs() -> None:
    controls = with_sketches(9e-4, 3e-4)
    changed = next(number for number, control in enumerate(controls) if control.changes)
    assert controls[changed - 1].pace > 0
    assert controls[changed].pace == 0
    assert controls[changed + 1].pace > 0


def test_a_machine_that_becomes_slow_shows_within_seconds() -> None:
    """Costs are those of the last minute; epochs that take twice as long as that are load at once, and so are they when it ends."""
    stated = {"exact": Stated(QualityOfService(DELAY), ("s",))}
    control, loads = Control(at=1e-9), list[float]()
    for second in range(1, 121):
        rows = 500.0 + second % 3 * 50
        busy = rows * (1e-3 if second <= 60 or second > 70 else 2e-3)
        control = control.after(
            Observed(float(second), busy, {"s": rows}, {}, {"s": 1.0}, {"exact": QueryWork(rows, busy / 2)}),
            stated,
        )
        loads.append(control.load(stated))
    assert loads[59] == pytest.approx(0.55, rel=0.1)
    assert max(loads[62:66]) > 0.9
    assert loads[79] == pytest.approx(0.55, rel=0.2)
    assert control.slowdown == pytest.approx(1, rel=0.2)
