"""Conversions of values between types, Spark's ANSI casts, with the ranges of its number types; and `RowError`, for
an expression without a value.
"""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Final

from headrace.schema import Type
from headrace.time import EPOCH, SECOND

_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "INT": 32}
_FLOATING: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?")
_SPECIAL: Final = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_TRUE: Final = ("t", "true", "y", "yes", "1")
_FALSE: Final = ("f", "false", "n", "no", "0")


class RowError(Exception):
    """An expression has no value on a row; `str()` is the reason. The row becomes a failed row of the query."""


def in_range(value: int, kind: Type) -> int:
    """The integer, if the type (an integer, a TIMESTAMP or an INTERVAL) can hold it; raises `RowError`."""
    bits = _BITS.get(kind.name, 64)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise RowError(f"{value} does not fit {kind}")
    return value


def fit(value: Any, kind: Type) -> Decimal:
    """The number rounded half up to a DECIMAL's scale; raises `RowError` when its precision is exceeded."""
    with localcontext(prec=400):
        rounded = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    if rounded.copy_abs() >= Decimal(10) ** (kind.precision - kind.scale):
        raise RowError(f"{value} does not fit {kind}")
    return rounded


def convert(value: Any, source: Type, target: Type) -> Any:
    """ANSI CAST of a value that is not NULL; raises `RowError` when the target has no such value."""
    if source == target:
        return value
    if target.is_integer:
        return in_range(_integer(value, source, target), target)
    match target.name:
        case "STRING":
            return text_of(value, source)
        case "DOUBLE" | "FLOAT":
            return _floating(value, source, target)
        case "DECIMAL":
            return _decimal(value, source, target)
        case "BOOLEAN":
            return _boolean(value, source)
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            return _timestamp(value, source)
        case "DATE":
            return _date(value, source)
        case "BINARY" if source.name == "STRING":
            return value.encode()
        case _:
            raise NotImplementedError(f"the reference has no cast from {source} to {target}")


def text_of(value: Any, source: Type) -> str:
    """CAST AS STRING: doubles as Java writes them, timestamps without zone and without trailing zeros."""
    match source.name:
        case "BOOLEAN":
            return "true" if value else "false"
        case "DOUBLE":
            return _java_double(value)
        case "FLOAT":
            shorter = (float(f"{value:.{digits}g}") for digits in range(1, 10))
            return _java_double(next((near for near in shorter if _single(near) == value), value))
        case "DECIMAL":
            return format(value, "f")
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            moment = EPOCH + timedelta(microseconds=value)
            text = moment.strftime("%Y-%m-%d %H:%M:%S")
            return text + f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else text
        case "BINARY":
            return bytes(value).decode(errors="replace")
        case _:
            return str(value)


def _java_double(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f") if "e" in repr(value) else repr(value)
    digits = Decimal(repr(value)).normalize().as_tuple()
    mantissa = "".join(map(str, digits.digits))
    exponent = len(mantissa) - 1 + int(digits.exponent)
    return f"{'-' if digits.sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{exponent}"


def _failed(value: Any, target: str) -> RowError:
    return RowError(f"'{value}' cannot be cast to {target}")


def _integer(value: Any, source: Type, target: Type) -> int:
    if source.name == "STRING":
        if re.fullmatch(r"[+-]?\d+", value.strip(), re.ASCII) is None:
            raise _failed(value, str(target))
        return int(value)
    if source.name in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return int(value // SECOND)
    if isinstance(value, float) and not math.isfinite(value):
        raise _failed(value, str(target))
    return int(value)


def _floating(value: Any, source: Type, target: Type) -> float:
    if source.name == "STRING":
        stripped = value.strip()
        bare = stripped.lstrip("+-").lower()
        if bare in _SPECIAL and len(stripped) - len(bare) <= 1:
            return math.copysign(1, -1 if stripped.startswith("-") else 1) * _SPECIAL[bare]
        if _FLOATING.fullmatch(stripped) is None:
            raise _failed(value, str(target))
        number = float(stripped.rstrip("dDfF"))
    else:
        number = value / SECOND if source.name.startswith("TIMESTAMP") else float(value)
    return _single(number) if target.name == "FLOAT" else number


def _single(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _decimal(value: Any, source: Type, target: Type) -> Decimal:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _failed(value, str(target))
        return fit(repr(value), target)
    try:
        return fit(
            value.strip() if source.name == "STRING" else int(value) if value is True else value, target
        )
    except InvalidOperation:
        raise _failed(value, str(target)) from None


def _boolean(value: Any, source: Type) -> bool:
    if source.name != "STRING":
        return bool(value != 0)
    folded = value.strip().lower()
    if folded not in _TRUE + _FALSE:
        raise _failed(value, "BOOLEAN")
    return folded in _TRUE


def _timestamp(value: Any, source: Type) -> int:
    if source.name in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return int(value)
    if source.name == "DATE":
        return int((value - EPOCH.date()).days * 86_400 * SECOND)
    if source.name == "STRING":
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise _failed(value, "TIMESTAMP") from None
        return _micros(moment)
    return int(value * SECOND)


def _micros(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


def _date(value: Any, source: Type) -> date:
    if source.name == "STRING":
        try:
            return date.fromisoformat(value.strip()[:10])
        except ValueError:
            raise _failed(value, "DATE") from None
    return EPOCH.date() + timedelta(days=value // (86_400 * SECOND))
