"""Turns of streams under overload: what is granted is an epoch, rows that wait longest are always read, and the total utility is above
that of equal parts, on a simulated clock and of a real hub, whose answers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.quality_of_service import QualityOfService, UtilityGraph
from headrace.catalog.definitions import StreamDefinition
from headrace.overload import controller
from headrace.overload.turns import LEAST, MOST_RAISED, Queue, raised, turns
from headrace.runtime.ingest.admission import Admission, Pending
from headrace.runtime.plan.adaptive.overload_control import MEMORY, OVERLOAD, rows_by_turns
from headrace.schema import TIMESTAMP, Field, Schema
from headrace.store.logs.manifest import Manifest
from headrace.time import SECOND
from tests.overload.slow_machine import FOLD, READ, START, SlowMachine, flooded_hub

Turns = Callable[[Mapping[str, Queue], float], dict[str, int]]
QUICK, SLOW = UtilityGraph(((2.0, 1.0), (6.0, 0.0))), UtilityGraph(((30.0, 1.0), (120.0, 0.0)))


def equal_parts(queues: Mapping[str, Queue], seconds: float) -> dict[str, int]:
    """Round robin: the same part of an epoch for every stream that waits; what others leave is left."""
    waiting = [name for name, queue in queues.items() if queue.rows]
    if not waiting or sum(queue.seconds for queue in queues.values()) <= seconds:
        return {}
    return {name: max(1, int(seconds / len(waiting) / queues[name].seconds_per_row)) for name in waiting}


def graphs() -> st.SearchStrategy[UtilityGraph]:
    return st.builds(
        lambda good, more: UtilityGraph(((good, 1.0), (good + more, 0.0))),
        st.floats(0, 50),
        st.floats(0.1, 50),
    )


def queues() -> st.SearchStrategy[dict[str, Queue]]:
    answered = st.lists(st.tuples(graphs().map(QualityOfService), st.just(0.0)), max_size=3)
    queue = st.builds(
        Queue,
        st.integers(0, 1000),
        st.floats(0, 100),
        st.floats(1e-4, 0.1),
        answered,
        st.floats(1, MOST_RAISED),
    )
    return st.dictionaries(st.sampled_from("abcde"), queue, max_size=5)


@given(queues(), st.floats(0.1, 20))
def test_an_epoch_is_granted_and_no_more_and_the_longest_wait_always_has_a_part(
    waiting: dict[str, Queue], seconds: float
) -> None:
    granted = turns(waiting, seconds)
    if len([queue for queue in waiting.values() if queue.seconds]) < 2:
        assert granted == {}
        return
    if sum(queue.seconds for queue in waiting.values()) <= seconds:
        assert granted == {}
        return
    assert granted.keys() == waiting.keys()
    spent = {name: rows * waiting[name].seconds_per_row for name, rows in granted.items()}
    row = max(queue.seconds_per_row for queue in waiting.values()) * len(waiting)
    assert seconds - row <= sum(spent.values()) <= seconds + row
    assert all(rows <= waiting[name].rows for name, rows in granted.items())
    oldest = max((queue.oldest, name) for name, queue in waiting.items() if queue.seconds)[0]
    first = [name for name, queue in waiting.items() if queue.seconds and queue.oldest == oldest]
    assert any(
        granted[name] >= 1 and spent[name] + row >= min(waiting[name].seconds, LEAST * seconds)
        for name in first
    )


def test_rows_go_first_whose_answers_lose_most_for_a_second_of_work() -> None:
    def queue(graph: UtilityGraph, oldest: float, *, rows: int = 100, queries: int = 1) -> Queue:
        return Queue(rows, oldest, 0.1, [(QualityOfService(graph), 0.0)] * queries)

    old = queue(SLOW, 25.0)  # waits longest, and is worth nothing less yet
    assert turns({"old": old, "quick": queue(QUICK, 3.0), "slow": queue(SLOW, 3.0)}, 8.0) == {
        "old": 10,
        "quick": 70,
        "slow": 0,
    }
    many, one = queue(QUICK, 3.0, queries=3), queue(QUICK, 3.0)
    assert turns({"old": old, "one": one, "many": many}, 8.0)["many"] == 70
    few = queue(QUICK, 3.0, rows=20)  # the same utility for less work
    assert turns({"old": old, "one": one, "few": few}, 8.0) == {"old": 10, "one": 50, "few": 20}
    brief, long = queue(QUICK, 3.0, rows=10), queue(QUICK, 3.0, rows=60, queries=4)  # more utility in all
    assert turns({"old": old, "long": long, "brief": brief}, 4.0) == {"old": 5, "long": 25, "brief": 10}
    hopeless = replace(one, oldest=24.0)
    assert turns({"old": old, "hopeless": hopeless, "slow": replace(old, oldest=24.0)}, 8.0)["hopeless"] == 0


def test_a_stream_whose_answers_are_late_is_raised_and_one_in_time_lowered() -> None:
    factors: dict[str, float] = {}
    for _ in range(9):
        factors = raised(factors, {"s": True, "t": False})
    assert factors == {"s": MOST_RAISED}
    for _ in range(9):
        factors = raised(factors, {"s": False, "t": False})
    assert factors == {}
    one = Queue(100, 3.0, 0.1, [(QualityOfService(QUICK), 0.0)])
    old = replace(one, oldest=9.0, queries=())
    assert turns({"old": old, "one": one, "late": replace(one, raised=1.5)}, 8.0)["late"] == 70


def simulated(policy: Turns, *, times: float, seconds: float = 120.0) -> float:
    """The utility of answers about three streams that arrive at so many times what can be processed, by seconds of arrival."""
    costs = {"alerts": 1e-3, "sensors": 1e-3, "reports": 1e-3}
    qualities = {
        "alerts": [QualityOfService(QUICK)] * 3,
        "sensors": [QualityOfService(SLOW)],
        "reports": [QualityOfService(SLOW)] * 2,
    }
    rate, step, now, utility = times * 1000 / 3, 0.25, 0.0, 0.0
    waiting: dict[str, list[tuple[float, float]]] = {name: [] for name in costs}
    arrived = 0.0
    while now < seconds:
        while arrived + step <= now:
            for queue in waiting.values():
                queue.append((arrived, rate * step))
            arrived += step
        seen = {
            name: Queue(
                sum(rows for _, rows in queue),
                now - queue[0][0] if queue else 0.0,
                costs[name],
                [(quality, 0.0) for quality in qualities[name]],
            )
            for name, queue in waiting.items()
        }
        granted, answered, busy = policy(seen, 1.0), list[tuple[str, float]](), 0.01
        for name, queue in waiting.items():
            left = granted.get(name, 10**9)
            while queue and left >= queue[0][1]:
                at, rows = queue.pop(0)
                left -= rows
                busy += rows * costs[name]
                answered.append((name, at))
        now += max(busy, step)
        for name, at in answered:
            utility += step * sum(quality.utility(now - at, 0.0) for quality in qualities[name])
    return utility


@pytest.mark.parametrize("times", [1.5, 2.0, 3.0])
def test_total_utility_is_above_that_of_equal_parts(times: float) -> None:
    assert simulated(turns, times=times) > 1.3 * simulated(equal_parts, times=times)


def test_without_overload_there_are_no_turns() -> None:
    assert simulated(turns, times=0.8) == pytest.approx(simulated(equal_parts, times=0.8))


STREAMS = {"alerts": "(1 AT 2 SECONDS, 0 AT 6 SECONDS)", "sensors": "(1 AT 30 SECONDS, 0 AT 2 MINUTES)"}
RATE, STEP, SECONDS = 500, 0.25, 30
"""Rows a second of each stream, 1.5 times what the machine can take; how often they arrive; for how long."""


def lived(path: Path, patch: pytest.MonkeyPatch, policy: Turns) -> dict[str, Any]:
    """A hub over both streams: the utility by seconds of arrival, what it has shown, and its answers."""
    machine, pushed = SlowMachine(), {name: list[float]() for name in STREAMS}
    seen: dict[str, Any] = {"utility": 0.0, "turns": [], "explained": []}
    patch.setattr(controller, "turns", policy)
    with flooded_hub(path, machine, patch) as hub:
        for name, delay in STREAMS.items():
            hub.execute(f"CREATE STREAM {name} (at TIMESTAMP, k INT, v INT) USING push TIMESTAMP BY at")
            hub.execute(
                f"CREATE QUERY of_{name} AS SELECT window_end, k, COUNT(*) AS n, SUM(v) AS total FROM {name} "
                f"[RANGE TUMBLING 1 SECOND] GROUP BY k WITH QOS (delay {delay})"
            )
        hub.catch_up()
        arrived, answered = 0.0, dict.fromkeys(STREAMS, 0)
        while min(answered.values()) < SECONDS / STEP:
            while arrived < SECONDS and arrived + STEP <= machine.seconds + 1e-9:
                arrived += STEP
                machine.pushing = arrived
                for name in STREAMS:
                    rows = int(RATE * STEP)
                    at = [START + round((arrived - STEP + STEP * n / rows) * SECOND) for n in range(rows)]
                    hub.push(name, [{"at": when, "k": n % 3, "v": n} for n, when in enumerate(at)])
                    pushed[name].append(arrived)
            machine.pushing = None
            if hub.loop.step(live_first=True) is None:
                machine.seconds += STEP
            for name in STREAMS:
                waits = len(hub.loop.engine.intake.waiting(name))
                for at in pushed[name][answered[name] : len(pushed[name]) - waits]:
                    quality = hub.plan.qualities[hub.catalog.require_query(f"of_{name}").operator_id]
                    seen["utility"] += STEP * quality.utility(machine.seconds - at, 0.0)
                answered[name] = len(pushed[name]) - waits
            status = hub.status()["overload"]
            if status is not None:
                seen["turns"].append(status["turns"])
                seen["explained"].append(hub.execute("EXPLAIN ALL")[0].message)
        seen["answers"] = {name: hub.query(f"of_{name}").history().to_pylist() for name in STREAMS}
        seen["late"] = {name: hub.status()["streams"][name]["late"] for name in STREAMS}
    return seen


def test_a_hub_takes_the_rows_first_whose_answers_would_be_worth_less(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        by_worth = lived(tmp_path / "turns", patch, turns)
        by_round_robin = lived(tmp_path / "equal", patch, equal_parts)
    assert by_worth["utility"] > 1.15 * by_round_robin["utility"]
    assert by_worth["answers"] == by_round_robin["answers"]
    assert set(by_worth["late"].values()) == {0}
    assert {} in by_worth["turns"]
    ordered = [granted for granted in by_worth["turns"] if granted]
    assert all(granted["alerts"] > granted["sensors"] > 0 for granted in ordered[:10])
    shown = next(
        text for text, granted in zip(by_worth["explained"], by_worth["turns"], strict=True) if granted
    )
    assert "the next epoch has no time for all that waits: " in shown


def test_turns_are_of_rows_that_wait_and_a_limit_of_no_rows_takes_none() -> None:
    """A stream whose rows have gone, since it was dropped, does not hold up the others; memory limits turns too."""
    pending = {"s": [Pending(7, "s", 100, 800, {})], "t": []}
    facts = {OVERLOAD: {"epoch_rows": 500, "turns": {"s": 0, "t": 90}}}
    of = rows_by_turns(Manifest(1, 1, facts=facts), lambda stream: pending[stream])
    assert [of(stream) for stream in "stu"] == [500, 500, 500]
    pending["t"] = [Pending(8, "t", 100, 800, {})]
    of = rows_by_turns(Manifest(1, 1, facts=facts), lambda stream: pending[stream])
    assert [of(stream) for stream in "stu"] == [0, 90, 500]
    limited = Manifest(1, 1, facts={**facts, MEMORY: {"epoch_rows": 50}})
    of = rows_by_turns(limited, lambda stream: pending[stream])
    assert [of(stream) for stream in "stu"] == [0, 50, 50]
    stream = StreamDefinition("s", Schema((Field("at", TIMESTAMP),)), "push")
    assert Admission().at_most(0).take(pending["s"], stream) == []
    assert Admission().at_most(1).take(pending["s"], stream) == pending["s"]


def test_the_machine_is_overloaded() -> None:
    assert len(STREAMS) * RATE * (READ + FOLD) == pytest.approx(1.5)
