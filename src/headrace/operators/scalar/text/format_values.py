"""CAST AS STRING of all types: numbers as Java writes them, timestamps without zone and without trailing zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.scalar.temporal.calendar import civil
from headrace.operators.scalar.values.datum import Bools, Datum, Kernel, Outcome, build, raw, valid
from headrace.schema import Type
from headrace.time import DAY, SECOND

_FIRST_DAY: Final = -719_162  # 0001-01-01
_LAST_DAY: Final = 2_932_896  # 9999-12-31


def writer(source: Type) -> Kernel:
    """The kernel of CAST(source AS STRING)."""
    match source.name:
        case "DOUBLE" | "FLOAT":
            write: Callable[[pa.Array], pa.Array] = _floating
        case "DECIMAL":
            write = _decimal
        case "DATE":
            write = _date
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            write = _timestamp
        case "BINARY":
            write = _binary
        case _:
            write = _plain

    def kernel(data: Sequence[Datum]) -> Outcome:
        return write(data[0]), None

    return kernel


def _plain(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _patched(texts: pa.Array, odd: Bools, values: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    """The texts, with those of odd rows written one by one."""
    if not odd.any():
        return texts
    mask = pa.array(odd)
    return pc.replace_with_mask(
        texts, mask, pa.array([write(v) for v in values.filter(mask).to_pylist()], pa.string())
    )


def _floating(values: pa.Array) -> pa.Array:
    numbers, where = raw(values), valid(values)
    size = np.abs(numbers)
    odd = ~((size >= 1e-3) & (size < 1e7) | (numbers == 0))
    odd = odd if where is None else odd & where
    texts = values.cast(pa.string())
    whole = pc.invert(pc.match_substring(texts, "."))
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    single = pa.types.is_float32(values.type)
    return _patched(
        texts,
        odd,
        values,
        lambda v: _scientific(v, repr(float(np.float32(v).astype(str))) if single else repr(v)),
    )


def _scientific(value: float, shortest: str) -> str:
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    mantissa = "".join(map(str, digits))
    power = len(mantissa) - 1 + int(exponent)
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{power}"


def _decimal(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    odd = pc.fill_null(pc.match_substring(texts, "E"), False).to_numpy(zero_copy_only=False)
    return _patched(texts, odd, values, lambda value: format(value, "f"))


def _year(year: int) -> str:
    """As Java's ISO formatter: four digits at least, a sign for years before 0 and after 9999."""
    return f"{year:04}" if 0 <= year <= 9999 else f"{'+' if year > 0 else '-'}{abs(year):04}"


def _far_date(days: int) -> str:
    year, month, day = (int(part[0]) for part in civil(np.array([days])))
    return f"{_year(year)}-{month:02}-{day:02}"


def _date(values: pa.Array) -> pa.Array:
    days, where = raw(values), valid(values)
    odd = (days < _FIRST_DAY) | (days > _LAST_DAY)
    odd = odd if where is None else odd & where
    return _patched(values.cast(pa.string()), odd, build(days, where, pa.int32()), _far_date)


def _far_timestamp(micros: int) -> str:
    days, rest = divmod(micros, DAY)
    seconds, fraction = divmod(rest, SECOND)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{_far_date(days)} {clock}" + (f".{fraction:06}".rstrip("0") if fraction else "")


def _timestamp(values: pa.Array) -> pa.Array:
    micros, where = raw(values), valid(values)
    odd = (micros < _FIRST_DAY * DAY) | (micros >= (_LAST_DAY + 1) * DAY)
    odd = odd if where is None else odd & where
    near = build(np.where(odd, 0, micros) if odd.any() else micros, where, pa.timestamp("us"))
    texts = pc.replace_substring_regex(near.cast(pa.string()), r"\.?0+$", "")
    return _patched(texts, odd, build(micros, where, pa.int64()), _far_timestamp)


def _binary(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode(errors="replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())
