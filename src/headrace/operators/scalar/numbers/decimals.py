"""DECIMAL arithmetic and rounding on unscaled integers (int64 where the digits fit, else Python's integers in object
arrays), and their conversion from and to Arrow columns.

Spark computes every result exactly, rounds half away from zero to the result's scale, and fails when its precision is
exceeded; so do these kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.operators.scalar.values.datum import (
    Bools,
    Datum,
    Failure,
    Kernel,
    Numbers,
    Outcome,
    all_valid,
    build,
    cell,
    column,
    failing,
    rows_of,
)
from headrace.schema import Type, to_arrow

_NARROW: Final = 18  # digits that int64 holds with room for rounding
_SPARK_QUOTIENT_SCALE: Final = 38


def unscaled(datum: Datum) -> Numbers:
    """The integers behind a DECIMAL column, zero under NULL; int64 if its type has at most 18 digits, else objects."""
    array = column(datum, 1)
    rows, start = len(array), array.offset
    data = array.buffers()[1]
    if data is None or array.null_count == rows:
        return np.zeros(rows, np.int64 if array.type.precision <= _NARROW else object)
    words = np.frombuffer(data, np.int64, count=2 * (start + rows)).reshape(-1, 2)[start:]
    low = words[:, 0]
    if array.type.precision <= _NARROW:
        values: Numbers = low
    elif ((low >> 63) == words[:, 1]).all():
        values = low.astype(object)
    else:
        values = (words[:, 1].astype(object) << 64) | low.view(np.uint64).astype(object)
    if array.null_count:
        values = np.where(array.is_valid().to_numpy(zero_copy_only=False), values, 0)
    return values


def decimal_array(values: Numbers, where: Bools | None, kind: Type) -> tuple[pa.Array, Bools]:
    """The column over unscaled integers, and where they have too many digits for it (NULL there)."""
    limit = 10**kind.precision
    if values.dtype == object or kind.precision <= _NARROW:
        wide = np.asarray((values >= limit) | (values <= -limit), np.bool_)
    else:
        wide = np.zeros(len(values), np.bool_)
    if wide.any():
        values = np.where(wide, 0, values)
        where = ~wide if where is None else where & ~wide
    words = np.empty((len(values), 2), np.int64)
    if values.dtype == object:
        words[:, 0] = (values & (2**64 - 1)).astype(np.uint64).view(np.int64)
        words[:, 1] = (values >> 64).astype(np.int64)
    else:
        words[:, 0], words[:, 1] = values, values >> 63
    bitmap = None if where is None else pa.py_buffer(np.packbits(where, bitorder="little"))
    return pa.Array.from_buffers(to_arrow(kind), len(values), [bitmap, pa.py_buffer(words)]), wide


def divide_half_up(values: Numbers, divisor: Any) -> Numbers:
    """Quotients of integers, halves away from zero. The divisor (integer or integers) is not zero."""
    magnitude, size = np.abs(values), np.abs(divisor)
    whole = magnitude // size
    whole = whole + (magnitude - whole * size >= size - size // 2)
    return _signed(whole, values, divisor)


def _signed(whole: Numbers, values: Numbers, divisor: Any) -> Numbers:
    negative = np.asarray(values < 0, np.bool_) ^ np.asarray(divisor < 0, np.bool_)
    signed: Numbers = np.where(negative, -whole, whole)
    return signed


def divide_towards_zero(values: Numbers, divisor: Any) -> Numbers:
    """Quotients of integers, truncated. The divisor (integer or integers) is not zero."""
    whole = np.abs(values) // np.abs(divisor)
    return _signed(whole, values, divisor)


def rescaled(values: Numbers, scale: int, target: int, digits: int) -> Numbers:
    """The same numbers (of at most `digits` digits) with another scale, halves away from zero."""
    if target == scale:
        return values
    if digits + max(0, target - scale) > _NARROW or abs(target - scale) > _NARROW:
        values = values.astype(object)
    if target > scale:
        raised: Numbers = values * 10 ** (target - scale)
        return raised
    return divide_half_up(values, 10 ** (scale - target))


def _scale(datum: Datum) -> int:
    return int(datum.type.scale)


def _digits(datum: Datum) -> int:
    return int(datum.type.precision)


def _finish(
    values: Numbers, data: Sequence[Datum], kind: Type, symbol: str, bad: Bools | None = None
) -> Outcome:
    """The result column; errors for rows in `bad` (a zero divisor) and for those with too many digits."""
    array, wide = decimal_array(np.broadcast_to(values, rows_of(data)), all_valid(data), kind)

    def describe(*operands: Decimal) -> str:
        if bad is not None and operands[-1] == 0:
            return "division by zero"
        shown = f" {symbol} ".join(f"{operand:f}" for operand in operands)
        return f"{shown} does not fit {kind}"

    mask = wide if bad is None else wide | bad
    return array, failing(mask, data, describe) if mask.any() else None


def arithmetic(symbol: str, kind: Type) -> Kernel:
    """`+`, `-`, `*`, `/`, `%`, `pmod` of two DECIMALs with a result of type `kind`."""
    function = _FUNCTIONS[symbol]

    def kernel(data: Sequence[Datum]) -> Outcome:
        values, scale, bad = function(data[0], data[1], kind)
        result = rescaled(values, scale, kind.scale, 2 * _NARROW if values.dtype == object else _NARROW)
        return _finish(result, data, kind, symbol, bad)

    return kernel


_Exact = tuple[Numbers, int, Bools | None]


def _aligned(left: Datum, right: Datum) -> tuple[Numbers, Numbers, int]:
    scale = max(_scale(left), _scale(right))
    first = rescaled(unscaled(left), _scale(left), scale, _digits(left))
    second = rescaled(unscaled(right), _scale(right), scale, _digits(right))
    return first, second, scale


def _sum(left: Datum, right: Datum, _: Type) -> _Exact:
    first, second, scale = _aligned(left, right)
    return first + second, scale, None


def _difference(left: Datum, right: Datum, _: Type) -> _Exact:
    first, second, scale = _aligned(left, right)
    return first - second, scale, None


def _product(left: Datum, right: Datum, _: Type) -> _Exact:
    first, second = unscaled(left), unscaled(right)
    if _digits(left) + _digits(right) > _NARROW:
        first = first.astype(object)
    return _of_39_digits(first * second), _scale(left) + _scale(right), None


def _of_39_digits(values: Numbers) -> Numbers:
    """Products rounded to 39 significant digits first, as Spark does; the caller rounds to the result's scale."""
    wide = np.asarray(np.abs(values) >= 10**39, np.bool_) if values.dtype == object else np.zeros(1, np.bool_)
    if not wide.any():
        return values
    surplus = np.array([10 ** (len(str(abs(value))) - 39) for value in values[wide]], object)
    rounded = values.copy()
    rounded[wide] = divide_half_up(values[wide], surplus) * surplus
    return rounded


