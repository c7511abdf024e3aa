"""Rows that many queries of a family store, made for all pairs of a row and a query, are those that each query makes by itself (law 6):
with windows, ends of rows and conditions of its own, also where expressions fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Cast, Expression, Named
from headrace.algebra.query import Filter, Query, Windowed
from headrace.algebra.windows.window import Lasting, TimeRange, Unbounded, Window
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import QUERY_NUMBER, Operator
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.rows.row_state import Bounded, RowLayout
from headrace.operators.sharing import family_rows
from headrace.operators.sharing.family_rows import FamilyRows
from headrace.operators.sharing.pairs import query_pairs, query_rows
from headrace.operators.sharing.pairs.query_rows import QueryRows
from headrace.planner.lowering.lower import lower
from headrace.schema import BIGINT
from tests.examples import examples
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.strategies import SCAN, TICK, column, literal
from tests.operators.sharing.test_routed_scans import FAILING, rows_of_sections
from tests.operators.sharing.test_shared_panes import counted, refused, rows

MOST = (1 << 63) - 1


def number(value: int) -> Expression:
    return literal(value, BIGINT)


def ending(longest: int, kind: int) -> Window:
    """As the ends of combinations of a shared join, by several expressions; with the greatest integer some overflow."""
    left: Expression = some.call("-", number(longest), column("x"), kind=BIGINT)
    if kind:
        other = some.call("-", number(kind), Cast(column("g"), BIGINT), kind=BIGINT)
        left = some.call("least", left, other, kind=BIGINT)
    return Lasting(some.call("+", column("x"), left, kind=BIGINT))


def reading(window: Window, where: Expression, failing: bool) -> Query:
    """Rows under a window; one of the values shown may fail."""
    node = Windowed(Filter(SCAN, where), "s", window)
    shown = some._projected(node, ["s.k", "s.y"])
    if failing:
        columns = (*shown.columns, Named("q", some.call("div", number(6), column("x"), kind=BIGINT)))
        shown = replace(shown, columns=columns)
    return Query(shown, "relation")


@st.composite
def families(draw: st.DrawFn) -> list[Query]:
    """Queries of one family; conditions, ends and windows repeat."""
    failing = draw(st.booleans())
    where = st.one_of(some.predicates(), some.predicates(), st.just(FAILING))
    ends = st.builds(ending, st.sampled_from((3, 9, 9, MOST)), st.integers(0, 2))
    ranges = st.builds(TimeRange, st.sampled_from((2 * TICK, 9 * TICK)))
    windows = draw(st.sampled_from((ends, ends, ranges, st.just(Unbounded()))))
    return draw(st.lists(st.builds(reading, windows, where, st.just(failing)), min_size=3, max_size=8))


@examples(100)
@given(queries=families(), drawn=st.lists(streams.rows(), min_size=1, max_size=3), small=st.booleans())
def test_rows_of_pairs_are_those_that_each_query_makes(
    queries: list[Query], drawn: list[Any], small: bool
) -> None:
    operators = [lower(f"q{index}", asked, f"q{index}") for index, asked in enumerate(queries)]
    batches = [rows(epoch) for epoch in drawn]
    with pytest.MonkeyPatch.context() as patch:
        alone = scanned_by(operators, batches)
        patch.setattr(family_rows, "MOST_SEPARATE_FILTERS", 0)
        patch.setattr(query_pairs, "PAIRS_AT_ONCE", 3 if small else 1 << 18)
        patch.setattr(query_rows, "ROWS_AT_ONCE", 2 if small else 1 << 16)
        together = scanned_by(operators, batches)
        assert FamilyRows.of(tuple(operators), {}).together is not None
    assert rows_of_sections(together) == rows_of_sections(alone)
    assert counted(together) == counted(alone)
    assert refused(together) == refused(alone)
    assert together.delta_rows == alone.delta_rows


def scanned_by(operators: Sequence[Operator], batches: Sequence[Batch]) -> ScanOutput:
    family_rows._known_sharers._made.clear()
    family = FamilyRows.of(tuple(operators), {})
    for batch in batches:
        family.add(batch)
    return family.finish()


def test_times_that_a_query_does_not_store_are_left_out_of_its_pairs() -> None:
    """A query FROM NOW, and one whose answers begin later."""
    asked = [reading(TimeRange(9 * TICK), some.call("=", column("x"), number(x)), False) for x in range(13)]
    operators = [lower(f"q{x}", query, f"q{x}") for x, query in enumerate(asked)]
    bounds = {
        0: Bounded(low=2 * TICK),
        1: Bounded(high=2 * TICK),
        2: Bounded(2 * TICK, 3 * TICK, shift=5 * TICK),
    }
    operators = [
        replace(operator, rows=replace(operator.rows, bounded=bounds.get(x, Bounded())))
        for x, operator in enumerate(operators)
    ]
    times = [{"k": "a", "g": 0, "x": x, "y": 0.5, "at": at * TICK} for at in range(6) for x in range(4)]
    output = scanned_by(operators, [rows(times)])
    (table,) = output.sections[f"{operators[0].family_key}/rows"]
    stored = {
        x: sorted(
            at // TICK
            for at, number_ in zip(table["__time"].to_pylist(), table[QUERY_NUMBER].to_pylist(), strict=True)
            if number_ == x
        )
        for x in range(4)
    }
    assert stored == {0: [2, 3, 4, 5], 1: [0, 1, 2], 2: [7, 8], 3: [0, 1, 2, 3, 4, 5]}


def test_a_thousand_queries_make_no_scanner_and_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [
        reading(ending(9 + x % 40, 1), some.call("=", column("x"), number(x)), False) for x in range(1000)
    ]
    operators = tuple(lower(f"q{x}", query, f"q{x}") for x, query in enumerate(queries))
    monkeypatch.setattr(RowLayout, "scanner", None)
    family = FamilyRows.of(operators, {})
    family.add(rows([{"k": "a", "g": 0, "x": x, "y": 0.5, "at": x * TICK} for x in range(1000)]))
    assert isinstance(family.together, QueryRows)
    assert [table.num_rows for table in family.together.tables] == [1000]
    assert len(family.together.plan.ends[0]) == 1, "constants are columns, so there is one expression"
