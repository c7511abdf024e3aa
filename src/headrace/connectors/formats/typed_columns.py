"""Typed columns of a file (Parquet, Arrow) as the stream's columns: matched by name, cast without loss; rows with a
value that does not fit are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.records.chunk import Chunk, Refused, WholeFile
from headrace.schema import Field, Schema, Type, to_arrow


def matched(
    file_schema: pa.Schema, schema: Schema, columns: Sequence[str], rows: Callable[[], int] = lambda: 1
) -> list[int]:
    """The index in the file of each of `columns`. All columns of the schema must be there, with a type that fits.

    Raises `WholeFile` that names a missing column or one of another type; `rows` is how many rows that concerns.
    """
    indexes = {name.lower(): index for index, name in reversed(list(enumerate(file_schema.names)))}
    missing = [name for name in schema.names if name.lower() not in indexes]
    if missing:
        raise WholeFile(
            f"schema changed: column {', '.join(missing)} is missing; there is {', '.join(file_schema.names) or 'none'}",
            rows=rows(),
        )
    for field in schema:
        kind = file_schema.field(indexes[field.name.lower()]).type
        if not _fits(kind, field.type):
            raise WholeFile(
                f"schema changed: column {field.name} is {kind}, expected {field.type}", rows=rows()
            )
    return [indexes[name.lower()] for name in columns]


def fitted(columns: Sequence[pa.Array], fields: Sequence[Field], first: int) -> Chunk:
    """The columns in the schema's own types; rows with a value that does not fit are refused."""
    length = len(columns[0]) if columns else 0
    rows = np.arange(first, first + length)
    values: list[pa.Array] = []
    bad: dict[int, str] = {}
    for column, field in zip(columns, fields, strict=True):
        value, failed = _cast(column, to_arrow(field.type))
        values.append(value)
        if failed is not None:
            for at in np.flatnonzero(failed).tolist():
                bad.setdefault(at, f"column {field.name}: {_shown(column[at])} does not fit {field.type}")
    batch = pa.RecordBatch.from_arrays(values, names=[field.name for field in fields])
    if not bad:
        return Chunk(batch, rows, [], length)
    refused = [
        Refused(first + at, _text([column[at] for column in columns], fields), bad[at]) for at in sorted(bad)
    ]
    valid = np.ones(length, np.bool_)
    valid[list(bad)] = False
    return Chunk(batch.filter(pa.array(valid)), rows[valid], refused, length)


def _shown(cell: pa.Scalar) -> str:
    """The cell as a reason shows it, also where Python has no such value."""
    try:
        return str(cell.as_py())
    except (OverflowError, ValueError):
        if pa.types.is_temporal(cell.type):
            return f"{cell.value} ({cell.type})"
        if pa.types.is_string(cell.type) or pa.types.is_large_string(cell.type):
            return f"{cell.cast(pa.binary()).as_py()!r} (not UTF-8)"
        return f"a {cell.type} with a value beyond Python's range"


def _text(cells: Sequence[pa.Scalar], fields: Sequence[Field]) -> str:
    return ", ".join(f"{field.name}: {_shown(cell)}" for field, cell in zip(fields, cells, strict=True))


def _cast(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
    is_text = pa.types.is_string(target)
    if column.type == target and not is_text:
        return column, None
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return _what_is_text(column, target)
    if column.type == target:
        return column, None
    try:
        return _converted(column, target), None
    except pa.ArrowInvalid:
        return _cast_what_fits(column, target)


def _converted(column: pa.Array, target: pa.DataType) -> pa.Array:
    """The column in another type; nanoseconds are rounded down to microseconds, also those before 1970, which Arrow rounds up."""
    converted = pc.cast(column, options=pc.CastOptions(target, allow_time_truncate=True))
    if not (pa.types.is_timestamp(column.type) and column.type.unit == "ns"):
        return converted
    nanos, micros = column.cast(pa.int64()), converted.cast(pa.int64())
    if (pc.min(nanos).as_py() or 0) >= 0:
        return converted
    is_up = pc.less(nanos, pc.multiply(micros, pa.scalar(1000, pa.int64())))
    return pc.subtract(micros, is_up.cast(pa.int64())).cast(target)


def _what_is_text(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """The column decoded cell by cell: a file's texts need not be UTF-8."""
    values: list[str | None] = []
    failed = np.zeros(len(column), np.bool_)
    for at, raw in enumerate(column.cast(pa.large_binary()).to_pylist()):
        try:
            values.append(None if raw is None else raw.decode())
        except UnicodeDecodeError:
            values.append(None)
            failed[at] = True
    return pa.array(values, target), failed


def _cast_what_fits(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
    """The column cast cell by cell: only for the rare batch in which some value is too large."""
    values, failed = [], np.zeros(len(column), np.bool_)
    for at in range(len(column)):
        try:
            values.append(_converted(column.slice(at, 1), target))
        except pa.ArrowInvalid:
            values.append(pa.nulls(1, target))
            failed[at] = True
    return pa.concat_arrays(values), failed


def _fits(kind: pa.DataType, expected: Type) -> bool:
    """Whether the file's type is the column's, or widens to it."""
    if pa.types.is_dictionary(kind):
        return _fits(kind.value_type, expected)
    if pa.types.is_null(kind):
        return True
    if expected.is_integer:
        return bool(pa.types.is_integer(kind))
    if expected.is_fractional:
        return bool(pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind.bit_width <= 32))
    return bool(_KINDS[expected.name](kind, expected))


def _is_struct(kind: pa.DataType, expected: Type) -> bool:
    if not pa.types.is_struct(kind):
        return False
    inner = {field.name.lower(): field.type for field in kind}
    return all(
        field.name.lower() in inner and _fits(inner[field.name.lower()], field.type)
        for field in expected.fields
    )


_KINDS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "BOOLEAN": lambda kind, _: pa.types.is_boolean(kind),
    "STRING": lambda kind, _: (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ),
    "BINARY": lambda kind, _: (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    ),
    "DATE": lambda kind, _: pa.types.is_date(kind),
    "TIMESTAMP": lambda kind, _: pa.types.is_timestamp(kind),
    "TIMESTAMP_NTZ": lambda kind, _: pa.types.is_timestamp(kind),
    "INTERVAL": lambda kind, _: pa.types.is_duration(kind),
    "DECIMAL": lambda kind, _: pa.types.is_decimal(kind) or pa.types.is_integer(kind),
    "STRUCT": _is_struct,
    "ARRAY": lambda kind, expected: (
        (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _fits(kind.value_type, expected.element)
    ),
    "VOID": lambda kind, _: pa.types.is_null(kind),
}
