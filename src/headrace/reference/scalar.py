"""The value of an expression on one row: Spark SQL's answers under ANSI rules, one value at a time.

NULL is None. A value that does not exist (overflow, division by zero, a cast that fails) raises `RowError`, and the row
becomes a failed row. AND is false when one factor is false, even when another one fails, and
OR true likewise, so that a conjunction means the same in every order.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

from headrace.algebra.expressions.expression import (
    Call,
    Case,
    Cast,
    Column,
    Constants,
    Expression,
    Literal,
    one_by_one,
)
from headrace.algebra.expressions.series import CHOSEN, PAIR, STRUCTURES
from headrace.reference.conversion import RowError, convert, fit, in_range
from headrace.reference.values import sort_key
from headrace.schema import Type


def evaluate(expression: Expression, row: Mapping[str, Any]) -> Any:
    """The value of the expression on the row, None for NULL; raises `RowError` when it has none."""
    match expression:
        case Column(name=name):
            return row[name]
        case Literal(value=value):
            return value
        case Constants():
            raise NotImplementedError("a list of constants has a value only as the candidates of IN")
        case Cast():
            return _cast(expression, row)
        case Case(branches=branches, otherwise=otherwise):
            for condition, result in branches:
                if evaluate(condition, row) is True:
                    return evaluate(result, row)
            return evaluate(otherwise, row)
        case Call(function=name, arguments=arguments) if name in STRUCTURES:
            parts = tuple(evaluate(argument, row) for argument in arguments)
            return None if None in parts[: {PAIR: 2, CHOSEN: 1}.get(name, 0)] else parts
        case Call(function=name) if name in _LAZY:
            return _LAZY[name](expression, row)
        case Call():
            return _strict(expression, row)


def holds(predicate: Expression, row: Mapping[str, Any]) -> bool:
    """True when the predicate is true: neither false nor NULL."""
    return evaluate(predicate, row) is True


def _cast(cast: Cast, row: Mapping[str, Any]) -> Any:
    value = evaluate(cast.argument, row)
    if value is None:
        return None
    try:
        return convert(value, cast.argument.type, cast.type)
    except RowError:
        if cast.safe:
            return None
        raise


def _strict(call: Call, row: Mapping[str, Any]) -> Any:
    function = _STRICT.get(call.function)
    if function is None:
        raise NotImplementedError(f"the reference has no function '{call.function}'")
    arguments = [evaluate(argument, row) for argument in call.arguments]
    if any(argument is None for argument in arguments):
        return None
    return function(call.type, *arguments)


# ------------------------------------------------------------------------- functions that decide which arguments to evaluate


def _connective(call: Call, row: Mapping[str, Any]) -> bool | None:
    """AND and OR: the deciding value wins over errors, errors win over NULL."""
    decides = call.function == "or"
    failure: RowError | None = None
    unknown = False
    for argument in call.arguments:
        try:
            value = evaluate(argument, row)
        except RowError as error:
            failure = failure or error
            continue
        if value is decides:
            return call.function == "or"
        unknown = unknown or value is None
    if failure is not None:
        raise failure
    return None if unknown else call.function == "and"


def _in(call: Call, row: Mapping[str, Any]) -> bool | None:
    """Candidates are evaluated in order, up to the first that is equal; none for NULL."""
    value = evaluate(call.arguments[0], row)
    if value is None:
        return None
    answer: bool | None = False
    for candidate in (one for argument in call.arguments[1:] for one in one_by_one(argument)):
        other = evaluate(candidate, row)
        if other is None:
            answer = None
        elif compare(value, other) == 0:
            return True
    return answer


def _null_safe_equal(call: Call, row: Mapping[str, Any]) -> bool:
    left, right = (evaluate(argument, row) for argument in call.arguments)
    return left is right if left is None or right is None else compare(left, right) == 0


def _coalesce(call: Call, row: Mapping[str, Any]) -> Any:
    for argument in call.arguments:
        if (value := evaluate(argument, row)) is not None:
            return value
    return None


def _if(call: Call, row: Mapping[str, Any]) -> Any:
    condition, then, otherwise = call.arguments
    return evaluate(then if holds(condition, row) else otherwise, row)


def _null_if(call: Call, row: Mapping[str, Any]) -> Any:
    left, right = (evaluate(argument, row) for argument in call.arguments)
    return None if left is not None and right is not None and compare(left, right) == 0 else left


def _extreme(call: Call, row: Mapping[str, Any]) -> Any:
    """GREATEST and LEAST: NULLs do not count."""
    values = [value for argument in call.arguments if (value := evaluate(argument, row)) is not None]
    return (max if call.function == "greatest" else min)(values, key=sort_key, default=None)


def _struct(call: Call, row: Mapping[str, Any]) -> Any:
    names, values = call.arguments[::2], call.arguments[1::2]
    return {evaluate(name, row): evaluate(value, row) for name, value in zip(names, values, strict=True)}


_LAZY: Final[dict[str, Callable[[Call, Mapping[str, Any]], Any]]] = {
    "and": _connective,
    "or": _connective,
    "in": _in,
    "<=>": _null_safe_equal,
    "coalesce": _coalesce,
    "if": _if,
    "nullif": _null_if,
    "greatest": _extreme,
    "least": _extreme,
    "named_struct": _struct,
    "isnan": lambda call, row: (value := evaluate(call.arguments[0], row)) is not None and math.isnan(value),
    "isnull": lambda call, row: evaluate(call.arguments[0], row) is None,
    "isnotnull": lambda call, row: evaluate(call.arguments[0], row) is not None,
}


# --------------------------------------------------------------------------------- functions of values, NULL if any is


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1; NaN equals itself and is above every number."""
    first, second = sort_key(left), sort_key(right)
    return int(first > second) - int(first < second)


