"""Of which rows does a weighted value tell something? Of those of the value itself: a row's weight is never NULL.

A sum over weights beside a sum of the same values then shares its count of rows, where it is one.
"""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions import Call, Case, Cast, Column, Expression, Literal, columns_of
from headrace.algebra.shedding import MORE, SPREAD, WEIGHT
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
