"""A worker's plan of thousands of queries, made from the one before it, gives what one made of all at once gives."""

from __future__ import annotations

from random import Random

import numpy as np

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Call, Named
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.query_index.index_cache import none_yet, predicate_of
from headrace.operators.query_index.predicates.normal_form import normal
from headrace.operators.rows.row_pipeline import RowPipeline
from headrace.operators.sharing.scan_sharing import MOST_SEPARATE_FILTERS
from headrace.operators.sharing.shared_panes import LazyScanners
from headrace.operators.sharing.shared_plan import SharedPlan, _plans, plan_of
from headrace.operators.sharing.shared_predicates import SharedPredicates
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering.lower import lower
from headrace.schema import BIGINT, BOOLEAN
from tests.laws.strategies import TICK, column, literal
from tests.operators.sharing.test_shared_panes import query, rows


def member(number: int, seconds: int = 4) -> PaneAggregate:
    condition = Call(">", (column("x"), literal(number % 23, BIGINT)), BOOLEAN)
    window = TimeSlide(seconds * TICK, TICK)
    asked = query(window, condition, (Named("k", column("k")),), [AggregateCall("count", None, BIGINT)])
    operator = lower(f"q{number}", asked, f"q{number}")
    assert isinstance(operator, PaneAggregate)
    return operator


def answers(plan: SharedPlan) -> dict[str, list[dict[str, object]]]:
    """What a scan task makes of some rows by a plan."""
    batch = rows([{"k": "ab"[n % 2], "g": 1, "x": n % 30, "y": 0.5, "at": n * TICK // 7} for n in range(200)])
    shared = SharedPredicates(plan, RowPipeline.of((), {}), LazyScanners({}, {}))
    shared.add(batch)
    output = shared.finish()
    tables = {
        name: [row for table in tables for row in table.to_pylist()]
        for name, tables in output.sections.items()
    }
    rows_kept = {name: scanned.rows_kept for name, scanned in output.scanned.items()}
    return {**{name: sorted(rows_of, key=repr) for name, rows_of in tables.items()}, "kept": [rows_kept]}


def test_whatever_comes_and_goes_a_plan_by_delta_folds_as_one_made_anew() -> None:
    random = Random(11)
    known = [member(n, 4 + n % 2) for n in range(40)]
    plan, number = none_yet(SharedPlan).rebuilt(tuple(known)), 40
    for _ in range(40):
        gone = random.sample(known, random.randint(0, 6))
        fresh = [member(number + n, 4 + n % 2) for n in range(random.randint(0, 6))]
        number += len(fresh)
        known = [each for each in known if each not in gone] + fresh
        plan = plan.changed(tuple(known))
        anew = none_yet(SharedPlan).rebuilt(tuple(known))
        assert len(plan.index) == len({predicate_of(each) for each in known})
        assert plan.index.next_slot <= 2 * len(plan.index) + 64
        assert answers(plan) == answers(anew)


def test_one_query_more_compiles_one_condition_more() -> None:
    members = tuple(member(n) for n in range(MOST_SEPARATE_FILTERS + 8))
    _plans._kept.clear()
    first = plan_of(members)
    assert plan_of((*members,)) is first
    another = plan_of((*members, member(22)))
    assert another.index.sides[0] is first.index.sides[0]
    assert [entry.form for entry in another.index.sides[1].entries] == [normal(predicate_of(member(22)))]
    assert np.array_equal(another.slots[: len(members)], first.slots)
    assert another.slots[-1] not in first.slots
