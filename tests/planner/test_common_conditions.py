"""What several queries require of the rows of streams that they join: as ranges and written conditions, in a name, and as filters."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Call, Column, Expression, Literal, conjunction
from headrace.operators.scalar import Evaluation
from headrace.planner.joins.common_conditions import (
    Conditions,
    common,
    conditions_in,
    conditions_of,
    filters_of,
)
from headrace.schema import BIGINT, BOOLEAN, STRING, TINYINT, Field, Schema

SIDES = [
    Schema((Field("s0.k", STRING), Field("s0.v", BIGINT))),
    Schema((Field("s1.v", BIGINT), Field("s1.t", TINYINT))),
]
V, T, K = Column("s0.v", BIGINT), Column("s1.t", TINYINT), Column("s0.k", STRING)
GREATEST = 2**63 - 1


def compared(sign: str, column: Column, value: int | str) -> Expression:
    return Call(sign, (column, Literal(value, column.type)), BOOLEAN)


def either(*parts: Expression) -> Expression:
    return Call("or", parts, BOOLEAN)


@pytest.mark.parametrize(
    ("factors", "range_"),
    [
        ([compared(">", V, 3)], (4, None)),
        ([compared("<=", V, 3)], (None, 3)),
        ([compared("=", V, 3)], (3, 3)),
        ([compared(">=", V, 3), compared("<", V, 9)], (3, 8)),
        ([Call("in", (V, Literal(7, BIGINT), Literal(-2, BIGINT)), BOOLEAN)], (-2, 7)),
        ([either(compared("<", V, 3), compared("=", V, 9))], (None, 9)),
        ([Call(">", (Literal(5, BIGINT), V), BOOLEAN)], (None, 4)),
    ],
)
def test_the_range_of_a_column_of_integers(factors: list[Expression], range_: object) -> None:
    assert conditions_of(SIDES, factors) == Conditions({(0, 1): range_})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "factors",
    [
        [compared("<>", V, 3)],
        [either(compared("<", V, 3), compared(">", V, 9))],
        [compared("<", V, 3), compared(">", V, 9)],  # no row at all
        [Call("=", (V, Column("s1.v", BIGINT)), BOOLEAN)],
        [Call(">", (Call("/", (Literal(6, BIGINT), V), BIGINT), Literal(1, BIGINT)), BOOLEAN)],  # fails at 0
    ],
)
def test_conditions_without_a_range(factors: list[Expression]) -> None:
    assert not conditions_of(SIDES, factors).ranges


def test_what_may_fail_or_reads_both_sides_is_no_condition_and_what_selects_null_is_no_range() -> None:
    fails = Call(">", (Call("/", (Literal(6, BIGINT), V), BIGINT), Literal(1, BIGINT)), BOOLEAN)
    both = Call("=", (V, Column("s1.v", BIGINT)), BOOLEAN)
    assert not conditions_of(SIDES, [fails, both])
    of_null = conditions_of(SIDES, [either(compared(">", V, 3), Call("isnull", (V,), BOOLEAN))])
    assert not of_null.ranges
    assert len(of_null.written) == 1


def test_common_conditions_are_the_ranges_of_all_and_what_all_have_written() -> None:
    of_all = common(
        [
            conditions_of(SIDES, [compared(">", V, 900), compared("=", K, "a"), compared("=", T, 4)]),
            conditions_of(SIDES, [compared(">", V, 940), compared("=", K, "a"), compared("<", V, 999)]),
        ]
    )
    assert of_all.ranges == {(0, 1): (896, None)}
    assert len(of_all.written) == 1
    assert not common([of_all, conditions_of(SIDES, [compared("=", K, "b")])])


def test_a_query_is_covered_if_the_join_has_all_rows_that_it_selects() -> None:
    join = conditions_of(SIDES, [compared(">", V, 3), compared("<", V, 9), compared("=", K, "a")])
    assert join.covers(
        conditions_of(SIDES, [compared("=", V, 4), compared("=", K, "a"), compared("=", T, 1)])
    )
    for factors in (
        [compared("=", V, 4)],
        [compared("=", K, "a")],
        [compared("=", V, 3), compared("=", K, "a")],
        [compared(">", V, 4), compared("=", K, "a")],
        [compared("=", V, 4), compared("=", K, "b")],
    ):
        assert not join.covers(conditions_of(SIDES, factors))


bounds = st.none() | st.integers(-GREATEST - 1, GREATEST) | st.integers(-300, 300)
ranges = st.tuples(bounds, bounds).filter(lambda drawn: drawn != (None, None))


@given(st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 40)), ranges, max_size=4))
def test_a_name_says_what_a_join_requires(of_columns: dict[tuple[int, int], tuple[int, int]]) -> None:
    conditions = Conditions(of_columns, frozenset({"0123456789ab"}))
    assert conditions_in(conditions.words) == conditions
    assert all("_" not in word for word in conditions.words)


@given(st.lists(ranges, min_size=1, max_size=4))
def test_a_range_is_rounded_outwards_by_a_quarter_of_its_bounds_at_most(drawn: list[tuple[int, int]]) -> None:
    exact = [Conditions({(0, 0): range_}) for range_ in drawn]
    rounded = common(exact)
    assert all(rounded.covers(one) for one in exact)
    for index, bounds_of_side in enumerate(zip(*drawn, strict=True)):
        bound = rounded.ranges.get((0, 0), (None, None))[index]
        assert (bound is None) == (None in bounds_of_side)
        if bound is not None:
            outermost = (min, max)[index](bounds_of_side)
            assert abs(bound - outermost) * 4 <= abs(outermost)


values = st.none() | st.integers(-6, 6)
single = st.builds(
    compared, st.sampled_from(("<", "<=", "=", ">", ">=", "<>")), st.just(V), st.integers(-6, 6)
)
of_text = st.builds(compared, st.sampled_from(("=", "<")), st.just(K), st.sampled_from("ab"))
readers = st.lists(st.lists(single | of_text, max_size=3), min_size=1, max_size=4)


@given(readers, st.lists(st.tuples(st.sampled_from((None, "a", "b")), values), min_size=1, max_size=12))
def test_no_row_that_any_reader_selects_is_filtered(
    queries: list[list[Expression]], rows: list[tuple[str | None, int | None]]
) -> None:
    required = common([conditions_of(SIDES, factors) for factors in queries])
    columns = {
        "s0.k": pa.array([row[0] for row in rows], pa.string()),
        "s0.v": pa.array([row[1] for row in rows], pa.int64()),
    }
    for factors in queries:
        assert required.covers(conditions_of(SIDES, factors))
        of_left, of_right = filters_of(SIDES, required, factors)
        assert not of_right
        kept, selected = np.ones(len(rows), bool), np.ones(len(rows), bool)
        for filter_ in of_left:
            kept &= Evaluation(columns, len(rows)).mask(filter_.predicate)
        if factors:
            selected = Evaluation(columns, len(rows)).mask(conjunction(factors))
        assert not (selected & ~kept).any()


def test_a_bound_beyond_the_values_of_a_type_is_no_filter() -> None:
    assert not any(filters_of(SIDES, Conditions({(1, 1): (-300, 128)}), []))
    (of_right,) = filters_of(SIDES, Conditions({(1, 1): (-300, 127)}), [])[1]
    assert of_right.predicate == compared("<=", T, 127)
