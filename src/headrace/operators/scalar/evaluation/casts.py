"""CAST between types by Spark's ANSI rules: what does not fit is an error of its row. Texts are read in `parse_values`
and written in `format_values`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.scalar.numbers import decimals
from headrace.operators.scalar.text.format_values import writer
from headrace.operators.scalar.text.parse_values import reader
from headrace.operators.scalar.values.datum import (
    Datum,
    Failure,
    Kernel,
    Numbers,
    Outcome,
    all_valid,
    build,
    cell,
    failing,
    is_null,
    raw,
    valid,
)
from headrace.schema import Type, decimal, to_arrow
from headrace.time import DAY, SECOND

_INSTANTS: Final = ("TIMESTAMP", "TIMESTAMP_NTZ")
_INT64: Final = (-(2**63), 2**63 - 1)
_MICROS: Final = decimal(20, 6)


def cast(source: Type, target: Type) -> Kernel:
    """The kernel of CAST from one type to another; `headrace.algebra.functions.resolve.can_cast` lists the possible ones."""
    conversion = _cast(source, target)

    def kernel(data: Sequence[Datum]) -> Outcome:
        if is_null(data[0]):
            return pa.scalar(None, to_arrow(target)), None
        return conversion(data)

    return kernel


def _cast(source: Type, target: Type) -> Kernel:
    if source == target:
        return lambda data: (data[0], None)
    if source.name == "VOID":
        return lambda data: (pa.nulls(len(data[0]), to_arrow(target)), None)
    if source.name == "STRING":
        return reader(target)
    if target.name == "STRING":
        return writer(source)
    if "DECIMAL" in (source.name, target.name):
        return _to_decimal(source, target) if target.name == "DECIMAL" else _from_decimal(source, target)
    if source.name in (*_INSTANTS, "DATE") or target.name in (*_INSTANTS, "DATE"):
        return _temporal(source, target)
    return _numeric(source, target)


def _failed(data: Sequence[Datum], mask: Numbers, target: Type) -> Failure | None:
    return failing(mask, data, lambda value: f"{value} does not fit {target}") if mask.any() else None


# --------------------------------------------------------------------------------------- integers, floats, booleans


def _numeric(source: Type, target: Type) -> Kernel:
    arrow = to_arrow(target)
    if target.name == "BOOLEAN":
        return lambda data: (build(raw(data[0]) != 0, valid(data[0]), arrow), None)
    if target.is_fractional or source.name == "BOOLEAN":
        return lambda data: (_converted(data[0], arrow), None)
    if source.is_integer:
        return lambda data: _narrowed(data, target)
    return lambda data: _truncated(data, target)


def _converted(datum: Datum, arrow: pa.DataType) -> pa.Array:
    with np.errstate(all="ignore"):
        return build(raw(datum).astype(arrow.to_pandas_dtype()), valid(datum), arrow)


def _narrowed(data: Sequence[Datum], target: Type) -> Outcome:
    arrow = to_arrow(target)
    if arrow.bit_width >= data[0].type.bit_width:
        return data[0].cast(arrow), None
    values = raw(data[0])
    limits = np.iinfo(arrow.to_pandas_dtype())
    failure = _failed(data, (values < limits.min) | (values > limits.max), target)
    return build(values.astype(limits.dtype), valid(data[0]), arrow), failure


def _truncated(data: Sequence[Datum], target: Type) -> Outcome:
    """Java's `(int) x` for numbers whose whole part is in range, in the precision of the floating type."""
    return whole_of(data, raw(data[0]), target)


def whole_of(data: Sequence[Datum], values: Numbers, target: Type) -> Outcome:
    """Floating values as integers (or microseconds), truncated towards zero, if they are in range.

    Spark compares with the range's ends as doubles, so that 2^63 passes and becomes the greatest BIGINT.
    """
    arrow = to_arrow(target)
    limits = np.iinfo(arrow.to_pandas_dtype() if arrow.bit_width < 64 else np.int64)
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        fits = (np.floor(wide) <= float(limits.max)) & (np.ceil(wide) >= float(limits.min))
        whole = np.where(fits & (wide < float(2**63)), wide, 0.0).astype(np.int64)
    whole = np.where(fits & (wide >= float(2**63)), _INT64[1], whole)
    return build(whole, valid(data[0]) if len(data) == 1 else all_valid(data), arrow), _failed(
        data, ~fits, target
    )


# --------------------------------------------------------------------------------------------------------- decimals


