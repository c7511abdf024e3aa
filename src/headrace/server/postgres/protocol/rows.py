"""Arrow tables as messages of PostgreSQL's protocol: the description of the columns, rows with each cell as text or in
binary, and the rows of COPY as CSV or text.

Rows are not walked through: each column becomes a column of bytes, and all are joined row by row in Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.formats.rendering import to_json
from headrace.operators.base.group_codes import flat
from headrace.server.postgres.protocol import frames
from headrace.server.postgres.protocol.types import (
    DAYS_TO_2000,
    INT2,
    INT4,
    INT8,
    MICROS_TO_2000,
    NUMERIC,
    type_of,
)
from headrace.time import DAY, render_date

FIRST_DAY: Final = -719_162
"""0001-01-01."""
END_DAY: Final = 2_932_897
"""10000-01-01."""
INFINITE: Final = (1 << 63) - 1
"""Microseconds that mean infinity in the reader of tables."""
INFINITE_DAY: Final = (1 << 31) - 1


def row_description(schema: pa.Schema, formats: Sequence[int]) -> bytes:
    """The columns of rows that follow; `formats` is 0 (text) or 1 (binary) for each."""
    parts = [struct.pack("!h", len(schema))]
    for field, form in zip(schema, formats, strict=True):
        kind = type_of(field.type)
        parts.append(frames.text(field.name) + struct.pack("!ihIhih", 0, 0, kind.oid, kind.size, -1, form))
    return frames.message(b"T", b"".join(parts))


def data_rows(table: pa.Table, formats: Sequence[int]) -> memoryview:
    """The DataRow messages of a table."""
    cells = [_cells(flat(table.column(index)), form) for index, form in enumerate(formats)]
    lengths = [pc.fill_null(pc.binary_length(cell), -1).to_numpy().astype(np.int32) for cell in cells]
    head = np.zeros(table.num_rows, [("kind", "S1"), ("length", ">i4"), ("columns", ">i2")])
    head["kind"], head["columns"] = b"D", len(cells)
    head["length"] = 6 + sum(
        (4 + np.maximum(length, 0) for length in lengths), start=np.zeros(len(head), np.int64)
    )
    parts = [_fixed(head)]
    for cell, length in zip(cells, lengths, strict=True):
        parts += [_fixed(length.astype(">i4")), pc.fill_null(cell, b"")]
    return _joined(parts)


def copied_rows(table: pa.Table, *, is_csv: bool) -> memoryview:
    r"""The rows as CopyData messages: CSV, or PostgreSQL's text format with tabs between cells and `\N` for NULL."""
    as_cell = _csv_cells if is_csv else _plain_cells
    cells = [as_cell(_texts(flat(column))).cast(pa.binary()) for column in table.columns]
    lines = pc.binary_join_element_wise(*cells, pa.scalar(b"," if is_csv else b"\t", pa.binary()))
    head = np.zeros(table.num_rows, [("kind", "S1"), ("length", ">i4")])
    head["kind"], head["length"] = b"d", 5 + pc.binary_length(lines).to_numpy()
    return _joined([_fixed(head), lines, pa.array([b"\n"] * table.num_rows, pa.binary())])


def _plain_cells(text: pa.Array) -> pa.Array:
    for plain, written in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = pc.replace_substring(text, plain, written)
    return pc.fill_null(text, "\\N")


def _csv_cells(text: pa.Array) -> pa.Array:
    """NULL is empty, the empty text is `""`."""
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    return pc.fill_null(pc.if_else(pc.match_substring_regex(text, r'[,"\r\n]|^$'), quoted, text), "")


