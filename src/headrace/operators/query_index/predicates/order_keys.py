"""Keys of the values of a column, integers or bytes that are in order as the values are in Spark; and the cuts that a
constant makes among them, for comparisons.

Every value has a *key*: an integer of 64 bits, or bytes. Keys are ordered as Spark orders values (NaN above every
number, equal to itself; -0.0 equal to 0.0), and a comparison with a constant becomes a comparison with one of two
*cuts*: `below`, the least key whose value is at least the constant, and `above`, the least key whose value is greater.
So `>` and `>=` differ only in their cut, and 2.5 cuts the integers between 2 and 3.
"""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Literal
from headrace.operators.base.group_codes import Ints, as_int64
from headrace.operators.scalar.values.datum import bits, raw
from headrace.schema import Type

Key: TypeAlias = int | bytes
Cuts: TypeAlias = tuple[Key, Key]
"""`below` and `above` of a constant."""

LEAST: Final = -(2**63)
BEYOND: Final = 2**63
"""The least key of 64 bits, and the first integer that is no key: no value reaches it."""

_WHOLE: Final = frozenset(
    ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL")
)
_NAN: Final = 0x7FF8000000000000
_EPOCH: Final = date(1970, 1, 1).toordinal()
_WIDE: Final = 2**127


def has_keys(kind: Type) -> bool:
    """Whether values of the type have keys: not structures, arrays and VOID."""
    return kind.name in _WHOLE or kind.is_fractional or kind.name in ("STRING", "BINARY", "DECIMAL")


def has_whole_keys(kind: Type) -> bool:
    """Whether the keys are integers; otherwise they are bytes."""
    return kind.name in _WHOLE or kind.is_fractional or (kind.name == "DECIMAL" and kind.precision <= 18)


def cuts(constant: Literal, kind: Type) -> Cuts:
    """The cuts of a non-NULL constant among the keys of `kind`; the constant has that type or a wider one."""
    value = constant.value
    if kind.is_fractional:
        key = _double_key(float(value))  # type: ignore[arg-type]
        return key, key + 1
    if kind.name == "DECIMAL":
        number = Fraction(value) if isinstance(value, int | float | Decimal) else Fraction(0)
        return _decimal_cuts(number * 10**kind.scale, kind)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return value, value + b"\0"
    if isinstance(value, date):
        value = value.toordinal() - _EPOCH
    if isinstance(value, float) and not math.isfinite(value):
        return (LEAST, LEAST) if value < 0 else (BEYOND, BEYOND)
    assert isinstance(value, int | float | Decimal)
    return math.ceil(value), math.floor(value) + 1


def prefix_cuts(prefix: bytes) -> tuple[Key, Key | None]:
    """The keys of texts with a prefix: from the first cut up to the second (None: to the end)."""
    stem = prefix.rstrip(b"\xff")
    return prefix, (stem[:-1] + bytes([stem[-1] + 1])) if stem else None


def keys_of(values: pa.Array) -> Ints | pa.Array:
    """The keys of a column: int64, or an Arrow array of binaries. Keys of NULLs are undefined."""
    kind = values.type
    if pa.types.is_floating(kind):
        return _double_keys(raw(values).astype(np.float64))
    if pa.types.is_decimal(kind):
        words = _decimal_words(values)
        return words[:, 0].copy() if kind.precision <= 18 else _wide_keys(words)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return values.cast(pa.binary())
    return as_int64(values)


def absent(values: pa.Array) -> np.ndarray | None:
    """Where a column is NULL; None when nowhere."""
    if values.null_count == 0:
        return None
    if pa.types.is_null(values.type):
        return np.ones(len(values), bool)
    return ~bits(values.buffers()[0], values.offset, len(values))


def _double_key(value: float) -> int:
    return int(_double_keys(np.array([value], np.float64))[0])


def _double_keys(values: np.ndarray) -> Ints:
    """Doubles as integers of the same order: the bits of negative ones are inverted."""
    with np.errstate(all="ignore"):
        patterns = (values + 0.0).view(np.int64)
    patterns = np.where(np.isnan(values), _NAN, patterns)
    return np.where(patterns < 0, patterns ^ np.int64(0x7FFFFFFFFFFFFFFF), patterns)


def _decimal_cuts(unscaled: Fraction, kind: Type) -> Cuts:
    below, above = math.ceil(unscaled), math.floor(unscaled) + 1
    if has_whole_keys(kind):
        return max(LEAST, min(below, BEYOND)), max(LEAST, min(above, BEYOND))
    return _wide_key(below), _wide_key(above)


def _wide_key(unscaled: int) -> bytes:
    if unscaled < -_WIDE:
        return b""
    return (unscaled + _WIDE).to_bytes(16, "big") if unscaled < _WIDE else b"\xff" * 17


def _decimal_words(values: pa.Array) -> Ints:
    """(rows, 2) words of the unscaled two's complement, low word first."""
    wide = (
        values if pa.types.is_decimal128(values.type) else values.cast(pa.decimal128(38, values.type.scale))
    )
    data = np.frombuffer(wide.buffers()[1], np.int64)
    return data[2 * wide.offset : 2 * (wide.offset + len(wide))].reshape(-1, 2)


def _wide_keys(words: Ints) -> pa.Array:
    turned = words.view(np.uint64)[:, ::-1].copy()
    turned[:, 0] ^= np.uint64(1 << 63)
    raw_bytes = pa.py_buffer(turned.astype(">u8").tobytes())
    return pa.Array.from_buffers(pa.binary(16), len(words), [None, raw_bytes]).cast(pa.binary())
