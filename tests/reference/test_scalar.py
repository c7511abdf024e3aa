"""Scalar expressions, one value at a time: three-valued logic, ANSI errors, Java's arithmetic, casts."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal

import pytest

from headrace.algebra.expressions.expression import Call, Case, Cast, Column, Literal
from headrace.reference.conversion import RowError
from headrace.reference.scalar import evaluate
from headrace.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TINYINT,
    VOID,
    decimal,
)

NAN = float("nan")
YES, NO = (Literal(value=known, type=BOOLEAN) for known in (True, False))
FAILS = Call("/", (Literal(1.0, DOUBLE), Literal(0.0, DOUBLE)), DOUBLE)
FAILING_TEST = Call("=", (FAILS, Literal(1.0, DOUBLE)), BOOLEAN)


def literal(value):
    if isinstance(value, Decimal):
        return Literal(value, decimal(20, 2))
    kinds = {bool: BOOLEAN, int: BIGINT, float: DOUBLE, str: STRING, type(None): VOID, bytes: STRING}
    return Literal(value, kinds[type(value)])


def value(function, *arguments, kind=BOOLEAN):
    return evaluate(Call(function, tuple(map(literal, arguments)), kind), {})


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "expected"),
    [
        ("&", (6, 3), BIGINT, 2),
        ("|", (6, -8), BIGINT, -2),
        ("^", (6, None), BIGINT, None),
        ("~", (6,), BIGINT, -7),
        ("<<", (1, 63), BIGINT, -(2**63)),
        ("<<", (3, 33), INT, 6),
        (">>", (-16, 66), BIGINT, -4),
        (">>>", (-1, 1), INT, 2**31 - 1),
        (">>>", (-1, 64), BIGINT, -1),
    ],
)
def test_bits_are_those_of_java(function, arguments, kind, expected):
    assert value(function, *arguments, kind=kind) == expected


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("and", (True, None), None),
        ("and", (False, None), False),
        ("and", (None, None, False), False),
        ("and", (True, True, True), True),
        ("or", (True, None), True),
        ("or", (False, None), None),
        ("not", (None,), None),
        ("not", (True,), False),
        ("=", (None, 1), None),
        ("<=>", (None, None), True),
        ("<=>", (None, 1), False),
        ("<=>", (NAN, NAN), True),
        ("=", (NAN, NAN), True),
        (">", (NAN, math.inf), True),
        ("<", (NAN, 1.0), False),
        ("=", (0.0, -0.0), True),
        ("<>", (1, 2), True),
        (">=", (2, 2), True),
        ("<=", ("b", "a"), False),
        ("between", (2, 1, 3), True),
        ("between", (None, 1, 3), None),
        ("in", (1, 2, 1), True),
        ("in", (1, 2, None), None),
        ("in", (1, 2, 3), False),
        ("in", (None, 1), None),
        ("isnull", (None,), True),
        ("isnotnull", (None,), False),
        ("isnan", (NAN,), True),
        ("isnan", (None,), False),
        ("like", ("a%c", r"a\%c"), True),
        ("like", ("abc", r"a\%c"), False),
        ("like", ("a\nbc", "a%c"), True),
        ("like", ("abc", "a_c"), True),
        ("like", ("abc", "b"), False),
        ("like", ("a.c", "a.c"), True),
        ("like", (None, "a"), None),
    ],
)
def test_a_condition_is_true_false_or_unknown(function, arguments, expected):
    assert value(function, *arguments) is expected


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "expected"),
    [
        ("+", (1, 2), BIGINT, 3),
        ("+", (1, None), BIGINT, None),
        ("-", (1.5, 2.0), DOUBLE, -0.5),
        ("*", (Decimal("1.25"), Decimal("0.50")), decimal(38, 2), Decimal("0.63")),
        ("/", (1.0, 4.0), DOUBLE, 0.25),
        ("/", (Decimal(1), Decimal(3)), decimal(20, 6), Decimal("0.333333")),
        ("%", (-7, 3), BIGINT, -1),
        ("%", (7, -3), BIGINT, 1),
        ("%", (-7.5, 2.0), DOUBLE, -1.5),
        ("div", (-7, 2), BIGINT, -3),
        ("div", (7, -2), BIGINT, -3),
        ("negate", (5,), BIGINT, -5),
        ("abs", (-5,), BIGINT, 5),
        ("floor", (-1.5,), BIGINT, -2),
        ("ceil", (-1.5,), BIGINT, -1),
        ("floor", (NAN,), BIGINT, 0),
        ("ceil", (-(2.0**63),), BIGINT, -(2**63)),
        ("round", (2.5,), DOUBLE, 3.0),
        ("round", (-2.5,), DOUBLE, -3.0),
        ("round", (1.005, 2), DOUBLE, 1.01),
        ("round", (15, -1), BIGINT, 20),
        ("upper", ("aé",), STRING, "AÉ"),
        ("lower", ("AÉ",), STRING, "aé"),
        ("length", ("aé",), INT, 2),
        ("||", ("a", "b"), STRING, "ab"),
        ("||", ("a", None), STRING, None),
        ("concat", ("a", "b", "c"), STRING, "abc"),
        ("coalesce", (None, 2, 3), BIGINT, 2),
        ("if", (None, 1, 2), BIGINT, 2),
        ("nullif", (1, 1), BIGINT, None),
        ("nullif", (1, None), BIGINT, 1),
        ("greatest", (1.0, None, NAN), DOUBLE, NAN),
        ("least", (1, None, -2), BIGINT, -2),
        ("least", (None, None), BIGINT, None),
        ("substring", ("hello", 2, 3), STRING, "ell"),
        ("substring", ("hello", -3, 2), STRING, "ll"),
        ("substring", ("hello", 0, 2), STRING, "he"),
        ("substring", ("hello", -7, 3), STRING, "h"),
        ("substring", ("hello", 4), STRING, "lo"),
    ],
)
def test_a_function_has_the_value_that_spark_gives_it(function, arguments, kind, expected):
    answer = value(function, *arguments, kind=kind)
    assert answer == expected or (math.isnan(answer) and math.isnan(expected))
    assert type(answer) is type(expected)


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "reason"),
    [
        ("+", (2**63 - 1, 1), BIGINT, "does not fit BIGINT"),
        ("negate", (-(2**63),), BIGINT, "does not fit BIGINT"),
        ("*", (100, 2), TINYINT, "does not fit TINYINT"),
        ("*", (Decimal("99.99"), Decimal("99.99")), decimal(4, 2), r"does not fit DECIMAL\(4,2\)"),
        ("/", (1.0, 0.0), DOUBLE, "division by zero"),
        ("%", (1.0, 0.0), DOUBLE, "division by zero"),
        ("div", (1, 0), BIGINT, "division by zero"),
        ("floor", (math.inf,), BIGINT, "inf does not fit BIGINT"),
        ("ceil", (-math.inf,), BIGINT, "-inf does not fit BIGINT"),
        ("ceil", (-1e300,), BIGINT, "does not fit BIGINT"),
        ("like", ("a", "a\\"), BOOLEAN, "escapes what needs no escape"),
    ],
)
def test_a_value_that_does_not_exist_is_an_error_of_its_row(function, arguments, kind, reason):
    with pytest.raises(RowError, match=reason):
        value(function, *arguments, kind=kind)


@pytest.mark.parametrize("argument", [-0.0, -0.04])
def test_rounding_gives_no_negative_zero(argument):
    assert math.copysign(1.0, value("round", argument, 1, kind=DOUBLE)) == 1.0


@pytest.mark.parametrize("order", [1, -1])
def test_a_deciding_factor_wins_over_a_failing_one_in_any_order(order):
    assert evaluate(Call("and", (NO, FAILING_TEST)[::order], BOOLEAN), {}) is False
    assert evaluate(Call("or", (YES, FAILING_TEST)[::order], BOOLEAN), {}) is True
    with pytest.raises(RowError):
        evaluate(Call("and", (Literal(None, BOOLEAN), FAILING_TEST)[::order], BOOLEAN), {})


def test_what_is_not_chosen_raises_no_error():
    one = Literal(1.0, DOUBLE)
    assert evaluate(Case(((NO, FAILS),), one, DOUBLE), {}) == 1.0
    assert evaluate(Case(((Literal(None, BOOLEAN), FAILS), (YES, one)), FAILS, DOUBLE), {}) == 1.0
    assert evaluate(Call("if", (YES, one, FAILS), DOUBLE), {}) == 1.0
    assert evaluate(Call("coalesce", (one, FAILS), DOUBLE), {}) == 1.0


def test_a_function_the_reference_does_not_know_is_named():
    with pytest.raises(NotImplementedError, match="no function 'soundex'"):
        value("soundex", "a", kind=STRING)


def cast(given, source, target, *, safe=False):
    return evaluate(Cast(Column("c", source), target, safe), {"c": given})


@pytest.mark.parametrize(
    ("given", "source", "target", "expected"),
    [
        (2.9, DOUBLE, INT, 2),
        (-2.9, DOUBLE, INT, -2),
        (" 12 ", STRING, INT, 12),
        ("1e3", STRING, DOUBLE, 1000.0),
        ("-Infinity", STRING, DOUBLE, -math.inf),
        ("1.005", STRING, decimal(5, 2), Decimal("1.01")),
        (1.005, DOUBLE, decimal(5, 2), Decimal("1.01")),
        (True, BOOLEAN, INT, 1),
        (0, INT, BOOLEAN, False),
        ("YES", STRING, BOOLEAN, True),
        (7, INT, STRING, "7"),
        (True, BOOLEAN, STRING, "true"),
        (1.0, DOUBLE, STRING, "1.0"),
        (1e7, DOUBLE, STRING, "1.0E7"),
        (1.25e-5, DOUBLE, STRING, "1.25E-5"),
        (-123456789.0, DOUBLE, STRING, "-1.23456789E8"),
        (NAN, DOUBLE, STRING, "NaN"),
        (-math.inf, DOUBLE, STRING, "-Infinity"),
        (Decimal("1.50"), decimal(5, 2), STRING, "1.50"),
        (1_500_000, TIMESTAMP, STRING, "1970-01-01 00:00:01.5"),
        (-1_000_000, TIMESTAMP, STRING, "1969-12-31 23:59:59"),
        ("1970-01-01 00:00:01.5", STRING, TIMESTAMP, 1_500_000),
        ("1970-01-01T01:00:00+01:00", STRING, TIMESTAMP, 0),
        (-1, TIMESTAMP, BIGINT, -1),
        (3, BIGINT, TIMESTAMP, 3_000_000),
        (-1, TIMESTAMP, DATE, date(1969, 12, 31)),
        (date(1970, 1, 2), DATE, TIMESTAMP, 86_400_000_000),
        ("2024-02-29", STRING, DATE, date(2024, 2, 29)),
        (date(2024, 2, 29), DATE, STRING, "2024-02-29"),
        (0.1, DOUBLE, FLOAT, 0.10000000149011612),
        (1e300, DOUBLE, FLOAT, math.inf),
        (0.10000000149011612, FLOAT, STRING, "0.1"),
        (NAN, FLOAT, STRING, "NaN"),
        (None, STRING, INT, None),
    ],
)
def test_a_cast_gives_what_spark_gives(given, source, target, expected):
    answer = cast(given, source, target)
    assert (answer, type(answer)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("given", "source", "target"),
    [
        ("1.5", STRING, INT),
        ("x", STRING, DOUBLE),
        ("x", STRING, decimal(5, 2)),
        ("maybe", STRING, BOOLEAN),
        ("yesterday", STRING, TIMESTAMP),
        ("2024-02-30", STRING, DATE),
        (NAN, DOUBLE, BIGINT),
        (NAN, DOUBLE, decimal(5, 2)),
        (1e10, DOUBLE, INT),
        (300, INT, TINYINT),
        (1000, INT, decimal(4, 2)),
    ],
)
def test_a_cast_that_fails_is_an_error_of_its_row_and_null_when_safe(given, source, target):
    with pytest.raises(RowError, match=r"cannot be cast to|does not fit"):
        cast(given, source, target)
    assert cast(given, source, target, safe=True) is None
