"""The cars of the benchmark `constraints`, and its joins: the same results from less state with constraints that are found."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import constrained_joins
from benchmarks.constrained_hubs import states_in_hubs
from benchmarks.constrained_joins import (
    DETECTED,
    NETWORK_RANGE,
    REPORTING,
    SECOND,
    finding,
    join_of,
    packets_delayed,
    reports,
    spilling,
    state_over,
)


@pytest.fixture(autouse=True)
def few_cars(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CARS": 600, "STOPPED": 0.05, "TICK": SECOND}.items():
        monkeypatch.setattr(constrained_joins, name, value)


def test_cars_report_every_thirty_seconds_and_are_detected_soon_after_a_report() -> None:
    at: dict[int, list[int]] = {}
    detections = 0
    for end, ((cars, times), (stopped, seen)) in reports(200):
        assert ((times < end) & (times >= end - SECOND)).all()
        for car, time in zip(cars.tolist(), times.tolist(), strict=True):
            at.setdefault(car, []).append(time)
        assert (np.diff(seen) >= 0).all()
        for car, time in zip(stopped.tolist(), seen.tolist(), strict=True):
            assert len(at[car]) >= 4
            assert any(0 <= time - report < DETECTED for report in at[car])
            detections += 1
    assert len(at) == 600
    assert all(
        REPORTING < gap <= REPORTING + SECOND for times in at.values() for gap in np.diff(times).tolist()
    )
    assert detections > 100


def test_acc_seg_has_the_same_results_from_a_part_of_the_state() -> None:
    join = join_of(("CurCarSeg", "AccCars"), REPORTING)
    plain, found = (state_over(way, reports(420)) for way in (join, finding(join)))
    assert found.results == plain.results > 1000
    assert sum(found.rows[-60:]) < 0.5 * sum(plain.rows[-60:])


def test_as_a_query_of_a_hub_it_has_the_same_results_from_a_part_of_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constrained_joins, "STOPPED", 0.2)
    sides = ("CurCarSeg", "AccCars")
    plain, found = states_in_hubs(sides, REPORTING, reports(240), ["", "OPTIONS (constraints 'find')"])
    assert len(plain.keys) > 1000
    assert (found.keys == plain.keys).all()
    assert found.rows[-1] < 0.6 * plain.rows[-1]


def test_rows_on_disk_are_counted_and_searched_no_more() -> None:
    join = finding(join_of(("entered", "passed"), NETWORK_RANGE))
    plain, kept = (state_over(way, packets_delayed(120)) for way in (join, spilling(join)))
    assert kept.results > plain.results
    assert kept.from_disk > 0
    assert kept.on_disk[-1] > kept.sizes[-1]
    assert plain.on_disk[-1] == 0
