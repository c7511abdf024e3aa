"""The test whether an expression can fail on some row."""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions.expression import (
    Call,
    Case,
    Cast,
    Column,
    Constants,
    Expression,
    Literal,
    walk,
)
from headrace.schema import BIGINT, Type

_DIGITS: Final = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_NEVER_FAIL: Final = frozenset(
    (
        *(
            "and",
            "or",
            "not",
            "=",
            "<>",
            "<",
            "<=",
            ">",
            ">=",
            "<=>",
            "in",
            "isnull",
            "isnotnull",
            "coalesce",
        ),
        *(
            "startswith",
            "endswith",
            "contains",
            "lower",
            "upper",
            "length",
            "trim",
            "isnan",
            "greatest",
            "least",
        ),
    )
)
_OF_PATTERNS: Final = ("like", "ilike", "rlike")
"""Functions that may fail with a pattern of the row, but not with a constant one."""


def can_fail(expression: Expression) -> bool:
    """Whether some row may make it fail: unless every function in it is known never to."""
    return not all(_never_fails(node) for node in walk(expression))


def _never_fails(node: Expression) -> bool:
    match node:
        case Cast(argument=inner, type=kind):
            return keeps_all(inner.type, kind)
        case Call(function=function, arguments=(_, *constants)) if function in _OF_PATTERNS:
            return all(isinstance(constant, Literal) for constant in constants)
        case Call(function=function):
            return function in _NEVER_FAIL
        case _:
            return isinstance(node, Column | Literal | Constants | Case)


def keeps_all(source: Type, target: Type) -> bool:
    """Whether the cast is exact and preserves the order, so that a comparison before it is equivalent."""
    if source == target:
        return True
    if source.is_integer and target.is_integer:
        return _DIGITS[source.name] <= _DIGITS[target.name]
    if source.is_integer and target.name == "DECIMAL":
        return _DIGITS[source.name] <= target.precision - target.scale
    if source.is_integer:
        exact = "DOUBLE" if source.name == "INT" else "FLOAT"
        return source != BIGINT and target.name in ("DOUBLE", exact)
    if source.name == "DECIMAL" and target.name == "DECIMAL":
        whole = source.precision - source.scale <= target.precision - target.scale
        return whole and source.scale <= target.scale
    return source.name == "FLOAT" and target.name == "DOUBLE"
