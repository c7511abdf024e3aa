"""The table of functions is whole: rules, kernels, examples, page."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.algebra.expressions.expression import Call, Column, Expression, Literal, children
from headrace.algebra.functions.resolve import (
    FUNCTIONS,
    TABLE,
    UserFunction,
    can_cast,
    canonical,
    common_type,
    resolve,
)
from headrace.errors import UnsupportedQuery, UserError
from headrace.language.binder.expressions.expression_binder import bind_expression, cast
from headrace.operators.scalar import evaluate
from headrace.operators.scalar.evaluation.compile import EXPANDED, LAZY
from headrace.operators.scalar.evaluation.kernels import KERNELS
from headrace.reference import scalar as reference
from headrace.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    VOID,
    Schema,
    decimal,
    to_arrow,
)
from tests.operators.scalar.functions_page import page

NEED_CONSTANTS = ("rlike", "regexp_extract", "regexp_replace", "to_timestamp_in", "named_struct")
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "functions.md"


def test_every_function_has_a_kernel_and_every_kernel_a_function() -> None:
    computed = {*KERNELS, *LAZY, *EXPANDED, "and", "or"}
    assert computed == set(FUNCTIONS)
    assert len(FUNCTIONS) == len(TABLE) == 111


def test_no_name_means_two_functions() -> None:
    names = [name for row in TABLE for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    assert all(canonical(name.upper()) == canonical(name) for name in names)


def _calls(expression: Expression) -> set[str]:
    of_this = {expression.function} if isinstance(expression, Call) else set()
    return of_this.union(*(_calls(part) for part in children(expression)))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_example_runs_and_has_the_type_it_says(row) -> None:
    expression = bind_expression(row.example, Schema(()))
    if row.name != "negate":  # signs of constants belong to the constant
        assert row.name in _calls(expression)
    values = evaluate(expression, {}, 2)
    assert values.errors is None
    assert values.values.type == to_arrow(expression.type)
    assert len(values.values) == 2


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
@pytest.mark.parametrize(
    "argument", [Literal(None, VOID), Column("nothing", VOID)], ids=["constant", "column"]
)
def test_a_function_of_untyped_nulls_alone_fails_nowhere(row, argument) -> None:
    tried = 0
    for count in range(1, 5):
        try:
            signature = resolve(row.name, (VOID,) * count)
        except UserError:  # another number of arguments, or constants
            continue
        call = Call(
            signature.function, tuple(cast(argument, kind) for kind in signature.arguments), signature.result
        )
        got = evaluate(call, {"nothing": pa.nulls(3)}, 3)
        assert got.errors is None
        assert got.values.type == to_arrow(signature.result)
        assert len(got.values) == 3
        if row.name in reference.FUNCTIONS:
            assert got.values.to_pylist() == [reference.evaluate(call, {"nothing": None})] * 3
        tried += 1
    assert tried or row.name in NEED_CONSTANTS


def test_a_query_of_untyped_nulls_keeps_its_rows() -> None:
    rows = [{"at": dt.datetime(2024, 5, 1, tzinfo=dt.UTC), "k": k} for k in (1, 2)]
    shown = "NULL <=> NULL AS a, equal_null(NULL, NULL) AS b, NULL IN (NULL) AS c, greatest(NULL, NULL) AS d, least(NULL, NULL) AS e"
    answer = hr.test(f"SELECT k, {shown} FROM s WHERE NULL <=> NULL", s=rows)
    assert answer == [{"k": k, "a": True, "b": True, "c": None, "d": None, "e": None} for k in (1, 2)]
    assert hr.test("SELECT k FROM s WHERE NULL IN (NULL)", s=rows) == []
    inner = "(SELECT NULL AS x FROM s)"
    assert hr.test(f"SELECT x <=> x AS a, x = x AS b FROM {inner}", s=rows) == [{"a": True, "b": None}] * 2


def test_the_page_of_functions_is_current() -> None:
    assert PAGE.read_text() == page(), f"run: python -m tests.operators.scalar.functions_page > {PAGE}"


@pytest.mark.parametrize(
    ("name", "arguments", "constants", "cast_to", "result"),
    [
        ("/", (INT, INT), None, (DOUBLE, DOUBLE), DOUBLE),
        ("+", (INT, DOUBLE), None, (DOUBLE, DOUBLE), DOUBLE),
        ("+", (INT, FLOAT), None, (DOUBLE, DOUBLE), DOUBLE),
        ("*", (decimal(10, 2), INT), None, (decimal(10, 2), decimal(10, 0)), decimal(21, 2)),
        ("*", (decimal(10, 2), INT), (None, 2), (decimal(10, 2), decimal(1, 0)), decimal(12, 2)),
        ("/", (decimal(38, 18), decimal(38, 18)), None, (decimal(38, 18), decimal(38, 18)), decimal(38, 6)),
        ("<", (STRING, INT), None, (BIGINT, BIGINT), BOOLEAN),
        ("=", (DATE, TIMESTAMP), None, (TIMESTAMP, TIMESTAMP), BOOLEAN),
        ("-", (TIMESTAMP, TIMESTAMP), None, (TIMESTAMP, TIMESTAMP), INTERVAL),
        ("+", (INTERVAL, TIMESTAMP), None, (INTERVAL, TIMESTAMP), TIMESTAMP),
        ("*", (INT, INTERVAL), None, (BIGINT, INTERVAL), INTERVAL),
        ("round", (decimal(10, 4), INT), (None, 1), (decimal(10, 4), INT), decimal(8, 1)),
        ("NVL", (VOID, STRING), None, (STRING, STRING), STRING),
        ("nullif", (INT, DOUBLE), None, (INT, DOUBLE), INT),
    ],
)
def test_types_follow_sparks_rules(name, arguments, constants, cast_to, result) -> None:
    signature = resolve(name, arguments, constants)
    assert (signature.arguments, signature.result) == (cast_to, result)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("lenght", (STRING,), r"there is no function 'lenght'[\s\S]*'length'"),
        ("+", (BOOLEAN, INT), r"\+ does not take \(BOOLEAN, INT\)[\s\S]*Expected: number \+ number"),
        ("length", (STRING, STRING), r"LENGTH does not take \(STRING, STRING\)[\s\S]*length\(text\)"),
        ("and", (INT, BOOLEAN), r"AND does not take"),
        ("+", (DATE, INTERVAL), r"does not take \(DATE, INTERVAL\)"),
        ("round", (DOUBLE, INT), r"ROUND does not take[\s\S]*digits are a constant"),
    ],
)
def test_wrong_names_and_arguments_are_reported(name: str, arguments, message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve(name, arguments)


@pytest.mark.parametrize(
    "pattern", [r"a\b", "(?i)a", "(?=a)", r"(a)\1", "a++", r"\p{L}", "[a&&b]", "a{", "(a", "[a", "*a"]
)
def test_patterns_that_engines_read_differently_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedQuery, match="cannot be matched exactly as Spark does"):
        resolve("rlike", (STRING, STRING), (None, pattern))


@pytest.mark.parametrize("pattern", ["a*", "a$"])
def test_replacing_what_matches_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedQuery, match="is not exactly what Spark does"):
        resolve("regexp_replace", (STRING, STRING, STRING), (None, pattern, ""))


@pytest.mark.parametrize("replacement", ["$2", "$x", "a\\", "$"])
def test_replacements_name_groups_that_exist(replacement: str) -> None:
    with pytest.raises(UnsupportedQuery, match="cannot be matched exactly"):
        resolve("regexp_replace", (STRING, STRING, STRING), (None, "(a)", replacement))


def test_types_without_a_common_one_are_named() -> None:
    with pytest.raises(UserError, match="INT and BOOLEAN have no common type"):
        common_type([INT, BOOLEAN])
    assert common_type([INT, VOID, STRING, BIGINT]) == BIGINT


def test_casts_that_exist() -> None:
    assert can_cast(INT, TIMESTAMP)
    assert not can_cast(INT, DATE)
    assert not can_cast(BOOLEAN, TIMESTAMP)


def test_a_registered_function_is_resolved_after_the_table() -> None:
    twice = UserFunction("Twice", (DOUBLE,), DOUBLE, lambda value: value)
    signature = resolve("TWICE", (INT,), None, {"twice": twice})
    assert (signature.function, signature.arguments, signature.result) == ("twice", (DOUBLE,), DOUBLE)
    with pytest.raises(UserError, match=r"Twice does not take \(BOOLEAN\)[\s\S]*Expected: Twice\(DOUBLE\)"):
        resolve("twice", (BOOLEAN,), None, {"twice": twice})
