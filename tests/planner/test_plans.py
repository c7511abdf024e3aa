"""Every recorded plan is what EXPLAIN shows today, and it answers what the reference answers.

A plan that differs on purpose is recorded again with `make plans`; the diff is then part of the review.
"""

from __future__ import annotations

import re
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


@pytest.mark.parametrize(
    "plan", [plan for plan in PLANS if plan.stem != "join_shared"], ids=lambda plan: plan.stem
)
def test_a_select_is_explained_as_it_will_be_once_it_is_registered(plan: Path) -> None:
    """But for the numbers of operators, options, which a SELECT does not have, and joins that it would share."""
    with opened(plan) as (hub, name):
        text = hub.catalog.require_query(name).definition.text
        hub.drop_query(name)
        hub.execute(f"CREATE QUERY {name} AS {text}")
        registered = hub.execute(f"EXPLAIN QUERY {name}")[0].message
        hub.drop_query(name)
        asked = hub.execute(f"EXPLAIN {text}")[0].message.replace("(not registered)", name)
    lines = re.sub(r"\bq\d+", "q", asked).split("\n")
    assert set(lines) <= set(re.sub(r"\bq\d+", "q", registered).split("\n"))
    assert any(line.startswith("  read ") for line in lines)
    assert any(line.startswith("  state: ") for line in lines)


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
