"""Errors, laziness, sharing and registered functions, without Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Call, Case, Cast, Column, Expression, Literal
from headrace.algebra.functions.resolve import UserFunction, resolve
from headrace.errors import UserError
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.operators.scalar import Evaluation, evaluate, predicate
from headrace.reference.conversion import RowError
from headrace.reference.scalar import evaluate as meaning
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, STRING, Field, Schema, Type

ROWS = [
    {"a": a, "b": b, "x": x}
    for a in (True, False, None)
    for b in (True, False, None)
    for x in (0, 1, 7, None)
]
SCHEMA = Schema((Field("a", BOOLEAN), Field("b", BOOLEAN), Field("x", BIGINT)))
COLUMNS = {
    f.name: pa.array([row[f.name] for row in ROWS], {BOOLEAN: pa.bool_(), BIGINT: pa.int64()}[f.type])
    for f in SCHEMA
}


def call(name: str, *arguments: Expression) -> Call:
    constants = tuple(part.value if isinstance(part, Literal) else None for part in arguments)
    signature = resolve(name, tuple(part.type for part in arguments), constants)
    cast = [
        p if p.type == kind else Cast(p, kind) for p, kind in zip(arguments, signature.arguments, strict=True)
    ]
    return Call(signature.function, tuple(cast), signature.result)


A, B, X = Column("a", BOOLEAN), Column("b", BOOLEAN), Column("x", BIGINT)
RISKY = call("div", Literal(8, BIGINT), X)


LEAVES = {
    "x": X,
    "risky": RISKY,
    "zero": Literal(0, BIGINT),
    "null": Literal(None, BIGINT),
    "large": Literal(2**62, BIGINT),
    "failing": call("div", Literal(1, BIGINT), Literal(0, BIGINT)),
}
TRUTHS = {"a": A, "b": B, "null": Literal(None, BOOLEAN), "true": Literal(True, BOOLEAN)}


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> Expression:
    form = draw(st.sampled_from(["leaf", "=", "<", ">=", *(["and", "or", "not"] if depth else [])]))
    if form == "leaf":
        return TRUTHS[draw(st.sampled_from(sorted(TRUTHS)))]
    if form == "not":
        return call(form, draw(conditions(depth - 1)))
    if form in ("and", "or"):
        return call(form, *draw(st.lists(conditions(depth - 1), min_size=2, max_size=3)))
    return call(form, draw(numbers(depth - 1)), draw(numbers(depth - 1)))


@st.composite
def numbers(draw: st.DrawFn, depth: int = 2) -> Expression:
    form = (
        draw(st.sampled_from(["leaf", "+", "-", "*", "div", "coalesce", "if", "case"]))
        if depth > 0
        else "leaf"
    )
    less = depth - 1
    if form == "leaf":
        return LEAVES[draw(st.sampled_from(sorted(LEAVES)))]
    if form == "coalesce":
        return call(form, *draw(st.lists(numbers(less), min_size=1, max_size=3)))
    if form == "if":
        return call(form, draw(conditions(less)), draw(numbers(less)), draw(numbers(less)))
    if form == "case":
        branches = draw(st.lists(st.tuples(conditions(less), numbers(less)), min_size=1, max_size=3))
        return Case(tuple(branches), draw(numbers(less)), BIGINT)
    return call(form, draw(numbers(less)), draw(numbers(less)))


@given(numbers())
def test_values_and_failures_are_those_of_the_reference(expression: Expression) -> None:
    values = evaluate(expression, COLUMNS, len(ROWS))
    failed = set(values.errors.reasons) if values.errors is not None else set()
    for row, (ours, inputs) in enumerate(zip(values.values.to_pylist(), ROWS, strict=True)):
        try:
            assert (ours, row in failed) == (meaning(expression, inputs), False)
        except RowError:
            assert (ours, row in failed) == (None, True)


@given(conditions())
def test_a_mask_is_true_where_the_predicate_holds(condition: Expression) -> None:
    mask, errors = predicate(condition, COLUMNS, len(ROWS))
    failed = np.zeros(len(ROWS), bool) if errors is None else errors.mask
    assert not (mask & failed).any()
    for row, inputs in enumerate(ROWS):
        try:
            assert (mask[row], failed[row]) == (meaning(condition, inputs) is True, False)
        except RowError:
            assert failed[row]


def test_reasons_name_the_values_of_their_row() -> None:
    columns = {"x": pa.array([2**63 - 1, 5, None]), "s": pa.array(["7", "seven", None])}
    evaluation = Evaluation(columns, 3)
    evaluation.values(call("+", X, Literal(1, BIGINT)))
    evaluation.values(Cast(Column("s", STRING), INT))
    assert evaluation.errors is not None
    assert dict(evaluation.errors.reasons) == {
        0: "9223372036854775807 + 1 does not fit BIGINT",
        1: "'seven' cannot be cast to INT",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / (x - x)", "division by zero"),
        ("x % 0", "division by zero"),
        ("cast(x + 2147483647 AS INT)", "2147483654 does not fit INT"),
        ("cast(x + 0.5BD AS DECIMAL(1,1))", "7.5 does not fit DECIMAL(1,1)"),
        ("cast('abc' AS DOUBLE) + x", "'abc' cannot be cast to DOUBLE"),
        (
            "cast(99999999BD AS DECIMAL(8,0)) * cast(9999999999999999999999999999999 AS DECIMAL(31,0)) * x",
            "does not fit",
        ),
        ("timestamp_seconds(x * 1000000000000000000)", "7000000000000000000 does not fit TIMESTAMP"),
        ("split_part('a', 'b', x - 7)", "split_part counts from 1, not 0"),
        ("'a' LIKE concat('\\\\', x)", "escapes what needs no escape"),
        ("abs(-9223372036854775807 - cast(x / 7 AS INT))", "abs(-9223372036854775808) does not fit BIGINT"),
        ("round(9223372036854775800 + x, -1)", "round(9223372036854775807, -1) does not fit BIGINT"),
        ("floor(x * 1e30D)", "does not fit BIGINT"),
        (
            "date_trunc('YEAR', timestamp_micros(x - 7 - 9223372036854775807))",
            "is before the least TIMESTAMP",
        ),
    ],
)
def test_what_fails_says_why(text: str, reason: str) -> None:
    expression = bind_expression(text, SCHEMA)
    values = evaluate(expression, {"x": pa.array([7], pa.int64())}, 1)
    assert values.errors is not None
    assert reason in values.errors.reasons[0]
    assert values.values.to_pylist() == [None]


def test_a_subexpression_that_several_ask_for_is_computed_once() -> None:
    calls = []

    def counted(values: pa.Array) -> pa.Array:
        calls.append(len(values))
        return values

    users = {"counted": UserFunction("counted", (BIGINT,), BIGINT, counted)}
    evaluation = Evaluation({"x": pa.array([1, 2])}, 2, users)
    for other in (1, 2):
        asked = Call("counted", (Column("x", BIGINT),), BIGINT)
        assert evaluation.values(call("+", asked, Literal(other, BIGINT))).to_pylist() == [
            1 + other,
            2 + other,
        ]
    assert calls == [2]


def _registered(body: Any, *, by_row: bool = False, strict: bool = True, result: Type = BIGINT) -> Any:
    users = {"f": UserFunction("f", (BIGINT,), result, body, by_row=by_row, strict=strict)}
    columns = {"x": pa.array([1, 0, None, 4])}
    return evaluate(Call("f", (X,), result), columns, 4, users)


@pytest.mark.parametrize("by_row", [True, False])
def test_a_registered_function_fails_only_on_its_bad_rows(by_row: bool) -> None:
    def body(value: Any) -> Any:
        if by_row:
            return 8 // value
        return pc.divide(pa.scalar(8), value)

    evaluated = _registered(body, by_row=by_row)
    assert evaluated.values.to_pylist() == [8, None, None, 2]
    assert list(evaluated.errors.reasons) == [1]
    assert "f: " in evaluated.errors.reasons[1]


def test_a_registered_function_may_see_nulls_and_give_any_sequence() -> None:
    evaluated = _registered(lambda values: [0 if v is None else v for v in values.to_pylist()], strict=False)
    assert evaluated.values.to_pylist() == [1, 0, 0, 4]
    assert evaluated.errors is None


def test_a_registered_function_with_too_few_values_fails_its_rows() -> None:
    evaluated = _registered(lambda values: [])
    assert "expected 1 values, found 0" in evaluated.errors.reasons[0]


def test_an_unregistered_function_is_named() -> None:
    with pytest.raises(UserError, match="no function 'f' is registered"):
        evaluate(Call("f", (X,), BIGINT), {"x": pa.array([1])}, 1)


def test_errors_of_rows_the_registered_function_never_saw_stay() -> None:
    users = {"f": UserFunction("f", (BIGINT,), BIGINT, lambda values: values)}
    evaluated = evaluate(Call("f", (RISKY,), BIGINT), {"x": pa.array([0, 2])}, 2, users)
    assert evaluated.values.to_pylist() == [None, 4]
    assert dict(evaluated.errors.reasons) == {0: "division by zero"}


@pytest.mark.parametrize("condition", ["NULL", "false", "1 > 2"])
def test_a_choice_that_is_the_same_for_all_rows_is_a_value_of_each(condition: str) -> None:
    schema = Schema((Field("i", BIGINT),))
    columns = {"i": pa.array([1, 2, 3])}
    for text, values, failed in (
        (f"7 div CASE WHEN {condition} THEN i ELSE 2 END", [3, 3, 3], 0),
        (f"7 div if({condition}, i, 0)", [None] * 3, 3),
    ):
        evaluated = evaluate(bind_expression(text, schema), columns, 3)
        assert evaluated.values.to_pylist() == values
        assert (0 if evaluated.errors is None else int(evaluated.errors.mask.sum())) == failed


def test_no_rows_give_no_values_and_no_errors() -> None:
    empty = {name: column.slice(0, 0) for name, column in COLUMNS.items()}
    values = evaluate(call("div", Literal(1, BIGINT), Literal(0, BIGINT)), empty, 0)
    assert (len(values.values), values.errors) == (0, None)


def test_sliced_and_chunked_columns_are_read_where_they_start() -> None:
    whole = pa.array([None, True, False, True, None, False, True, True, None, True])
    numbers = pa.array([9, 0, 1, None, 3, 4, 5, 6, 7, 8])
    columns = {"a": whole.slice(1), "x": pa.chunked_array([numbers.slice(1, 4), numbers.slice(5)])}
    mask, errors = predicate(call("and", A, call(">", X, Literal(4, BIGINT))), columns, 9)
    assert errors is None
    assert mask.tolist() == [False, False, False, False, False, True, True, False, True]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (100.0, DOUBLE, "100.0"),
        (1e-3, DOUBLE, "0.001"),
        (1e-4, DOUBLE, "1.0E-4"),
        (1e7, DOUBLE, "1.0E7"),
        (9999999.5, DOUBLE, "9999999.5"),
        (1.2345e22, DOUBLE, "1.2345E22"),
        (-0.0, DOUBLE, "-0.0"),
        (float("nan"), DOUBLE, "NaN"),
        (float("-inf"), DOUBLE, "-Infinity"),
        (0.1, FLOAT, "0.1"),
        (3.4028235e38, FLOAT, "3.4028235E38"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, kind: Type, text: str) -> None:
    column = pa.array([value, None], pa.float64() if kind == DOUBLE else pa.float32())
    assert evaluate(Cast(Column("d", kind), STRING), {"d": column}, 2).values.to_pylist() == [text, None]


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["12", "-5", None, "007"], INT, [12, -5, None, 7]),
        (["12", "+5", " 6 "], INT, [12, 5, 6]),
        (["0x1F", "12"], INT, [None, 12]),
        (["99999999999", "3"], INT, [None, 3]),
        (["1.5", "-2e3", ".5", "7."], DOUBLE, [1.5, -2000.0, 0.5, 7.0]),
        (["1.5", "infinity", "1f"], DOUBLE, [1.5, float("inf"), 1.0]),
        (["1e", "e1", "1.5"], DOUBLE, [None, None, 1.5]),
        (["--1", "1-", "-", ""], INT, [None] * 4),
        ([], INT, []),
        ([None], DOUBLE, [None]),
    ],
)
def test_columns_of_usual_texts_are_read_like_mixed_ones(
    texts: list[Any], kind: Type, values: list[Any]
) -> None:
    padded = pa.array(["x", *texts, "y"], pa.string()).slice(1, len(texts))
    evaluated = evaluate(Cast(Column("s", STRING), kind), {"s": padded}, len(texts))
    assert evaluated.values.to_pylist() == values
    failed = [row for row, text in enumerate(texts) if text is not None and values[row] is None]
    assert (sorted(evaluated.errors.reasons) if evaluated.errors is not None else []) == failed


def test_ten_thousand_terms_do_not_exhaust_the_stack() -> None:
    deep: Expression = X
    for _ in range(10_000):
        deep = Call("+", (deep, Literal(1, BIGINT)), BIGINT)
    assert evaluate(deep, {"x": pa.array([1])}, 1).values.to_pylist() == [10_001]


def test_a_kernel_that_fails_on_a_batch_is_computed_by_halves_until_its_rows_are_found() -> None:
    lengths = pa.array([2**31 - 1 if row % 7 == 3 else 3 for row in range(50)], pa.int32())
    divisors = pa.array([row % 5 for row in range(50)], pa.int32())
    columns = {"k": pa.array(["a"] * 50), "n": lengths, "d": divisors}
    quotient = Cast(Call("/", (Column("n", INT), Cast(Column("d", INT), DOUBLE)), DOUBLE), INT)
    times = Call("*", (quotient, Column("d", INT)), INT)
    values = evaluate(Call("repeat", (Column("k", STRING), times), STRING), columns, 50)
    assert values.errors is not None
    reasons = dict(values.errors.reasons)
    assert set(reasons) == {row for row in range(50) if row % 7 == 3 or row % 5 == 0}
    assert all("division by zero" in reasons[row] for row in range(0, 50, 5))
    assert all("characters" in reasons[row] for row in range(3, 50, 7) if row % 5 == 1)
    assert values.values.is_null().to_pylist() == [row in reasons for row in range(50)]