def _number(kind: Type, value: Any) -> Any:
    """A result in the type it must fit: integers by range, decimals by rounding half up, doubles as they are."""
    if kind.is_fractional:
        return float(value)
    return fit(value, kind) if kind.name == "DECIMAL" else in_range(value, kind)


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Type, Any, Any], Any]:
    def apply(kind: Type, left: Any, right: Any) -> Any:
        with localcontext(prec=100):
            return _number(kind, function(left, right))

    return apply


def _divide(left: Any, right: Any) -> Any:
    if right == 0:
        raise RowError("division by zero")
    return left / right


def _truncated_quotient(left: Any, right: Any) -> int:
    if right == 0:
        raise RowError("division by zero")
    if isinstance(left, Decimal):
        return int((left / right).to_integral_value(ROUND_DOWN))
    quotient = abs(left) // abs(right)
    return int(quotient if (left < 0) == (right < 0) else -quotient)


def _remainder(left: Any, right: Any) -> Any:
    """The remainder with the sign of the dividend, as in Java."""
    if right == 0:
        raise RowError("division by zero")
    if isinstance(left, float):
        return math.nan if math.isinf(left) else math.fmod(left, right)
    return left - right * _truncated_quotient(left, right) if isinstance(left, int) else left % right


def _comparison(test: Callable[[int, int], bool]) -> Callable[[Type, Any, Any], bool]:
    return lambda _, left, right: test(compare(left, right), 0)


def _rounded(kind: Type, value: Any, digits: int, mode: str) -> Any:
    """FLOOR, CEIL and ROUND. A double beyond BIGINT does not fit FLOOR and CEIL, as in ANSI Spark; of NaN they are 0."""
    if isinstance(value, float) and not math.isfinite(value):
        if not (kind.is_fractional or math.isnan(value)):
            raise RowError(f"{value} does not fit {kind}")
        return value if kind.is_fractional else 0
    exact = Decimal(repr(value)) if isinstance(value, float) and kind.is_fractional else Decimal(value)
    with localcontext(prec=400):
        rounded = exact.quantize(Decimal(1).scaleb(-digits), mode)
    if kind.is_fractional:
        return float(rounded) + 0.0  # a decimal has no negative zero
    return _number(kind, rounded if kind.name == "DECIMAL" else int(rounded))


def _integral(mode: str) -> Callable[[Type, Any], Any]:
    return lambda kind, value: _rounded(kind, value, 0, mode)


def _like(_: Type, text: str, pattern: str, escape: str = "\\") -> bool:
    parts, position = [], 0
    while position < len(pattern):
        sign = pattern[position]
        if sign == escape:
            position += 1
            if position == len(pattern) or pattern[position] not in ("%", "_", escape):
                raise RowError(f"the LIKE pattern '{pattern}' escapes what needs no escape")
            parts.append(re.escape(pattern[position]))
        else:
            parts.append({"%": ".*", "_": "."}.get(sign, re.escape(sign)))
        position += 1
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _substring(_: Type, text: Any, start: int, length: int | None = None) -> Any:
    """From the `start`-th character, counted from 1, or from the end when negative; 0 means 1."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if length is None else first + length
    return text[max(0, first) : max(0, last)]


def _between(_: Type, value: Any, low: Any, high: Any) -> bool:
    return compare(low, value) <= 0 <= compare(high, value)


def _join_text(_: Type, *parts: Any) -> Any:
    return parts[0][:0].join(parts)


def _shift(function: Callable[[int, int, int], int]) -> Callable[[Type, int, int], int]:
    """A shift of a number of 32 or 64 bits by as many places as their last five or six bits are, cut to its bits."""

    def apply(kind: Type, value: int, places: int) -> int:
        width = 64 if kind.name == "BIGINT" else 32
        moved = function(value, places % width, width) % (1 << width)
        return moved - (1 << width) if moved >= 1 << width - 1 else moved

    return apply


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *arguments: function(*arguments)


_STRICT: Final[dict[str, Callable[..., Any]]] = {
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _arithmetic(_divide),
    "%": _arithmetic(_remainder),
    "div": _arithmetic(_truncated_quotient),
    "&": _plain(operator.and_),
    "|": _plain(operator.or_),
    "^": _plain(operator.xor),
    "~": _plain(operator.invert),
    "<<": _shift(lambda value, places, _: value << places),
    ">>": _shift(lambda value, places, _: value >> places),
    ">>>": _shift(lambda value, places, width: value % (1 << width) >> places),
    "negate": lambda kind, value: _number(kind, -value),
    "abs": lambda kind, value: _number(kind, abs(value)),
    "=": _comparison(operator.eq),
    "<>": _comparison(operator.ne),
    "<": _comparison(operator.lt),
    "<=": _comparison(operator.le),
    ">": _comparison(operator.gt),
    ">=": _comparison(operator.ge),
    "between": _between,
    "not": _plain(operator.not_),
    "like": _like,
    "||": _join_text,
    "concat": _join_text,
    "floor": _integral(ROUND_FLOOR),
    "ceil": _integral(ROUND_CEILING),
    "round": lambda kind, value, digits=0: _rounded(kind, value, digits, ROUND_HALF_UP),
    "upper": _plain(str.upper),
    "lower": _plain(str.lower),
    "length": _plain(len),
    "substring": _substring,
}

FUNCTIONS: Final[Sequence[str]] = (*_LAZY, *_STRICT)
"""Every function the reference knows."""