def _fixed(values: np.ndarray) -> pa.Array:
    """The bytes of each value, as a column."""
    kind = pa.binary(values.dtype.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(
        kind, len(values), [None, pa.py_buffer(values.tobytes())]
    ).cast(pa.binary())


def _joined(parts: Sequence[pa.Array]) -> memoryview:
    """The bytes of all parts, row by row."""
    rows = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
    if not len(rows):
        return memoryview(b"")
    offsets = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + len(rows) + 1]
    return memoryview(rows.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


# ------------------------------------------------------------------------------------------------------- cells


def _cells(column: pa.Array, form: int) -> pa.Array:
    """The bytes of a column's values in a format; NULL stays NULL."""
    return _binary(column) if form == 1 else _texts(column).cast(pa.binary())


def _texts(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "t", "f")
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_timestamp(kind):
        return _moments(column.cast(pa.timestamp("us")), "+00" if kind.tz else "")
    if pa.types.is_date32(kind):
        return _days(column)
    if pa.types.is_time(kind):
        return _without_zeros(column.cast(pa.string()))
    if pa.types.is_duration(kind):
        micros = column.cast(pa.duration("us")).cast(pa.int64())
        return _mapped(_clock, micros.to_pylist())
    if pa.types.is_interval(kind):
        return _mapped(_interval, column.to_pylist())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _mapped(lambda value: f"\\x{value.hex()}", column.to_pylist())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _mapped(_array, list(_listed(column)))
    if pa.types.is_nested(kind):
        lines = to_json(pa.table({"": column})).splitlines()
        return pc.if_else(column.is_valid(), pa.array([line[4:-1] for line in lines], pa.string()), None)
    return column.cast(pa.string())


def _floats(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    for written, meant in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        text = pc.if_else(pc.equal(text, written), meant, text)
    return pc.if_else(pc.equal(text, "-nan"), "NaN", text)


def _moments(column: pa.Array, zone: str) -> pa.Array:
    text = pc.binary_join_element_wise(_without_zeros(column.cast(pa.string())), zone, "")
    micros = column.cast(pa.int64())
    return _with_far(text, micros, FIRST_DAY * DAY, END_DAY * DAY, lambda micro: _far_moment(micro, zone))


def _days(column: pa.Array) -> pa.Array:
    return _with_far(column.cast(pa.string()), column.cast(pa.int32()), FIRST_DAY, END_DAY, _far_day)


def _with_far(
    text: pa.Array, numbers: pa.Array, first: int, end: int, write: Callable[[int], str]
) -> pa.Array:
    """The text, with that of values before `first` and from `end` on written one by one: Arrow has no text for most of them."""
    is_far = pc.fill_null(pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, end)), False)
    if not pc.any(is_far).as_py():
        return text
    return pc.replace_with_mask(text, is_far, _mapped(write, numbers.filter(is_far).to_pylist()))


def _far_moment(micros: int, zone: str) -> str:
    if abs(micros) >= INFINITE:
        return "-infinity" if micros < 0 else "infinity"
    days, time = divmod(micros, DAY)
    day, _, era = _far_day(days).partition(" ")
    return f"{day} {_clock(time)}{zone}" + (f" {era}" if era else "")


def _far_day(days: int) -> str:
    """`10000-01-01`, `0044-03-15 BC`: there is no year 0."""
    if abs(days) >= INFINITE_DAY:
        return "-infinity" if days < 0 else "infinity"
    text = render_date(days)
    year, rest = text[:-6], text[-6:]
    return f"{year.lstrip('+')}{rest}" if int(year) > 0 else f"{1 - int(year):04d}{rest} BC"


def _without_zeros(text: pa.Array) -> pa.Array:
    short = pc.replace_substring_regex(text, r"\.0+$", "")
    return pc.replace_substring_regex(short, r"(\.[0-9]*[1-9])0+$", r"\1")


def _mapped(make: Callable[[Any], str], values: Sequence[Any]) -> pa.Array:
    return pa.array([None if value is None else make(value) for value in values], pa.string())


