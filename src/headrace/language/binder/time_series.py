"""Binding of aggregates of time series: CORR, COVAR_… and REGR_… of two numbers, EWMA of a number with its time,
FIRST and LAST, MAX_BY and MIN_BY, and the parts of ZSCORE.
"""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions.aggregates import (
    BY_ANOTHER,
    BY_ORDER,
    OF_PAIRS,
    AggregateCall,
    canonical,
    result_type,
)
from headrace.algebra.expressions.expression import Call, Expression, Literal
from headrace.algebra.expressions.series import chosen, pair, placed, seconds_of, timed
from headrace.errors import UnsupportedQuery, UserError
from headrace.language.binder.expressions.expression_binder import cast, joined
from headrace.language.syntax.ast import FunctionCall
from headrace.schema import BIGINT, BOOLEAN, DOUBLE

ZSCORE: Final = "zscore"
_ALONE: Final = ("regr_slope", "regr_intercept", "regr_r2")
_MEANS: Final = {"regr_avgy": 0, "regr_avgx": 1}
_SHORT: Final = ("SLOPE", "INTERCEPT", "R2")
SERIES: Final = ("regr_count", *_MEANS)
"""Names that are other names for an aggregate."""


def series_call(
    node: FunctionCall, arguments: list[Expression], condition: Expression | None, stream: str
) -> AggregateCall | None:
    """The aggregate of a call over bound arguments; None for any other function. `stream` is the alias of the stream.

    Raises `UserError` for arguments it cannot take.
    """
    name, function = node.name.lower(), canonical(node.name)
    if function not in (*OF_PAIRS, *BY_ORDER, *BY_ANOTHER, "ewma") and name not in SERIES:
        return None
    what = node.name.upper()
    if node.distinct and function not in BY_ANOTHER:
        raise UserError(f"{what} does not take DISTINCT")
    if node.star:
        raise UserError(f"{what} does not take *", remedy="Only COUNT takes *.")
    if function in BY_ANOTHER:
        return _by_another(what, function, arguments, condition)
    if function in BY_ORDER:
        return _of_order(node, function, arguments, condition, stream)
    if function == "ewma":
        return _faded(what, arguments, condition, stream)
    y, x = _two_numbers(what, function, arguments, stream)
    if name in _MEANS:
        index = _MEANS[name]
        return _mean(arguments[index], (x, y)[index], condition)
    both = pair(y, x)
    if name == "regr_count":
        return AggregateCall("count", both, BIGINT, condition=condition)
    assert function is not None
    return AggregateCall(function, both, result_type(function, both.type), condition=condition)


def _mean(value: Expression, other: Expression, condition: Expression | None) -> AggregateCall:
    """The mean of one side of the pairs, in the type that AVG has."""
    present = Call("isnotnull", (other,), BOOLEAN)
    factors = (present,) if condition is None else (condition, present)
    return AggregateCall("avg", value, result_type("avg", value.type), condition=joined("and", factors))


def zscore_parts(
    node: FunctionCall, arguments: list[Expression], condition: Expression | None, stream: str
) -> tuple[AggregateCall, AggregateCall, AggregateCall]:
    """The parts of a z-score: the last value, the mean and the standard deviation of the values that are not NULL."""
    if node.distinct:
        raise UserError("ZSCORE does not take DISTINCT")
    if node.star or len(arguments) != 1:
        raise UserError(f"ZSCORE takes one argument, not {'*' if node.star else len(arguments)}")
    value = _number("ZSCORE", arguments[0])
    present = Call("isnotnull", (value,), BOOLEAN)
    factors = (present,) if condition is None else (condition, present)
    last = placed(value, stream)
    return (
        AggregateCall("last", last, DOUBLE, condition=joined("and", factors)),
        AggregateCall("avg", value, DOUBLE, condition=condition),
        AggregateCall("stddev_samp", value, DOUBLE, condition=condition),
    )


