"""Comparisons (`=` to `>=`, `<=>`, `greatest`, `least`) as Spark orders values: NaN equals NaN and is greater than
every number, -0.0 equals 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.scalar.values.datum import Datum, Kernel, Outcome, is_null, raw, rows_of
from headrace.schema import VOID, Type

Compare = Callable[[Datum, Datum], pa.Array]

_PLAIN: Final[dict[str, Compare]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_SWAPPED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def comparison(symbol: str, kind: Type) -> Compare:
    """The comparison of two data of one type (one of `=` `<>` `<` `<=` `>` `>=`); NULL where either is."""
    if kind == VOID:  # Arrow compares no untyped NULLs
        return lambda left, right: pa.nulls(rows_of((left, right)), pa.bool_())
    if kind.is_fractional:
        return lambda left, right: _floating(symbol, left, right)
    plain = _PLAIN[symbol]
    if kind.name == "BOOLEAN" and symbol not in ("=", "<>"):
        return lambda left, right: plain(left.cast(pa.uint8()), right.cast(pa.uint8()))
    return plain


def compared(symbol: str, kind: Type) -> Kernel:
    """The comparison as a kernel."""
    compare = comparison(symbol, kind)
    return lambda data: (compare(data[0], data[1]), None)


def _floating(symbol: str, left: Datum, right: Datum) -> pa.Array:
    if is_null(left) or is_null(right):
        return _PLAIN[symbol](left, right)
    if isinstance(right, pa.Scalar):
        return _with_constant(symbol, left, right)
    if isinstance(left, pa.Scalar):
        return _with_constant(_SWAPPED[symbol], right, left)
    if _may_hold_nan(left) or _may_hold_nan(right):
        return _totally(symbol, left, right)
    return _PLAIN[symbol](left, right)


def _with_constant(symbol: str, left: Datum, right: pa.Scalar) -> pa.Array:
    """With a number on the right, IEEE handles NaN as Spark does except in `>` and `>=`, which are `not <=` and `not <`."""
    if math.isnan(right.as_py()):
        return _totally(symbol, left, right)
    if symbol == ">":
        return pc.invert(pc.less_equal(left, right))
    if symbol == ">=":
        return pc.invert(pc.less(left, right))
    return _PLAIN[symbol](left, right)


def _may_hold_nan(datum: Datum) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.isnan(raw(datum).sum()))  # also true for inf - inf, which only costs time


def _totally(symbol: str, left: Datum, right: Datum) -> pa.Array:
    if symbol in (">", ">="):
        return _totally(_SWAPPED[symbol], right, left)
    if symbol == "<>":
        return pc.invert(_totally("=", left, right))
    last_left, last_right = pc.is_nan(left), pc.is_nan(right)
    if symbol == "=":
        return pc.or_(pc.equal(left, right), pc.and_(last_left, last_right))
    less = pc.or_(pc.less(left, right), pc.and_not(last_right, last_left))
    return less if symbol == "<" else pc.or_(less, _totally("=", left, right))


def null_safe_equal(kind: Type) -> Kernel:
    """`<=>`: NULL equals NULL."""
    compare = comparison("=", kind)

    def kernel(data: Sequence[Datum]) -> Outcome:
        left, right = data
        if is_null(left) and is_null(right):
            return pa.scalar(True), None
        if is_null(left) or is_null(right):
            return pc.is_null(right if is_null(left) else left), None
        equal = pc.fill_null(compare(left, right), False)
        return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right))), None

    return kernel


def extreme(symbol: str, kind: Type) -> Kernel:
    """`greatest` (`>`) or `least` (`<`): the first of equals, NULLs left out."""
    better = comparison(symbol, kind)

    def kernel(data: Sequence[Datum]) -> Outcome:
        best = data[0]
        for datum in data[1:]:
            wins = pc.or_(pc.fill_null(better(datum, best), False), pc.is_null(best))
            best = pc.if_else(pc.and_(wins, pc.is_valid(datum)), datum, best)
        return best, None

    return kernel
