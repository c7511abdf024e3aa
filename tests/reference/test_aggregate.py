"""Aggregates of lists of values, exactly."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import (
    AGGREGATES,
    BY_ANOTHER,
    BY_ORDER,
    OF_BITS,
    OF_PAIRS,
    AggregateCall,
    result_type,
)
from headrace.algebra.expressions.expression import Column
from headrace.algebra.expressions.series import chosen, placed
from headrace.reference.aggregate import aggregate
from headrace.reference.conversion import RowError
from headrace.schema import BIGINT, DOUBLE, STRING, decimal

NAN, INF = float("nan"), math.inf


def result(function, values, kind=DOUBLE, *, distinct=False):
    if function in BY_ORDER:
        kind = placed(Column("v", DOUBLE), "s").type
    if function in BY_ANOTHER:
        kind = chosen(Column("v", DOUBLE), Column("w", DOUBLE)).type
    share = 0.3 if function == "percentile" else None
    most = 2 if function == "top_k" else None
    half_life = 2 if function == "ewma" else None
    column = Column("v", kind)
    call = AggregateCall(
        function,
        column,
        result_type(function, kind),
        distinct,
        share=share,
        most=most,
        half_life=half_life,
    )
    return aggregate(call, values)


def structures(function, values):
    """The numbers as what the function takes: with or after a number that hangs on the place, or with the place in the order."""
    if function in BY_ORDER:
        return [(value, index // 3, index) for index, value in enumerate(values)]
    if function in BY_ANOTHER:
        return [(index // 3, value) for index, value in enumerate(values)]
    return [None if value is None else (value, index // 3) for index, value in enumerate(values)]


@pytest.mark.parametrize(
    ("function", "values", "kind", "expected"),
    [
        ("count", [1, None, 2], BIGINT, 2),
        ("sum", [1, None, 2], BIGINT, 3),
        ("sum", [None], BIGINT, None),
        ("sum", [1e16, 1.0, -1e16], DOUBLE, 1.0),
        ("sum", [INF, 1.0], DOUBLE, INF),
        ("sum", [1e308, 1e308], DOUBLE, INF),
        ("sum", [1e308, 1e308, -1e308], DOUBLE, 1e308),
        ("sum", [Decimal("0.10"), Decimal("0.20")], decimal(4, 2), Decimal("0.30")),
        ("bit_and", [6, None, 3], BIGINT, 2),
        ("bit_or", [6, 3, -8], BIGINT, -1),
        ("bit_xor", [6, 3, 3, 3], BIGINT, 5),
        ("bit_xor", [None], BIGINT, None),
        ("avg", [1, 2], BIGINT, 1.5),
        ("avg", [], BIGINT, None),
        ("avg", [Decimal(1), Decimal(1), Decimal(0)], decimal(4, 0), Decimal("0.6667")),
        ("min", [NAN, 1.0, None], DOUBLE, 1.0),
        ("max", ["a", "é", "z"], STRING, "é"),
        ("max", [None], STRING, None),
        ("var_pop", [3.0], DOUBLE, 0.0),
        ("var_samp", [3.0], DOUBLE, None),
        ("var_samp", [1, 2, 3, 4], BIGINT, 5 / 3),
        ("stddev_pop", [2.0, 4.0], DOUBLE, 1.0),
        ("stddev_samp", [], DOUBLE, None),
        ("var_pop", [1e8 + 1, 1e8 + 3], DOUBLE, 1.0),
        ("l1_norm", [1, 1, None, 7], BIGINT, 3),
        ("l2_norm", [1, 1, None, 7, 7, 7, 0], BIGINT, math.sqrt(14)),
        ("l2_norm", [None], BIGINT, None),
        (
            "top_k",
            ["b", "a", "c", "a", "c", None],
            STRING,
            '[{"item": "a", "count": 2}, {"item": "c", "count": 2}]',
        ),
        ("top_k", [None], STRING, None),
    ],
)
def test_an_aggregate_worked_by_hand(function, values, kind, expected):
    answer = result(function, values, kind)
    assert (answer, type(answer)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("function", "values"),
    [
        ("sum", [INF, -INF]),
        ("sum", [NAN, 1.0]),
        ("avg", [NAN]),
        ("max", [NAN, INF]),
        ("min", [NAN]),
        ("var_pop", [INF, 1.0]),
    ],
)
def test_what_is_not_a_number_stays_so(function, values):
    assert math.isnan(result(function, values))


def test_distinct_takes_nan_once_and_zero_with_either_sign_once():
    assert result("count", [NAN, NAN, 0.0, -0.0, None], distinct=True) == 2
    assert result("sum", [2, 2, 3], BIGINT, distinct=True) == 5


def test_a_sum_that_its_type_cannot_hold_is_an_error_of_the_group():
    with pytest.raises(RowError, match="does not fit BIGINT"):
        result("sum", [2**63 - 1, 1], BIGINT)
    with pytest.raises(RowError, match=r"does not fit DECIMAL\(38,0\)"):
        result("sum", [Decimal(10) ** 38 - 1, Decimal(1)], decimal(38, 0))
    assert result("sum", [2**63 - 1, 1, -1], BIGINT) == 2**63 - 1


def test_the_third_power_of_a_large_deviation_need_not_be_a_double():
    assert result("skewness", [1e200, 0.0, 0.0]) == pytest.approx(1 / math.sqrt(2))
    assert result("skewness", [-1e200, 0.0, 0.0]) == pytest.approx(-1 / math.sqrt(2))


def test_of_several_rows_with_one_extreme_the_value_is_the_extreme_too():
    rows = [(2.0, 1.0), (2.0, None), None, (2.0, 3.0), (1.0, 5.0), (1.0, 4.0)]
    assert result("max_by", rows) == 3.0
    assert result("min_by", rows) == 4.0
    assert result("min_by", rows[:4]) is None
    assert result("max_by", [(NAN, 1.0), (INF, 2.0)]) == 1.0
    assert result("max_by", [None, None]) is None


def test_the_product_of_two_large_deviations_need_not_be_a_double():
    assert result("corr", [(1.3e308, 1e10), (-1.3e308, 0.0), (0.0, 5e9)]) == pytest.approx(1.0)
    assert result("corr", [(-1.3e308, 1e10), (1.3e308, 0.0), (0.0, 5e9)]) == pytest.approx(-1.0)


@given(
    st.sampled_from([name for name in AGGREGATES if name not in ("top_k", "heavy_hitters", *OF_BITS)]),
    st.lists(st.floats() | st.none()),
    st.randoms(use_true_random=False),
)
def test_no_aggregate_depends_on_order(function, values, random):
    if function in (*OF_PAIRS, *BY_ORDER, *BY_ANOTHER, "ewma"):
        values = structures(function, values)
    shuffled = random.sample(values, len(values))
    first, second = result(function, values), result(function, shuffled)
    assert first == second or (math.isnan(first) and math.isnan(second))
