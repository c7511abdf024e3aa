"""Shortcuts for aggregates over weighted rows (WITH SHEDDING): the expression that is NULL where a weighted argument
is, without its weights, which never are; and the weight that all rows of a batch share, so that a sum of weights is a
count.

A sum of weights and a sum of weighted values share one count of rows where possible. Weights that are all equal are
added by counting rows.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headrace.algebra.expressions.expression import Call, Case, Cast, Column, Expression, Literal, columns_of
from headrace.algebra.expressions.shedding_estimates import MORE, SPREAD, WEIGHT
from headrace.schema import BOOLEAN

_WEIGHTS: Final = frozenset((WEIGHT, MORE, SPREAD))


def present(argument: Expression) -> Expression | None:
    """An expression that is NULL exactly where the argument is; None if the argument is never NULL.

    Without weights it is the argument itself.
    """
    return _present(argument) if columns_of(argument) & _WEIGHTS else argument


def _present(value: Expression) -> Expression | None:
    match value:
        case Column(name=name) if name in _WEIGHTS:
            return None
        case Cast(argument=argument) if argument.type.is_numeric and value.type.is_fractional:
            return _present(argument)
        case Call(function="*", arguments=arguments) if value.type.is_fractional:
            parts = dict.fromkeys(part for argument in arguments if (part := _present(argument)) is not None)
            return value if len(parts) > 1 else next(iter(parts), None)
        case Case(branches=((condition, then),), otherwise=Literal(value=None)):
            present_value = _present(then)
            if present_value is None and isinstance(condition, Call) and condition.function == "isnotnull":
                return condition.arguments[0]
            present_value = present_value or Literal(True, BOOLEAN)
            return Case(((condition, present_value),), Literal(None, present_value.type), present_value.type)
        case _:
            return value


def common_weight(argument: Expression | None, values: pa.Array | None) -> float | None:
    """The weight that all rows have, if the argument is a weight column; None if it is not, or weights differ."""
    if not (isinstance(argument, Column) and argument.name in _WEIGHTS) or values is None or not len(values):
        return None
    weights = values.to_numpy(zero_copy_only=False)
    return float(weights[0]) if (weights == weights[0]).all() else None