def _number(what: str, value: Expression) -> Expression:
    if not (value.type.is_numeric or value.type.name == "VOID"):
        raise UserError(
            f"{what} needs a number, not {value.type}", remedy="CAST the argument to a numeric type first."
        )
    return cast(value, DOUBLE)


def _two_numbers(
    what: str, function: str | None, arguments: list[Expression], stream: str
) -> tuple[Expression, Expression]:
    """(y, x); the x of a regression may be a time, by default the event time."""
    if len(arguments) == 1 and function in _ALONE:
        return _number(what, arguments[0]), seconds_of(stream)
    if len(arguments) != 2:
        raise UserError(
            f"{what} takes two numbers, not {_number_of(arguments)}",
            remedy=f"Write for example {what}(y, x).",
        )
    y, x = arguments
    x = (
        cast(x, DOUBLE)
        if what.startswith(("REGR", *_SHORT)) and x.type.name == "TIMESTAMP"
        else _number(what, x)
    )
    return _number(what, y), x


def _faded(
    what: str, arguments: list[Expression], condition: Expression | None, stream: str
) -> AggregateCall:
    if len(arguments) != 2:
        raise UserError(
            f"{what} takes a number and a half-life, not {_number_of(arguments)}",
            remedy=f"Write for example {what}(x, INTERVAL 5 MINUTES).",
        )
    value, span = arguments
    if not (isinstance(span, Literal) and span.type.name == "INTERVAL" and isinstance(span.value, int)):
        raise UserError(
            f"the half-life of {what} must be a constant INTERVAL",
            remedy="Write for example INTERVAL 5 MINUTES.",
        )
    argument = timed(_number(what, value), stream)
    return AggregateCall("ewma", argument, DOUBLE, condition=condition, half_life=span.value)


def _of_order(
    node: FunctionCall, function: str, arguments: list[Expression], condition: Expression | None, stream: str
) -> AggregateCall:
    """FIRST(x) and LAST(x); with TRUE as second argument or IGNORE NULLS over the values that are not NULL, as in Spark."""
    what = node.name.upper()
    if len(arguments) not in (1, 2):
        raise UserError(f"{what} takes one argument, and TRUE to ignore NULLs, not {len(arguments)}")
    value = arguments[0]
    if _ignores_nulls(node, arguments):
        present = Call("isnotnull", (value,), BOOLEAN)
        condition = present if condition is None else joined("and", (condition, present))
    return AggregateCall(function, placed(value, stream), value.type, condition=condition)


def _by_another(
    what: str, function: str, arguments: list[Expression], condition: Expression | None
) -> AggregateCall:
    """MAX_BY(x, y) and MIN_BY(x, y); DISTINCT changes nothing."""
    if len(arguments) == 3:
        raise UnsupportedQuery(
            f"{what} of several values is not available",
            remedy="ORDER BY y DESC LIMIT n keeps n rows of each window.",
        )
    if len(arguments) != 2:
        raise UserError(
            f"{what} takes a value and what it is chosen by, not {_number_of(arguments)}",
            remedy=f"Write for example {what}(x, y).",
        )
    value, by = arguments
    if not by.type.is_orderable:
        raise UserError(f"{what} cannot compare values of type {by.type}")
    argument = chosen(value, by)
    return AggregateCall(function, argument, result_type(function, argument.type), condition=condition)


def _number_of(arguments: list[Expression]) -> str:
    return f"{len(arguments)} argument{'s' if len(arguments) != 1 else ''}"


def _ignores_nulls(node: FunctionCall, arguments: list[Expression]) -> bool:
    """Whether a second argument or IGNORE NULLS leaves NULLs out; RESPECT NULLS changes nothing, as in Spark."""
    if len(arguments) == 1:
        return bool(node.ignores_nulls)
    ignores = arguments[1]
    if not (isinstance(ignores, Literal) and isinstance(ignores.value, bool)):
        raise UserError(f"the second argument of {node.name.upper()} is TRUE (ignore NULLs) or FALSE")
    return ignores.value or bool(node.ignores_nulls)