def _quotient(left: Datum, right: Datum, _: Type) -> _Exact:
    """Rounded to 38 fraction digits first, as Spark does; the caller rounds to the result's scale."""
    second = unscaled(right)
    zero = np.asarray(second == 0, np.bool_)
    shift = _SPARK_QUOTIENT_SCALE + _scale(right) - _scale(left)
    divisor = np.where(zero, 1, second).astype(object)
    dividend = unscaled(left).astype(object)
    if shift < 0:
        divisor = divisor * 10**-shift
    else:
        dividend = dividend * 10**shift
    return divide_half_up(dividend, divisor), _SPARK_QUOTIENT_SCALE, zero


def _remainder(left: Datum, right: Datum, _: Type) -> _Exact:
    first, second, scale = _aligned(left, right)
    zero = np.asarray(second == 0, np.bool_)
    divisor = np.where(zero, 1, second)
    return first - divide_towards_zero(first, divisor) * divisor, scale, zero


def _positive_remainder(left: Datum, right: Datum, kind: Type) -> _Exact:
    rest, scale, zero = _remainder(left, right, kind)
    _, second, _ = _aligned(left, right)
    divisor = np.where(np.asarray(second == 0, np.bool_), 1, second)
    raised = rest + divisor
    wrapped = raised - divide_towards_zero(raised, divisor) * divisor
    return np.where(np.asarray(rest < 0, np.bool_), wrapped, rest), scale, zero


_FUNCTIONS: Final[dict[str, Callable[[Datum, Datum, Type], _Exact]]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "%": _remainder,
    "pmod": _positive_remainder,
}


def whole_quotient(data: Sequence[Datum]) -> Outcome:
    """`div` of two DECIMALs: a BIGINT, truncated towards zero; of larger quotients Spark keeps the low 64 bits."""
    first, second, _ = _aligned(data[0], data[1])
    zero = np.asarray(second == 0, np.bool_)
    exact = divide_towards_zero(first, np.where(zero, 1, second))
    values = ((exact + 2**63) % 2**64 - 2**63) if exact.dtype == object else exact
    failure = failing(zero, data, lambda *_: "division by zero") if zero.any() else None
    return build(
        np.broadcast_to(values, rows_of(data)).astype(np.int64), all_valid(data), pa.int64()
    ), failure


def changed(kind: Type, function: Callable[[Numbers, int], tuple[Numbers, int]], name: str) -> Kernel:
    """A kernel of one DECIMAL; `function` maps unscaled integers and their scale to others."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        values, scale = function(unscaled(data[0]), _scale(data[0]))
        result = rescaled(values, scale, kind.scale, _digits(data[0]))
        array, wide = decimal_array(result, all_valid(data), kind)
        if not wide.any():
            return array, None
        return array, Failure(wide, lambda row: f"{name}({cell(data[0], row):f}) does not fit {kind}")

    return kernel


def divide_half_even(values: Numbers, divisor: int) -> Numbers:
    """Quotients of integers, halves to the even neighbour. The divisor is positive."""
    whole = values // divisor
    rest = (values - whole * divisor) * 2
    up = np.asarray((rest > divisor) | ((rest == divisor) & (whole % 2 == 1)), np.bool_)
    return whole + up