def _clock(micros: int) -> str:
    sign, rest = ("-", -micros) if micros < 0 else ("", micros)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    text = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _interval(value: Any) -> str:
    months, days, nanos = value
    parts = [f"{months} mons"] * bool(months) + [f"{days} days"] * bool(days)
    return " ".join([*parts, _clock(nanos // 1000)] if nanos or not parts else parts)


def _listed(column: pa.Array) -> Iterator[list[str | None] | None]:
    """Each list as the texts of its elements."""
    elements = _texts(column.flatten()).to_pylist()
    at = 0
    for length in pc.list_value_length(column).to_pylist():
        if length is None:
            yield None
        else:
            yield elements[at : at + length]
            at += length


def _array(elements: list[str | None]) -> str:
    quoted = [
        "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for text in elements
    ]
    return "{" + ",".join(quoted) + "}"


def _binary(column: pa.Array) -> pa.Array:
    kind, valid = column.type, column.is_valid()
    if pa.types.is_timestamp(kind):
        micros = column.cast(pa.timestamp("us")).cast(pa.int64())
        return _shifted(micros, ">i8", valid, -MICROS_TO_2000, INFINITE)
    if pa.types.is_date(kind):
        days = column.cast(pa.date32()).cast(pa.int32())
        return _shifted(days, ">i4", valid, -DAYS_TO_2000, INFINITE_DAY)
    if pa.types.is_time(kind):
        return _numbers(column.cast(pa.time64("us")).cast(pa.int64()), ">i8", valid)
    if pa.types.is_boolean(kind):
        return _numbers(column.cast(pa.int8()), ">i1", valid)
    if pa.types.is_float64(kind):
        return _numbers(column, ">f8", valid)
    if pa.types.is_floating(kind):
        return _numbers(column.cast(pa.float32()), ">f4", valid)
    pg = type_of(kind)
    if pg in (INT2, INT4, INT8):
        return _numbers(column, f">i{pg.size}", valid)
    if pg == NUMERIC:
        return _made(lambda value: _numeric(Decimal(value)), column.to_pylist())
    if pa.types.is_duration(kind):
        micros = column.cast(pa.duration("us")).cast(pa.int64()).to_pylist()
        return _made(lambda value: struct.pack("!qii", value, 0, 0), micros)
    if pa.types.is_interval(kind):
        return _made(
            lambda value: struct.pack("!qii", value[2] // 1000, value[1], value[0]), column.to_pylist()
        )
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _binary_arrays(column)
    return _texts(column).cast(pa.binary())


def _shifted(column: pa.Array, form: str, valid: pa.Array, shift: int, infinite: int) -> pa.Array:
    """Times counted from another day; the infinite ones are the greatest and the least number."""
    shifted = pc.add(column, pa.scalar(shift, column.type))
    low, high = pa.scalar(-infinite - 1, column.type), pa.scalar(infinite, column.type)
    shifted = pc.if_else(pc.equal(column, high), high, shifted)
    return _numbers(
        pc.if_else(pc.equal(column, pa.scalar(-infinite, column.type)), low, shifted), form, valid
    )


def _numbers(column: pa.Array, form: str, valid: pa.Array, shift: int = 0) -> pa.Array:
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return pc.if_else(
        valid, _fixed((values + shift if shift else values).astype(form)), pa.scalar(None, pa.binary())
    )


def _made(make: Callable[[Any], bytes], values: Sequence[Any]) -> pa.Array:
    return pa.array([None if value is None else make(value) for value in values], pa.binary())


def _numeric(value: Decimal) -> bytes:
    """Digits of base 10,000, where the first belongs, the sign, and how many decimals are shown."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return struct.pack("!hhHh", 0, 0, 0xC000, 0)
    scale = max(0, -exponent)
    text = "".join(map(str, digits)) + "0" * max(0, exponent)
    text += "0" * (-scale % 4)
    text = text.rjust(-(-len(text) // 4) * 4, "0")
    groups = [int(text[at : at + 4]) for at in range(0, len(text), 4)]
    weight = len(groups) - -(-scale // 4) - 1
    if not any(groups):
        groups = []
    return struct.pack(
        f"!hhHh{len(groups)}h", len(groups), weight if groups else 0, 0x4000 if sign else 0, scale, *groups
    )


def _binary_arrays(column: pa.Array) -> pa.Array:
    element = type_of(column.type.value_type)
    cells = _binary(column.flatten()).to_pylist()
    rows, at = list[bytes | None](), 0
    for length in pc.list_value_length(column).to_pylist():
        if length is None:
            rows.append(None)
            continue
        values, at = cells[at : at + length], at + length
        shape = struct.pack("!ii", length, 1) if length else b""
        head = struct.pack("!iiI", 1 if length else 0, int(None in values), element.oid) + shape
        rows.append(head + b"".join(_sized(value) for value in values))
    return pa.array(rows, pa.binary())


def _sized(value: bytes | None) -> bytes:
    return struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
