"""What is known of weighted values before they are added? A row's weight is never NULL, and rows read together weigh alike.

A sum over weights beside a sum of the same values then shares its count of rows, where it is one; and weights that are all the same
are added by counting rows.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headrace.algebra.expressions.expression import Call, Case, Cast, Column, Expression, Literal, columns_of
from headrace.algebra.expressions.shedding_estimates import MORE, SPREAD, WEIGHT
from headrace.schema import BOOLEAN

_WEIGHTS: Final = frozenset((WEIGHT, MORE, SPREAD))


def present(argument: Expression) -> Expression | None:
    """What is not NULL exactly where the argument is not; None where it never is. Without weights the argument itself."""
    return _present(argument) if columns_of(argument) & _WEIGHTS else argument


def _present(value: Expression) -> Expression | None:
    match value:
        case Column(name=name) if name in _WEIGHTS:
            return None
        case Cast(argument=argument) if argument.type.is_numeric and value.type.is_fractional:
            return _present(argument)
        case Call(function="*", arguments=arguments) if value.type.is_fractional:
            parts = dict.fromkeys(part for each in arguments if (part := _present(each)) is not None)
            return value if len(parts) > 1 else next(iter(parts), None)
        case Case(branches=((condition, then),), otherwise=Literal(value=None)):
            kept = _present(then)
            if kept is None and isinstance(condition, Call) and condition.function == "isnotnull":
                return condition.arguments[0]
            kept = kept or Literal(True, BOOLEAN)
            return Case(((condition, kept),), Literal(None, kept.type), kept.type)
        case _:
            return value


def alike(argument: Expression | None, values: pa.Array | None) -> float | None:
    """The weight that all rows have, where an argument is a part of the weights; None where it is not, or they differ."""
    if not (isinstance(argument, Column) and argument.name in _WEIGHTS) or values is None or not len(values):
        return None
    weights = values.to_numpy(zero_copy_only=False)
    return float(weights[0]) if (weights == weights[0]).all() else None
