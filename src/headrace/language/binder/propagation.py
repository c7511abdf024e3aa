"""Importance by the value of an output column, as a condition on one column of the input: backwards through the select list, the group keys
and their inverses, so that rows can be chosen before any work is done on them.

A group key is a function of each row, so its intervals are intervals of the column that it is made of, if that function has an inverse. A MAX
is at least the value of each of its rows: where greater answers count more, a row counts at least as much as its own value would; MIN likewise.
A sum, a count or a mean is of many rows together, and no condition on one of them decides its value.
Source: Aurora (Carney et al. 2002), semantic load shedding, backward propagation of intervals by inverse functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from math import inf, nextafter
from typing import Final, NoReturn

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import Call, Cast, Column, Expression, Literal, Named
from headrace.algebra.quality_of_service import Importance
from headrace.dataclass import dataclass
from headrace.errors import Span
from headrace.language.syntax.refusals import refuse

_REMEDY: Final = "Name a column of the stream, or an output column that is one of them with +, -, * and / of constants, or a MAX or MIN."


@dataclass(frozen=True, slots=True)
class Line:
    """`scale` times a column, and `offset` added; the scale is not 0."""

    column: str
    scale: float = 1.0
    offset: float = 0.0

    def then(self, scale: float, offset: float) -> Line:
        """Another line of its values."""
        return Line(self.column, scale * self.scale, scale * self.offset + offset)

    def before(self, importance: Importance) -> Importance:
        """The importance by the column of what is stated by the line's values: intervals of a falling line come in reverse.

        >>> Line("price", 2.0, 10.0).before(Importance("p", (30.0,), (0.1, 1.0))).bounds
        (10.0,)
        """
        bounds = tuple((bound - self.offset) / self.scale for bound in importance.bounds)
        levels, stated = importance.levels, importance.column
        if self.scale > 0:
            return Importance(self.column, bounds, levels, stated)
        after = tuple(
            nextafter(bound, inf) for bound in reversed(bounds)
        )  # a value at a bound is in the upper interval
        return Importance(self.column, after, levels[::-1], stated, missing_is_first=True)


def propagated(
    importance: Importance,
    output: Named,
    keys: Sequence[Named],
    aggregates: Sequence[NamedAggregate],
    span: Span,
) -> Importance:
    """The importance by a column of the input; `output` is the column of the select list that it names.

    Raises `UnsupportedQuery` where the value of an answer is no condition on its rows.
    """
    calls = {item.name: item.call for item in aggregates}
    expressions = {key.name: key.expression for key in keys}
    call = calls.get(output.expression.name) if isinstance(output.expression, Column) else None
    if call is not None:
        rises = call.function == "max"
        if call.function not in ("max", "min") or call.condition is not None or call.argument is None:
            _refuse(f"'{output.name}' is of many rows together, no one of which decides its value", span)
        levels = importance.levels if rises else importance.levels[::-1]
        if any(later < earlier for earlier, later in pairwise(levels)):
            what = "greater than a MAX" if rises else "less than a MIN"
            _refuse(f"answers count less where a row is important, since no row is {what}", span)
        line = line_of(call.argument, {})
    else:
        line = line_of(output.expression, expressions)
    if line is None:
        _refuse(f"what '{output.name}' is made of has no inverse", span)
    return line.before(replace(importance, column=output.name))


def line_of(expression: Expression, keys: Mapping[str, Expression]) -> Line | None:
    """The line that an expression is of one column; None for anything else. `keys` are expressions of columns above the input."""
    if isinstance(expression, Column):
        under = keys.get(expression.name)
        if under is not None:
            return line_of(under, {})
        return Line(expression.name) if expression.type.is_numeric else None
    if isinstance(expression, Cast):
        whole = expression.argument.type.is_integer
        keeps_order = expression.type.name in ("DOUBLE", "FLOAT") or (whole and expression.type.is_numeric)
        return line_of(expression.argument, keys) if keeps_order else None
    if not isinstance(expression, Call):
        return None
    if expression.function == "negate":
        line = line_of(expression.arguments[0], keys)
        return None if line is None else line.then(-1.0, 0.0)
    if expression.function not in ("+", "-", "*", "/"):
        return None
    left, right = expression.arguments
    return _of_two(expression.function, left, right, keys)


def _of_two(
    function: str, left: Expression, right: Expression, keys: Mapping[str, Expression]
) -> Line | None:
    """A line of which one side is a constant."""
    first, second = _constant(left), _constant(right)
    line = line_of(right if second is None else left, keys)
    if line is None or (first is None) == (second is None):
        return None
    if function == "+":
        return line.then(1.0, first or second or 0.0)
    if function == "-":
        return line.then(1.0, -second) if second is not None else line.then(-1.0, first or 0.0)
    factor = first if second is None else second
    if not factor or (function == "/" and second is None):
        return None
    return line.then(factor if function == "*" else 1 / factor, 0.0)


def _constant(expression: Expression) -> float | None:
    """The value of a number that is written; None for anything else."""
    if isinstance(expression, Cast):
        return _constant(expression.argument)
    if isinstance(expression, Call) and expression.function == "negate":
        negated = _constant(expression.arguments[0])
        return None if negated is None else -negated
    if not isinstance(expression, Literal) or not expression.type.is_numeric:
        return None
    value = expression.value
    return float(value) if isinstance(value, int | float | Decimal) else None


def _refuse(reason: str, span: Span) -> NoReturn:
    refuse(f"value is not available by this output column: {reason}", span, _REMEDY)
