"""Aggregates of a family that store values of rows make of small batches, folded together, what each makes by itself (law 6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, result_type
from headrace.algebra.expressions.expression import Expression, Named
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.base.operator import Operator
from headrace.operators.sharing import scan_sharing as foldings_of
from headrace.operators.sharing.pairs import query_values
from headrace.operators.sharing.pairs.query_values import QueryValues
from headrace.operators.sharing.scan_sharing import groups, scan_groups
from headrace.planner.lowering.lower import lower
from headrace.schema import BIGINT
from tests.examples import examples
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.strategies import TICK, column, literal
from tests.operators.sharing.test_routed_scans import FAILING, rows_of_sections
from tests.operators.sharing.test_shared_panes import counted, harvested, query, refused, rows

X = column("x")
CALLS = {
    "distinct": [AggregateCall("count", column("g"), BIGINT, True)],
    "percentile": [AggregateCall("percentile", X, result_type("percentile", BIGINT), share=0.5)],
    "several": [
        AggregateCall("count", None, BIGINT),
        AggregateCall("sum", X, BIGINT, True),
        AggregateCall("count", column("k"), BIGINT, True),
    ],
}


def family(kind: str, by: tuple[str, ...], conditions: list[Expression], spans: list[int]) -> list[Operator]:
    """Queries with the same keys and aggregates, conditions of their own and windows of so many ticks."""
    keys = tuple(Named(name, column(name)) for name in by)
    return [
        lower(f"q{index}", asked, f"q{index}")
        for index, asked in enumerate(
            query(TimeSlide(span * TICK, TICK, 0), condition, keys, CALLS[kind])
            for condition, span in zip(conditions, spans, strict=True)
        )
    ]


@examples(200)
@given(data=st.data())
def test_each_has_what_it_folds_by_itself(data: st.DataObject) -> None:
    conditions = data.draw(
        st.lists(st.one_of(some.predicates(), st.just(FAILING)), min_size=3, max_size=8, unique_by=repr),
        "where",
    )
    spans = data.draw(
        st.lists(st.sampled_from((2, 4, 7)), min_size=len(conditions), max_size=len(conditions))
    )
    by = data.draw(st.sampled_from(((), ("k",), ("k", "g"))), "by")
    operators = family(data.draw(st.sampled_from(sorted(CALLS)), "kind"), by, conditions, spans)
    drawn = data.draw(st.lists(streams.rows(), min_size=1, max_size=3), "batches")
    batches = [rows(epoch) for epoch in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foldings_of, "MOST_SEPARATE_FILTERS", 10**6)
        alone = harvested(operators, batches, {})
        patch.setattr(foldings_of, "MOST_SEPARATE_FILTERS", 2)
        patch.setattr(query_values, "MOST_PAIRS", data.draw(st.sampled_from((0, 30, 1 << 18)), "most pairs"))
        together = harvested(operators, batches, {})
    assert rows_of_sections(together) == rows_of_sections(alone)
    assert counted(together) == counted(alone)
    assert refused(together) == refused(alone)


def made(operators: list[Operator], drawn: list[dict[str, Any]], separate: int) -> Any:
    """Rows of state by section, measurements and rejects, where more than `separate` queries are folded together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foldings_of, "MOST_SEPARATE_FILTERS", separate)
        output = harvested(operators, [rows(drawn)], {})
    return rows_of_sections(output), counted(output), refused(output)


def test_a_row_that_fails_a_condition_is_rejected_by_its_query() -> None:
    operators = family("percentile", ("k",), [FAILING, *above(3)], [4] * 4)
    drawn = [row | {"x": row["x"] - 8} for row in some_rows(12)]
    alone, together = (made(operators, drawn, separate) for separate in (100, 2))
    assert together == alone
    assert alone[2], "something is rejected"


def test_queries_with_a_slot_of_their_own_keep_it_among_others() -> None:
    """Those with LIMIT have all groups of a window in one task."""
    operators = [
        replace(operator, single_slot=200 + index) if index % 2 else operator
        for index, operator in enumerate(family("distinct", ("k", "g"), above(6), [4] * 6))
    ]
    alone, together = (made(operators, some_rows(12), separate) for separate in (100, 2))
    assert together == alone


def above(count: int) -> list[Expression]:
    return [some.call(">", X, literal(n, BIGINT)) for n in range(count)]


def some_rows(count: int) -> list[dict[str, Any]]:
    return [{"k": "a", "g": n % 2, "x": n % 3 + 7, "y": 0.0, "at": n} for n in range(count)]


@pytest.mark.parametrize("kind", CALLS)
def test_a_thousand_queries_are_folded_in_one_pass(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One table of each store for both batches, and no scanner of a query; of large batches each query has its own."""
    operators = family(kind, ("k",), above(1000), [4] * 1000)
    ((how, queries),) = groups(operators)
    assert (how, len(queries)) == ("values", 1000)
    (scan_group,) = scan_groups(operators, {})
    assert isinstance(scan_group, QueryValues)
    for _ in range(2):
        scan_group.add(rows(some_rows(15)))
    assert not scan_group.alone.scanners
    output = scan_group.finish()
    stores = len(queries[0].over_panes.layouts)
    assert [len(tables) for tables in output.sections.values()] == [1] * stores
    (once,) = scan_groups(operators, {})
    once.add(rows(some_rows(15)))
    cells, same = (
        [[table.num_rows for table in tables] for tables in made.sections.values()]
        for made in (output, once.finish())
    )
    assert cells == same, "cells of several batches are merged"
    kept = {name: scanned.rows_kept for name, scanned in output.scanned.items() if scanned.rows_kept}
    assert kept == {**{f"q{n}": 30 for n in range(7)}, "q7": 20, "q8": 10}
    assert {scanned.rows_in for scanned in output.scanned.values()} == {30}

    monkeypatch.setattr(query_values, "MOST_PAIRS", 29_999)
    (scan_group,) = scan_groups(operators, {})
    assert isinstance(scan_group, QueryValues)
    scan_group.add(rows(some_rows(30)))
    assert scan_group.alone.scanners.keys() == kept.keys()


def test_those_that_store_rows_of_sparse_groups_fold_by_themselves() -> None:
    operators = family("distinct", ("k",), above(20), [4] * 20)
    ((how, queries),) = groups(operators, {operators[0].over_panes.family})
    assert (how, len(queries)) == ("routed", 20)
    assert {how for how, _ in groups(operators[:12])} == {"unshared"}
