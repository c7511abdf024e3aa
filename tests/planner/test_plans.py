"""Every recorded plan is what EXPLAIN shows today, and it answers what the reference answers.

A plan that differs on purpose is recorded again with `make plans`; the diff is then part of the review.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.operators.on_demand.selection import Selection
from tests.laws.comparing import canonical
from tests.laws.two_streams import table
from tests.planner.planned import HERE, PLANS, answered, epochs, explained, invoked, opened
from tests.runtime.rig import answer

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)


def test_no_recorded_plan_is_left_of_a_query_that_is_no_more() -> None:
    recorded = {path.stem for path in (HERE / "plans").glob("*.plan")}
    assert recorded == {path.stem for path in PLANS}
    assert len(PLANS) >= 40


@every_plan
def test_the_plan_is_the_recorded_one(plan: Path) -> None:
    assert explained(plan) == plan.with_suffix(".plan").read_text(encoding="utf-8"), "see `make plans`"


@every_plan
def test_a_recorded_plan_answers_as_the_reference_does(plan: Path) -> None:
    taken = epochs()
    with opened(plan) as (hub, name):
        for epoch in taken:
            for stream in hub.catalog.streams:
                hub.push(stream, table(epoch[stream]))
            hub.catch_up()
        if isinstance(hub.operator_and_query(name)[0], Selection):
            found, expected = hub.query(name).invoke().to_pylist(), invoked(hub, taken)
        else:
            hub.finish(seal=True)
            found, expected = answer(hub, name, {}), answered(hub, taken)
    assert expected, "a plan that answers nothing is not tested"
    assert canonical(found) == canonical(expected)
