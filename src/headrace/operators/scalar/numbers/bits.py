"""Bits of whole numbers: `& | ^ ~`, shifts as in Java, counts of bits, and one bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.scalar.values.datum import (
    Datum,
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


def _computed(function: Callable[..., Numbers], kind: pa.DataType) -> Kernel:
    def kernel(data: Sequence[Datum]) -> Outcome:
        values = np.broadcast_to(function(*map(raw, data)), rows_of(data))
        return build(values, all_valid(data), kind), None

    return kernel


def _right_with_zeros(number: Numbers, places: Numbers) -> Numbers:
    unsigned = number.view(np.uint32 if number.dtype.itemsize == 4 else np.uint64)
    moved: Numbers = np.right_shift(unsigned, places.astype(unsigned.dtype)).view(number.dtype)
    return moved


_COMBINED: Final[dict[str, Callable[..., Numbers]]] = {
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "~": np.invert,
}
_SHIFTS: Final[dict[str, Callable[..., Numbers]]] = {
    "<<": np.left_shift,
    ">>": np.right_shift,
    ">>>": _right_with_zeros,
}


def combined(symbol: str, kind: Type) -> Kernel:
    """`&`, `|` or `^` of two numbers of one type, or `~` of one."""
    return _computed(_COMBINED[symbol], to_arrow(kind))


def shifted(symbol: str, kind: Type) -> Kernel:
    """A shift of an INT or a BIGINT; of the places the last five or six bits count."""
    function, arrow = _SHIFTS[symbol], to_arrow(kind)
    last = arrow.bit_width - 1

    def shift(number: Numbers, places: Numbers) -> Numbers:
        return function(number, (places & last).astype(number.dtype))

    return _computed(shift, arrow)


def _count(number: Numbers) -> Numbers:
    if number.dtype == np.bool_:
        return number.astype(np.int32)
    counts: Numbers = np.bitwise_count(number.astype(np.int64).view(np.uint64))
    return counts


COUNT: Final = _computed(_count, pa.int32())
"""How many bits are 1."""


def bit(kind: Type) -> Kernel:
    """One bit; a position that the type does not have is an error."""
    width = to_arrow(kind).bit_width

    def kernel(data: Sequence[Datum]) -> Outcome:
        number, position = map(raw, data)
        outside = (position < 0) | (position >= width)
        bits = (number.astype(np.int64) >> np.where(outside, 0, position)) & 1
        failure = failing(
            outside,
            data,
            lambda _, place: f"the position of a bit of {kind} is from 0 to {width - 1}, not {place}",
        )
        return build(np.broadcast_to(bits, rows_of(data)), all_valid(data), pa.int8()), failure

    return kernel
