"""Arithmetic of integers and floating numbers (`+ - * /`, `div`, `%`, `pmod`, negation, absolute values), with an error
for each row that overflows or divides by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.scalar.values.datum import (
    Bools,
    Datum,
    Failure,
    Kernel,
    Numbers,
    Outcome,
    all_valid,
    build,
    failing,
    raw,
    rows_of,
)
from headrace.schema import Type, to_arrow

Overflow = Callable[[Numbers, Numbers, Numbers], Bools]


def _sum_overflows(left: Numbers, right: Numbers, result: Numbers) -> Bools:
    return ((left ^ result) & (right ^ result)) < 0


def _difference_overflows(left: Numbers, right: Numbers, result: Numbers) -> Bools:
    return ((left ^ right) & (left ^ result)) < 0


def _product_overflows(left: Numbers, right: Numbers, result: Numbers) -> Bools:
    least = np.iinfo(result.dtype).min
    negated = (left == -1) & (right == least)
    divisor = np.where((left == 0) | (left == -1), 1, left).astype(result.dtype)
    wrong = (result // divisor != right) | (result % divisor != 0)
    overflows: Bools = np.where((left == 0) | (left == -1), negated, wrong)
    return overflows


_ADDITIVE: Final[dict[str, tuple[str, Overflow]]] = {
    "+": ("add", _sum_overflows),
    "-": ("subtract", _difference_overflows),
    "*": ("multiply", _product_overflows),
}


def additive(symbol: str, kind: Type) -> Kernel:
    """`+`, `-` or `*` of two integers or two floating numbers of one type."""
    name, overflows = _ADDITIVE[symbol]
    wrapping = getattr(pc, name)
    if kind.is_fractional:
        return lambda data: (wrapping(*data), None)
    checked = getattr(pc, f"{name}_checked")

    def kernel(data: Sequence[Datum]) -> Outcome:
        try:
            return checked(*data), None
        except pa.ArrowInvalid:
            result = wrapping(*data)
            mask = overflows(raw(data[0]), raw(data[1]), raw(result))
            return result, failing(mask, data, lambda a, b: f"{a} {symbol} {b} does not fit {kind}")

    return kernel


def by_zero(data: Sequence[Datum], divisor: Numbers) -> Failure | None:
    """The error of rows whose divisor is zero."""
    zero = divisor == 0
    return failing(zero, data, lambda *_: "division by zero") if zero.any() else None


def quotient(data: Sequence[Datum]) -> Outcome:
    """`/` of two numbers, as doubles."""
    doubles = [datum.cast(pa.float64(), safe=False) for datum in data]
    return pc.divide(*doubles), by_zero(data, raw(data[1]))


def _numpy_kernel(kind: Type, function: Callable[[Numbers, Numbers], Numbers]) -> Kernel:
    """A kernel for two numbers where the divisor may not be zero; `function` never sees a zero."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        left, right = raw(data[0]), raw(data[1])
        failure = by_zero(data, right)
        divisor = np.where(right == 0, np.ones(1, right.dtype), right)
        with np.errstate(all="ignore"):
            values = np.broadcast_to(function(left, divisor), rows_of(data))
        return build(values, all_valid(data), to_arrow(kind)), failure

    return kernel


def _java_remainder(left: Numbers, right: Numbers) -> Numbers:
    if left.dtype.kind == "f":
        return np.fmod(left, right)
    return np.fmod(
        left, np.where(right == -1, np.ones(1, right.dtype), right)
    )  # min % -1 is 0, and traps in C


def _positive_remainder(left: Numbers, right: Numbers) -> Numbers:
    if left.dtype.itemsize < 4:
        left, right = left.astype(np.int32), right.astype(np.int32)
    remainder = _java_remainder(left, right)
    return np.where(remainder < 0, _java_remainder(remainder + right, right), remainder)


def remainder(kind: Type) -> Kernel:
    """`%`, with the sign of the dividend."""
    return _numpy_kernel(kind, _java_remainder)


def positive_remainder(kind: Type) -> Kernel:
    """`pmod`: `%`, and the divisor added to a negative remainder."""
    return _numpy_kernel(kind, _positive_remainder)


def whole_quotient(data: Sequence[Datum]) -> Outcome:
    """`div` of two BIGINTs, truncated towards zero."""
    left, right = raw(data[0]), raw(data[1])
    zero = right == 0
    least = (left == np.iinfo(np.int64).min) & (right == -1)
    divisor = np.where(zero | least, 1, right)
    values = (left - _java_remainder(left, divisor)) // divisor

    def describe(a: int, b: int) -> str:
        return "division by zero" if b == 0 else f"{a} div {b} does not fit BIGINT"

    failure = failing(zero | least, data, describe)
    return build(np.broadcast_to(values, rows_of(data)), all_valid(data), pa.int64()), failure


def negated(kind: Type) -> Kernel:
    """The number with the other sign; the least integer has none."""
    return _signless(kind, pc.negate, "-({})")


def absolute(kind: Type) -> Kernel:
    """The number without its sign; the least integer has none."""
    return _signless(kind, pc.abs, "abs({})")


def _signless(kind: Type, function: Callable[[Any], pa.Array], shown: str) -> Kernel:
    def kernel(data: Sequence[Datum]) -> Outcome:
        (array,) = data
        if kind.is_fractional:
            return function(array), None
        values = raw(array)
        mask = values == np.iinfo(values.dtype).min
        failure = (
            failing(mask, data, lambda value: f"{shown.format(value)} does not fit {kind}")
            if mask.any()
            else None
        )
        if kind.name == "INTERVAL":
            return function(array.cast(pa.int64())).cast(to_arrow(kind)), failure
        return function(array), failure

    return kernel
