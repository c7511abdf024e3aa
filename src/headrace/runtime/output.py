"""Answers as text and files: csv, json, parquet and tables for people, to the last byte of the contract.

Timestamps `2023-11-14T22:13:20Z`, doubles as Python's repr, NULL empty in CSV and null in JSON; UTF-8, LF.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import UserError, did_you_mean
from headrace.time import render_instant

FORMATS: Final = ("table", "csv", "json", "parquet")


def render(table: pa.Table, style: str) -> bytes:
    """A table in one of `FORMATS`."""
    if style not in FORMATS:
        raise UserError(f"there is no format '{style}'", remedy=did_you_mean(style, FORMATS))
    if style == "parquet":
        out = pa.BufferOutputStream()
        pq.write_table(table, out)
        return out.getvalue().to_pybytes()
    write: Callable[[pa.Table], str] = {"csv": to_csv, "json": to_json, "table": to_text}[style]
    return write(table).encode()


def extension(style: str) -> str:
    """The file ending of a format."""
    return "txt" if style == "table" else style


def _cells(table: pa.Table) -> list[list[Any]]:
    return [_plain(table.column(place), table.schema.field(place).type) for place in range(table.num_columns)]


def _plain(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    """Python values; timestamps as text, doubles as floats."""
    if pa.types.is_timestamp(kind):
        return [None if value is None else render_instant(value) for value in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_duration(kind):
        return [None if value is None else render_interval(value) for value in column.cast(pa.int64()).to_pylist()]
    return column.to_pylist()


def render_interval(microseconds: int) -> str:
    """`INTERVAL '0 00:01:00' DAY TO SECOND`, as Spark shows it."""
    sign, rest = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    seconds, micros = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    return f"INTERVAL '{sign}{day} {hour:02d}:{minute:02d}:{second:02d}{fraction}' DAY TO SECOND"


def _text(value: Any) -> str:
    """A value as a person or a CSV cell shows it (NULL is the caller's)."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _double(value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case date():
            return value.isoformat()
        case dict() | list():
            return json.dumps(_jsonable(value), ensure_ascii=False, separators=(",", ":"))
    return str(value)


def _double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def to_csv(table: pa.Table) -> str:
    """RFC 4180 with LF: a header, NULL empty, the empty string `""`."""
    lines = [",".join(_csv_cell(name) for name in table.column_names)]
    lines += [",".join(_csv_cell(value) for value in row) for row in zip(*_cells(table), strict=True)]
    return "\n".join(lines) + "\n"


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = _text(value)
    if text == "" or any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def to_json(table: pa.Table) -> str:
    """One object a line; nulls are kept, NaN and infinities are strings."""
    names = table.column_names
    out = io.StringIO()
    for row in zip(*_cells(table), strict=True):
        out.write(json.dumps(dict(zip(names, map(_jsonable, row), strict=True)), ensure_ascii=False, separators=(",", ":")))
        out.write("\n")
    return out.getvalue()


def _jsonable(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return _double(value)
        case Decimal() | date() | bytes():
            return _text(value)
        case dict():
            return {key: _jsonable(inner) for key, inner in value.items()}
        case list():
            return [_jsonable(inner) for inner in value]
    return value


def to_text(table: pa.Table, limit: int | None = None) -> str:
    """A table for people: aligned columns, numbers to the right, NULL spelled out; at most `limit` rows."""
    shown = table if limit is None or table.num_rows <= limit else table.slice(0, limit)
    columns = [["NULL" if value is None else _text(value) for value in column] for column in _cells(shown)]
    names = list(table.column_names)
    widths = [max([len(name), *map(len, column)]) for name, column in zip(names, columns, strict=True)]
    right = [_is_number(table.schema.field(place).type) for place in range(len(names))]
    lines = [_line(names, widths, [False] * len(names)), "  ".join("─" * width for width in widths)]
    lines += [_line(row, widths, right) for row in zip(*columns, strict=True)]
    more = table.num_rows - shown.num_rows
    count = f"({table.num_rows} row{'' if table.num_rows == 1 else 's'}{f', {more} not shown' if more else ''})"
    return "\n".join([*(line.rstrip() for line in lines), count]) + "\n"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _line(cells: Iterable[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = zip(cells, widths, right, strict=True)
    return "  ".join(cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in parts)