def _to_decimal(source: Type, target: Type) -> Kernel:
    if source.is_fractional:
        return _floating_to_decimal(target)

    def kernel(data: Sequence[Datum]) -> Outcome:
        if source.name == "DECIMAL":
            values, scale, digits = decimals.unscaled(data[0]), source.scale, source.precision
        elif source.name in _INSTANTS:
            values, scale, digits = raw(data[0]), 6, 19
        else:
            values, scale, digits = raw(data[0]).astype(np.int64), 0, 19
        where = valid(data[0])
        values = values if where is None else np.where(where, values, 0)
        result = decimals.rescaled(values, scale, target.scale, digits)
        array, wide = decimals.decimal_array(result, where, target)
        return array, _failed(data, wide, target)

    return kernel


def _floating_to_decimal(target: Type) -> Kernel:
    """Through the shortest text, as Java's BigDecimal does; numbers that are not finite become NULL."""
    from_text = reader(target)

    def kernel(data: Sequence[Datum]) -> Outcome:
        finite = pc.if_else(pc.is_finite(data[0]), data[0], pa.scalar(None, data[0].type))
        array, failure = from_text([finite.cast(pa.string())])
        if failure is None:
            return array, None
        return array, Failure(failure.mask, lambda row: f"{cell(data[0], row)} does not fit {target}")

    return kernel


def _from_decimal(source: Type, target: Type) -> Kernel:
    def kernel(data: Sequence[Datum]) -> Outcome:
        values, where = decimals.unscaled(data[0]), valid(data[0])
        if target.name == "BOOLEAN":
            return build(np.asarray(values != 0, np.bool_), where, pa.bool_()), None
        if target.is_fractional:
            return build(_quotient(values, source.scale), where, to_arrow(target)), None
        if target.name == "TIMESTAMP":
            exact = decimals.divide_towards_zero(values.astype(object) * SECOND, 10**source.scale)
            whole = (exact + 2**63) % 2**64 - 2**63  # Java's longValue keeps the low bits
        else:
            whole = decimals.divide_towards_zero(values, 10**source.scale)
        arrow = to_arrow(target)
        bits = 64 if target.name == "TIMESTAMP" else arrow.bit_width
        wide = np.asarray((whole >= 2 ** (bits - 1)) | (whole < -(2 ** (bits - 1))), np.bool_)
        fitting = np.where(wide, 0, whole).astype(np.int64)
        return build(fitting, where, arrow), _failed(data, wide, target)

    return kernel


def _quotient(values: Numbers, scale: int) -> Numbers:
    """The double nearest to a DECIMAL: one division is exact enough while both sides are exact doubles."""
    if values.dtype == object or scale > 22 or (len(values) and np.abs(values).max() > 2**53):
        exact: Numbers = (values.astype(object) / 10**scale).astype(np.float64)
        return exact
    quotients: Numbers = values / np.float64(10**scale)
    return quotients


# ------------------------------------------------------------------------------------------- dates and timestamps


def _temporal(source: Type, target: Type) -> Kernel:
    arrow = to_arrow(target)
    if source.name in _INSTANTS and target.name in _INSTANTS:
        return lambda data: (build(raw(data[0]), valid(data[0]), arrow), None)
    if target.name == "DATE":
        return lambda data: (build(np.floor_divide(raw(data[0]), DAY), valid(data[0]), arrow), None)
    if source.name == "DATE":
        return lambda data: _scaled(data, raw(data[0]), DAY, target)
    if target.name in _INSTANTS:
        return _seconds(source, target)
    return lambda data: _of_instant(data, target)


def _scaled(data: Sequence[Datum], values: Numbers, unit: int, target: Type) -> Outcome:
    values = values.astype(np.int64)
    limit = _INT64[1] // unit
    wide = (values > limit) | (values < -limit)
    return build(np.where(wide, 0, values) * unit, all_valid(data), to_arrow(target)), _failed(
        data, wide, target
    )


def _seconds(source: Type, target: Type) -> Kernel:
    """A number of seconds as an instant; whole ones are clamped to the range, as Java's TimeUnit does."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        values: Any = raw(data[0])
        if source.is_fractional:
            with np.errstate(all="ignore"):
                return whole_of(data, values.astype(np.float64) * float(SECOND), target)
        values = values.astype(np.int64)
        limit = _INT64[1] // SECOND
        micros = np.clip(values, -limit, limit) * SECOND
        micros = np.where(values > limit, _INT64[1], np.where(values < -limit, _INT64[0], micros))
        return build(micros, valid(data[0]), to_arrow(target)), None

    return kernel


def _of_instant(data: Sequence[Datum], target: Type) -> Outcome:
    micros = raw(data[0])
    if target.is_fractional:
        return build(
            (micros / float(SECOND)).astype(to_arrow(target).to_pandas_dtype()),
            valid(data[0]),
            to_arrow(target),
        ), None
    seconds = build(np.floor_divide(micros, SECOND), valid(data[0]), pa.int64())
    narrowed, failure = _narrowed([seconds], target)
    return narrowed, failure
