"""Type coercion by Spark's ANSI rules: common types, implicit casts, the existence of explicit casts, and sizes of
DECIMALs.

Spark's own names for these rules: `findWiderTypeForTwo`, `canANSIStoreAssign`, `Cast.canAnsiCast`, `DecimalType.adjustPrecisionScale`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from headrace.errors import UserError
from headrace.schema import BIGINT, DOUBLE, TIMESTAMP, VOID, Type, decimal

_RANK: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
_DIGITS: Final = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}
_DATETIMES: Final = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
_NESTED: Final = ("STRUCT", "ARRAY", "MAP")

MAX_PRECISION: Final = 38
_MIN_ADJUSTED_SCALE: Final = 6


def decimal_for(kind: Type) -> Type:
    """The DECIMAL that holds every value of an integer type; a DECIMAL unchanged."""
    return kind if kind.name == "DECIMAL" else decimal(_DIGITS[kind.name], 0)


def decimal_of_constant(value: int) -> Type:
    """The narrowest DECIMAL that holds an integer constant, as Spark types `price * 2`."""
    return decimal(len(str(abs(value))), 0)


def adjusted(precision: int, scale: int) -> Type:
    """A DECIMAL of at most 38 digits: fraction digits give way to integer digits, but not below 6."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    digits = precision - scale
    return decimal(MAX_PRECISION, max(MAX_PRECISION - digits, min(scale, _MIN_ADJUSTED_SCALE)))


def wider_decimal(left: Type, right: Type) -> Type:
    """The DECIMAL that holds the values of both, integer digits first where 38 are not enough."""
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale)
    if digits + scale <= MAX_PRECISION:
        return decimal(digits + scale, scale)
    return decimal(MAX_PRECISION, max(0, MAX_PRECISION - digits))


def common_type(types: Sequence[Type]) -> Type:
    """The type that all branches of a CASE, arguments of COALESCE or candidates of IN are cast to.

    Raises `UserError` that names the first two types without a common type.
    """

    def widen(left: Type, right: Type) -> Type:
        common = common_of_two(left, right)
        if common is None:
            raise UserError(
                f"{left} and {right} have no common type", remedy="CAST one of them to the type of the other."
            )
        return common

    # Strings are last: whether ('1', 2, DATE …) has a common type must not depend on the order of the list.
    return reduce(widen, sorted(types, key=lambda kind: kind.name == "STRING"), VOID)


def common_of_two(left: Type, right: Type) -> Type | None:
    """The type that two values are cast to before they are compared or share a column; None without one."""
    if right in (left, VOID):
        return left
    if left == VOID:
        return right
    if left.is_numeric and right.is_numeric:
        return _common_number(left, right)
    if left.name in _DATETIMES and right.name in _DATETIMES:
        return Type("TIMESTAMP_NTZ") if {left.name, right.name} == {"DATE", "TIMESTAMP_NTZ"} else TIMESTAMP
    if "STRING" in (left.name, right.name):
        return _beside_string(right if left.name == "STRING" else left)
    return None


def _common_number(left: Type, right: Type) -> Type:
    if "DECIMAL" in (left.name, right.name):
        if left.is_fractional or right.is_fractional:
            return DOUBLE
        return wider_decimal(decimal_for(left), decimal_for(right))
    wider = max(left, right, key=lambda kind: _RANK.index(kind.name))
    return DOUBLE if wider.name == "FLOAT" else wider


def _beside_string(other: Type) -> Type | None:
    if other.is_integer:
        return BIGINT
    if other.is_numeric:
        return DOUBLE
    return None if other.name == "INTERVAL" or other.name in _NESTED else other


def accepts(parameter: Type, argument: Type) -> bool:
    """True when an argument of a function is implicitly cast to the parameter's type."""
    if argument in (parameter, VOID):
        return True
    if "INTERVAL" in (parameter.name, argument.name) or argument.name in _NESTED or parameter.name in _NESTED:
        return False
    if "STRING" in (parameter.name, argument.name):
        return True
    if parameter.is_numeric:
        return argument.is_numeric
    return parameter.name in _DATETIMES and argument.name in _DATETIMES


def can_cast(source: Type, target: Type) -> bool:
    """True when `CAST(source AS target)` exists; a single value may still fail."""
    if source in (target, VOID):
        return True
    if source.name in _NESTED or target.name in _NESTED or "INTERVAL" in (source.name, target.name):
        return False
    if target.name == "STRING" or source.name == "STRING":
        return True
    if target.is_numeric:
        return source.is_numeric or source.name in ("BOOLEAN", "TIMESTAMP")
    if target.name == "BOOLEAN":
        return source.is_numeric
    if target.name in _DATETIMES:
        return source.name in _DATETIMES or (target.name == "TIMESTAMP" and source.is_numeric)
    return False
