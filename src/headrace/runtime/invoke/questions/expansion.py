"""First-order expansion of arithmetic over estimated totals: the value of an expression by group, and its gradient, from which its
error follows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.algebra.expressions.expression import Call, Cast, Column, Expression, Literal
from headrace.archive.estimates import Doubles
from headrace.dataclass import dataclass

_ARITHMETIC: Final = ("+", "-", "*", "/")


@dataclass(frozen=True, slots=True)
class Expanded:
    """Values by group, (groups,), and their derivatives by the totals, (groups, terms); `known` where a value is not NULL."""

    value: Doubles
    gradient: Doubles
    known: npt.NDArray[np.bool_]


def is_smooth(expression: Expression, totals: Collection[str]) -> bool:
    """Whether an expression is arithmetic over some columns and numbers."""
    match expression:
        case Column(name=name):
            return name in totals
        case Literal(value=value):
            return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        case Cast(argument=argument, type=kind):
            return kind.is_numeric and is_smooth(argument, totals)
        case Call(function=function, arguments=arguments):
            known = function in _ARITHMETIC or function == "negate"
            return known and all(is_smooth(argument, totals) for argument in arguments)
        case _:
            return False


def expand(expression: Expression, columns: Mapping[str, Expanded]) -> Expanded:
    """The value and gradient of an expression for which `is_smooth` holds; NULL for division by 0."""
    some = next(iter(columns.values()))
    match expression:
        case Column(name=name):
            return columns[name]
        case Literal(value=value):
            assert isinstance(value, int | float | Decimal)
            everywhere = np.ones(len(some.value), np.bool_)
            return Expanded(np.full_like(some.value, float(value)), np.zeros_like(some.gradient), everywhere)
        case Cast(argument=argument):
            return expand(argument, columns)
        case Call(function="negate", arguments=(argument,)):
            of = expand(argument, columns)
            return Expanded(-of.value, -of.gradient, of.known)
        case Call(function=function, arguments=(first, second)):
            return _binary(function, expand(first, columns), expand(second, columns))
    raise ValueError(f"no arithmetic: {expression}")


def _binary(function: str, left: Expanded, right: Expanded) -> Expanded:
    one, other, known = left.value[:, None], right.value[:, None], left.known & right.known
    with np.errstate(invalid="ignore"):
        match function:
            case "+":
                return Expanded(left.value + right.value, left.gradient + right.gradient, known)
            case "-":
                return Expanded(left.value - right.value, left.gradient - right.gradient, known)
            case "*":
                gradient = left.gradient * other + right.gradient * one
                return Expanded(left.value * right.value, gradient, known)
            case _:
                return ratio(left, right)


def ratio(left: Expanded, right: Expanded) -> Expanded:
    """The ratio; NULL where the divisor is 0."""
    known = left.known & right.known & (right.value != 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = left.value / right.value
        gradient = (left.gradient - value[:, None] * right.gradient) / right.value[:, None]
    return Expanded(value, gradient, known)
