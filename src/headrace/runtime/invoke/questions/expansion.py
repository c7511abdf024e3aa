"""First-order expansion of arithmetic over estimated totals: the value of an expression by group, and its gradient, from which its
error follows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np

from headrace.algebra.expressions.expression import Call, Cast, Column, Expression, Literal
from headrace.archive.estimates import Doubles

_ARITHMETIC: Final = ("+", "-", "*", "/")


@dataclass(frozen=True, slots=True)
class Expanded:
    """Values by group, (groups,), and their derivatives by the totals, (groups, terms)."""

    value: Doubles
    gradient: Doubles

    @property
    def exact(self) -> bool:
        """Whether no total changes it."""
        return not self.gradient.any()


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
    """The value and gradient of an expression for which `is_smooth` holds; NaN for division by 0."""
    some = next(iter(columns.values()))
    match expression:
        case Column(name=name):
            return columns[name]
        case Literal(value=value):
            assert isinstance(value, int | float | Decimal)
            return Expanded(np.full_like(some.value, float(value)), np.zeros_like(some.gradient))
        case Cast(argument=argument):
            return expand(argument, columns)
        case Call(function="negate", arguments=(argument,)):
            of = expand(argument, columns)
            return Expanded(-of.value, -of.gradient)
        case Call(function=function, arguments=(first, second)):
            return _binary(function, expand(first, columns), expand(second, columns))
    raise ValueError(f"no arithmetic: {expression}")


def _binary(function: str, left: Expanded, right: Expanded) -> Expanded:
    one, other = left.value[:, None], right.value[:, None]
    match function:
        case "+":
            return Expanded(left.value + right.value, left.gradient + right.gradient)
        case "-":
            return Expanded(left.value - right.value, left.gradient - right.gradient)
        case "*":
            return Expanded(left.value * right.value, left.gradient * other + right.gradient * one)
        case _:
            return ratio(left, right)


def ratio(left: Expanded, right: Expanded) -> Expanded:
    """The ratio; NaN where the divisor is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        divisor = np.where(right.value == 0, np.nan, right.value)
        value = left.value / divisor
        gradient = (left.gradient - value[:, None] * right.gradient) / divisor[:, None]
    return Expanded(value, gradient)
