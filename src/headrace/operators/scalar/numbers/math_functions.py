"""Real functions (roots, powers, logarithms, sign), rounding, `isnan` and `nanvl`. Results are Java's up to the last
digit for exp, logarithms and powers, else exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.scalar.numbers import decimals
from headrace.operators.scalar.values.datum import (
    Bools,
    Datum,
    Kernel,
    Numbers,
    Outcome,
    all_valid,
    build,
    failing,
    raw,
    rows_of,
    valid,
)
from headrace.schema import Type, to_arrow

_BIG: Final = float(2**50)
_NEAR: Final = 1e-4


def real(function: Callable[..., Numbers], outside: Callable[..., Bools] | None = None) -> Kernel:
    """A function of doubles, NULL where `outside` is true."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        numbers = [raw(datum) for datum in data]
        rows, where = rows_of(data), all_valid(data)
        with np.errstate(all="ignore"):
            values = np.broadcast_to(function(*numbers), rows)
            if outside is not None:
                inside = ~np.broadcast_to(outside(*numbers), rows)
                where = inside if where is None else where & inside
        return build(values, where, pa.float64()), None

    return kernel


def _not_positive(*numbers: Numbers) -> Bools:
    outside: Bools = numbers[0] <= 0
    return outside if len(numbers) == 1 else outside | (numbers[1] <= 0)


def _logarithm(*numbers: Numbers) -> Numbers:
    natural: Numbers = np.log(numbers[-1])
    return natural if len(numbers) == 1 else natural / np.log(numbers[0])


def _power(base: Numbers, exponent: Numbers) -> Numbers:
    """Java's: NaN where C defines that 1 to any power, or -1 to an infinite one, is 1."""
    strange = np.isnan(exponent) | (np.isinf(exponent) & (np.abs(base) == 1))
    power: Numbers = np.where(strange, np.nan, np.float_power(base, exponent))
    return power


def _sign(number: Numbers) -> Numbers:
    sign: Numbers = np.where(number == 0, number, np.sign(number))
    return sign


REAL: Final = {
    "sign": real(_sign),
    "sqrt": real(np.sqrt),
    "exp": real(np.exp),
    "ln": real(_logarithm, _not_positive),
    "log": real(_logarithm, _not_positive),
    "log10": real(np.log10, _not_positive),
    "log2": real(lambda number: np.log(number) / np.log(2.0), _not_positive),
    "pow": real(_power),
}


