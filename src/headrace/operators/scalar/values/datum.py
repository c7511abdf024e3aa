"""Interface of kernels (arguments, values, failed rows), and their access to Arrow memory as numpy. A datum is a column
of a batch, or one constant for all its rows.

Raw views ignore validity: values under a NULL are undefined. Constants have one row in raw views and broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.expression import Literal
from headrace.dataclass import dataclass
from headrace.schema import to_arrow
from headrace.time import render_date

Datum: TypeAlias = pa.Array | pa.Scalar
Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Numbers: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows on which one function has no value; `describe` gives the reason of one row."""

    mask: Bools
    describe: Callable[[int], str]


Outcome: TypeAlias = tuple[Datum, Failure | None]
Kernel: TypeAlias = Callable[[Sequence[Datum]], Outcome]
"""From the arguments, at least one of them an array, to the values; rows that failed may hold anything."""


def scalar_of(literal: Literal) -> pa.Scalar:
    """The constant as an Arrow scalar."""
    return pa.scalar(literal.value, to_arrow(literal.type))


def is_null(datum: Datum) -> bool:
    """True for a constant NULL."""
    return isinstance(datum, pa.Scalar) and not datum.is_valid


def rows_of(data: Sequence[Datum]) -> int:
    """Number of rows of the arrays among the arguments."""
    return next((len(datum) for datum in data if isinstance(datum, pa.Array)), 1)


def column(datum: Datum, rows: int) -> pa.Array:
    """The datum as an array of `rows` rows."""
    return datum if isinstance(datum, pa.Array) else pa.repeat(datum, rows)


def raw(datum: Datum) -> Numbers:
    """The fixed-width values as numpy: a view without regard to NULLs, one row for a constant."""
    array = column(datum, 1)
    kind, offset, rows = array.type, array.offset, len(array)
    data = array.buffers()[1]
    if data is None:
        return np.zeros(rows, _dtype(kind))
    if pa.types.is_boolean(kind):
        return bits(data, offset, rows)
    return np.frombuffer(data, _dtype(kind), count=offset + rows)[offset:]


def bits(buffer: pa.Buffer, offset: int, rows: int) -> Bools:
    """A bitmap as numpy truth values."""
    start = offset // 8
    packed = np.frombuffer(buffer, np.uint8)[start : (offset + rows + 7) // 8]
    return np.unpackbits(packed, count=offset % 8 + rows, bitorder="little")[offset % 8 :].view(np.bool_)


def _dtype(kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return np.bool_
    if pa.types.is_temporal(kind):
        return np.int32 if kind.bit_width == 32 else np.int64
    return kind.to_pandas_dtype()


def valid(datum: Datum) -> Bools | None:
    """Where there is a value; None if everywhere."""
    if isinstance(datum, pa.Scalar):
        return None if datum.is_valid else np.zeros(1, np.bool_)
    if datum.null_count == 0:
        return None
    if pa.types.is_null(datum.type):
        return np.zeros(len(datum), np.bool_)
    return bits(datum.buffers()[0], datum.offset, len(datum))


def all_valid(data: Sequence[Datum]) -> Bools | None:
    """Where every argument has a value; None if everywhere."""
    mask: Bools | None = None
    for datum in data:
        here = valid(datum)
        if here is not None:
            mask = here if mask is None else mask & here
    return mask


def build(values: Numbers, where: Bools | None, kind: pa.DataType) -> pa.Array:
    """An Arrow array over numpy values, NULL where `where` is false; no copy unless the type differs."""
    rows = len(values)
    if where is not None and len(where) != rows:
        where = np.broadcast_to(where, rows)
    bitmap = None if where is None else pa.py_buffer(np.packbits(where, bitorder="little"))
    if pa.types.is_boolean(kind):
        data = np.packbits(values, bitorder="little")
    else:
        data = np.ascontiguousarray(values, _dtype(kind))
    return pa.Array.from_buffers(kind, rows, [bitmap, pa.py_buffer(data)])


def truth(datum: Datum, rows: int) -> Bools:
    """Where a BOOLEAN is true: neither false nor NULL."""
    if isinstance(datum, pa.Scalar):
        return np.full(rows, datum.is_valid and datum.as_py(), np.bool_)
    values, where = raw(datum), valid(datum)
    return values if where is None else values & where


def null_where(mask: Bools, array: pa.Array) -> pa.Array:
    """The array, NULL where the mask is true."""
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)


def failing(mask: Bools, data: Sequence[Datum], describe: Callable[..., str]) -> Failure | None:
    """A failure on the masked rows whose arguments all have values; `describe` gets those of one row.

    None if no row is left.
    """
    where = all_valid(data)
    mask = mask if where is None else mask & where
    if not mask.any():
        return None
    mask = np.broadcast_to(mask, rows_of(data))
    return Failure(mask, lambda row: describe(*(cell(datum, row) for datum in data)))


def cell(datum: Datum, row: int) -> Any:
    """One value in Python; points in time and durations as Arrow prints them."""
    scalar = datum[row] if isinstance(datum, pa.Array) else datum
    if pa.types.is_date32(scalar.type) and scalar.is_valid:
        return render_date(scalar.value)
    return scalar.cast(pa.string()).as_py() if pa.types.is_timestamp(scalar.type) else scalar.as_py()
