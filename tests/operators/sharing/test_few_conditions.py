"""A few aggregates with conditions of their own fold the rows of one index where that pays, and answer as each alone (law 6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Expression, Named
from headrace.algebra.query import Query
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.families.family import state_name
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.query_index.predicates.normal_form import reads_only_columns
from headrace.operators.sharing import shared_predicates
from headrace.operators.sharing.scan_sharing import groups, scan_groups
from headrace.operators.sharing.shared_predicates import SharedPredicates
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering.lower import lower
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, STRING
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.strategies import TICK, column, literal
from tests.operators.sharing.test_shared_panes import (
    answers,
    counted,
    harvested,
    query,
    refused,
    rows,
    windows,
)

COUNT = [AggregateCall("count", None, BIGINT)]
BY_K = (Named("k", column("k")),)
FAILING = [AggregateCall("sum", some.call("/", column("y"), column("y"), kind=DOUBLE), DOUBLE)]
"""An aggregate that fails on rows where y is 0."""


def above(number: int) -> Expression:
    return some.call(">", column("x"), literal(number, BIGINT))


def counting(name: str, where: Expression) -> PaneAggregate:
    operator = lower(name, query(TimeSlide(4 * TICK, TICK), where, BY_K, COUNT), name)
    assert isinstance(operator, PaneAggregate)
    return operator


def kinds(*wheres: Expression) -> list[str]:
    return [how for how, _ in groups([counting(f"q{n}", where) for n, where in enumerate(wheres)])]


@st.composite
def few(draw: st.DrawFn) -> list[Query]:
    """Queries with comparisons of columns, and now and then an argument that fails."""
    keys = tuple(Named(name, column(name)) for name in draw(st.sampled_from(((), ("k",), ("k", "g")))))
    calls = draw(st.one_of(st.lists(some.aggregate_calls(), min_size=1, max_size=2), st.just(FAILING)))
    return [
        query(draw(windows()), draw(st.one_of(st.none(), some.predicates())), keys, calls)
        for _ in range(draw(st.integers(2, 6)))
    ]


@given(
    queries=few(),
    drawn=st.lists(streams.rows(), min_size=1, max_size=3),
    least=st.sampled_from((0, 6)),
    gain=st.sampled_from((0, 1, 4)),
    at_once=st.sampled_from((1, 8, 1 << 20)),
)
def test_a_few_conditions_fold_together_as_each_alone(
    queries: list[Query], drawn: list[Any], least: int, gain: int, at_once: int
) -> None:
    operators = [lower(f"q{index}", asked, f"q{index}") for index, asked in enumerate(queries)]
    batches = [rows(epoch) for epoch in drawn]
    alone = ScanOutput()
    for operator in operators:
        alone.join(harvested([operator], batches))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_predicates, "_LEAST_ROWS", least)
        patch.setattr(shared_predicates, "_LEAST_GAIN", gain)
        patch.setattr(shared_predicates, "FOLDED_AT_ONCE", at_once)
        shared = harvested(operators, batches)
    assert answers(operators, queries, shared) == answers(operators, queries, alone)
    assert counted(shared) == counted(alone)
    assert refused(shared) == refused(alone)


def test_two_comparisons_share_an_index_and_a_costly_condition_is_evaluated_by_itself() -> None:
    odd = some.call("=", some.call("%", column("x"), literal(2, BIGINT), kind=BIGINT), literal(1, BIGINT))
    like = some.call("rlike", column("k"), literal("a+", STRING))
    both = some.call("and", above(1), like, kind=BOOLEAN)
    assert kinds(above(1), above(2)) == ["conditions"]
    assert kinds(above(1), above(1)) == ["panes"]
    assert kinds(above(1), both) == ["unshared", "unshared"]
    assert kinds(above(1), odd) == ["unshared", "unshared"]
    assert not reads_only_columns(odd)
    assert not reads_only_columns(both)
    assert reads_only_columns(None)


def test_groups_that_are_stored_as_rows_stay_with_their_scanners() -> None:
    queries = [counting(f"q{n}", above(n)) for n in range(3)]
    stored = [state_name(queries[0])]
    assert [type(group).__name__ for group in scan_groups(queries, {}, stored)] == ["Unshared"] * 3
    assert [type(group).__name__ for group in scan_groups(queries, {}, ["another"])] == ["SharedPredicates"]


def test_rows_of_nearly_as_many_groups_are_folded_by_each_query_which_counts_them() -> None:
    queries = [counting(f"q{n}", above(n)) for n in range(3)]
    values = [{"k": f"k{n}", "g": 1, "x": 5, "y": 0.5, "at": n} for n in range(5000)]
    batches = [rows(values), rows([{**row, "k": "a"} for row in values])]
    (scan_group,) = scan_groups(queries, {})
    assert isinstance(scan_group, SharedPredicates)
    for batch in batches:
        scan_group.add(batch)
    output = scan_group.finish()
    assert not scan_group.pays
    assert {name: scanned.sparse_groups for name, scanned in output.scanned.items()} == dict.fromkeys(
        ("q0", "q1", "q2"), 5000
    )


def test_small_batches_of_a_few_queries_are_not_matched_with_an_index() -> None:
    queries = [counting(f"q{n}", above(n)) for n in range(3)]
    (scan_group,) = scan_groups(queries, {})
    assert isinstance(scan_group, SharedPredicates)
    few_rows, many_rows = (
        rows([{"k": "a", "g": 1, "x": n % 9, "y": 0.5, "at": n} for n in range(count)])
        for count in (4095, 4096)
    )
    scan_group.add(few_rows)
    assert not scan_group.held
    assert scan_group.pays
    scan_group.add(many_rows)
    assert scan_group.held
    scan_group.finish()
    assert len(scan_group.folds) == 1


def test_rows_wait_for_others_only_where_cells_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_predicates, "_LEAST_AT_ONCE", 8)
    queries = [counting(f"q{n}", above(n)) for n in range(14)]

    def waiting(groups_of_a_batch: int) -> list[int]:
        (scan_group,) = scan_groups(queries, {})
        assert isinstance(scan_group, SharedPredicates)
        scan_group.enough = 8
        seen = []
        for first in range(0, 160, 40):
            values = [
                {"k": f"k{n % groups_of_a_batch}", "g": 1, "x": 50, "y": 0.5, "at": n}
                for n in range(first, first + 40)
            ]
            scan_group.add(rows(values))
            seen.append(sum(held.rows for held in scan_group.held))
        return seen

    assert waiting(1) == [0, 40, 0, 40]
    assert waiting(10) == [0, 40, 80, 120]