def whole(name: str, argument: Type, result: Type) -> Kernel:
    """`floor` and `ceil`; a double beyond BIGINT is an error, NaN gives 0."""
    if argument.is_integer:
        return lambda data: (data[0], None)
    if argument.name == "DECIMAL":
        up = name == "ceil"

        def change(values: Numbers, scale: int) -> tuple[Numbers, int]:
            return (-(-values // 10**scale) if up else values // 10**scale), 0

        return decimals.changed(result, change, name)
    function = np.ceil if name == "ceil" else np.floor

    def kernel(data: Sequence[Datum]) -> Outcome:
        with np.errstate(all="ignore"):
            values = function(raw(data[0]))
            wide = (np.abs(values) >= 2.0**63) & (values != -(2.0**63))
        failure = failing(wide, data[:1], lambda value: f"{name}({value}) does not fit {result}")
        return build(java_long(values), valid(data[0]), pa.int64()), failure

    return kernel


def java_long(values: Numbers) -> Numbers:
    """Doubles as Java's `(long)` converts them: towards zero, clamped to the range, 0 for NaN."""
    with np.errstate(all="ignore"):
        inside = np.abs(values) < 2.0**63
        cut = np.where(inside, values, 0).astype(np.int64)
        ends = np.where(values > 0, 2**63 - 1, np.where(values < 0, -(2**63), 0))
    result: Numbers = np.where(inside, cut, ends)
    return result


def rounded(name: str, argument: Type, digits: int, result: Type) -> Kernel:
    """`round` (halves away from zero) and `bround` (halves to even) to constant digits."""
    even = name == "bround"
    if argument.name == "DECIMAL":
        return decimals.changed(
            result, lambda values, scale: _decimal(values, scale, digits, even=even), name
        )
    if argument.is_integer:
        return _integer(name, argument, digits, even=even)
    if argument.name == "FLOAT":
        return lambda data: (
            _slowly(data[0], np.ones(len(data[0]), np.bool_), data[0], digits, even=even),
            None,
        )
    return lambda data: (_double(data[0], digits, even=even), None)


def _decimal(values: Numbers, scale: int, digits: int, *, even: bool) -> tuple[Numbers, int]:
    if digits >= scale:
        return values, scale
    divisor = 10 ** (scale - digits)
    if scale - digits > 17:
        values = values.astype(object)
    divided = decimals.divide_half_even(values, divisor) if even else decimals.divide_half_up(values, divisor)
    return (divided, digits) if digits >= 0 else (divided.astype(object) * 10**-digits, 0)


def _integer(name: str, kind: Type, digits: int, *, even: bool) -> Kernel:
    if digits >= 0:
        return lambda data: (data[0], None)
    limits = np.iinfo(to_arrow(kind).to_pandas_dtype())

    def kernel(data: Sequence[Datum]) -> Outcome:
        values, _ = _decimal(raw(data[0]).astype(object), 0, digits, even=even)
        wide = np.asarray((values > limits.max) | (values < limits.min), np.bool_)
        fitting = np.where(wide, 0, values).astype(limits.dtype)
        failure = failing(wide, data[:1], lambda value: f"{name}({value}, {digits}) does not fit {kind}")
        return build(fitting, valid(data[0]), to_arrow(kind)), failure

    return kernel


def _double(datum: pa.Array, digits: int, *, even: bool) -> pa.Array:
    """Exact where the scaled number is clear of a half; the few near one are rounded through their decimal text."""
    numbers = raw(datum)
    with np.errstate(all="ignore"):
        factor = np.float64(10.0 ** abs(digits)) if abs(digits) <= 22 else np.inf
        scaled = numbers * factor if digits >= 0 else numbers / factor
        whole = np.floor(np.abs(scaled) + 0.5)
        back = whole / factor if digits >= 0 else whole * factor
        rest = np.abs(scaled) - np.floor(np.abs(scaled))
        values = np.copysign(back, numbers)
        values = np.where(values == 0, 0.0, values)  # a BigDecimal has no negative zero
        finite = np.isfinite(numbers)
        odd = finite & ~((np.abs(scaled) < _BIG) & (np.abs(rest - 0.5) > _NEAR))
        if digits == 0 and not even:
            odd = finite & (np.abs(numbers) >= _BIG)  # a half is a double of its own: no text needed
    values = np.where(finite, values, numbers)
    array = build(values, valid(datum), pa.float64())
    return _slowly(array, odd, datum, digits, even=even) if odd.any() else array


def _slowly(array: pa.Array, odd: Bools, datum: pa.Array, digits: int, *, even: bool) -> pa.Array:
    where = valid(datum)
    mask = pa.array(odd if where is None else odd & where)
    encoded = datum.filter(mask).dictionary_encode()
    rounded_values = [_rounded_text(value, digits, even=even) for value in _texts(encoded.dictionary)]
    values = pa.array(rounded_values, pa.float64()).cast(array.type)
    return pc.replace_with_mask(array, mask, values.take(encoded.indices))


def _texts(values: pa.Array) -> list[str]:
    return [str(value) for value in values.cast(pa.string()).to_pylist()]


def _rounded_text(text: str, digits: int, *, even: bool) -> float:
    exact = Decimal(text)
    if not exact.is_finite():
        return float(exact)
    with localcontext(prec=800) as context:
        context.Emin, context.Emax = -(10**6), 10**6
        rounded = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN if even else ROUND_HALF_UP)
    return float(rounded) + 0.0


def is_nan(data: Sequence[Datum]) -> Outcome:
    """Whether it is NaN; false for NULL."""
    return pc.fill_null(pc.is_nan(data[0]), False), None


def nan_or(data: Sequence[Datum]) -> Outcome:
    """The second number where the first is NaN."""
    first, second = data
    flags: Any = pc.fill_null(pc.is_nan(first), False)
    return pc.if_else(flags, second, first), None
