"""Rendering of Arrow tables as CSV, JSON lines, Parquet, HTML, or aligned text for people; also their values as Python
objects. Nothing is written to a file here.

Timestamps `2023-11-14T22:13:20Z`, years after 9999 and before 0000 with a sign, doubles as Python's repr, NULL empty in
CSV and null in JSON; UTF-8, LF.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from html import escape
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.errors import UserError, did_you_mean
from headrace.operators.base.group_codes import flat
from headrace.time import EPOCH, render_date, render_instant

FORMATS: Final = ("table", "csv", "json", "parquet")
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {9: "\\t", 10: "\\n", 13: "\\r"}
_SLICE: Final = 100_000
_MUST_QUOTE: Final = frozenset(',"\n\r')


def render(table: pa.Table, style: str) -> bytes:
    """A table in one of `FORMATS`.

    Raises `UserError` for another one.
    """
    if style not in FORMATS:
        raise UserError(f"there is no format '{style}'", remedy=did_you_mean(style, FORMATS))
    if style == "parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415 - only where it is used

        out = pa.BufferOutputStream()
        pq.write_table(table, out)
        return bytes(out.getvalue())
    write: Callable[[pa.Table], str] = {"csv": to_csv, "json": to_json, "table": to_text}[style]
    return write(table).encode()


def rendered(table: pa.Table, style: str) -> Iterator[bytes]:
    """The same as `render`, of csv and json some rows at a time, so that the text of all need not be in memory."""
    if style not in ("csv", "json") or table.num_rows <= _SLICE:
        yield render(table, style)
        return
    for start in range(0, table.num_rows, _SLICE):
        part = table.slice(start, _SLICE)
        yield (to_csv(part, header=not start) if style == "csv" else to_json(part)).encode()


def render_interval(microseconds: int) -> str:
    """`INTERVAL '0 00:01:00' DAY TO SECOND`, as Spark shows it."""
    sign, rest = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    seconds, micros = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    return f"INTERVAL '{sign}{day} {hour:02d}:{minute:02d}:{second:02d}{fraction}' DAY TO SECOND"


# ------------------------------------------------------------------------------------------------------ cells


def _cells(column: pa.ChunkedArray) -> list[Any]:
    """Python values of a column: timestamps and intervals as text, FLOAT as the shortest double that reads the same."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _map_valid(render_instant, column.cast(pa.int64()).to_pylist())
    if pa.types.is_date32(kind):
        return _map_valid(render_date, column.cast(pa.int32()).to_pylist())
    if pa.types.is_duration(kind):
        return _map_valid(render_interval, column.cast(pa.int64()).to_pylist())
    if pa.types.is_float32(kind):
        shortest = flat(column).to_numpy(zero_copy_only=False).astype(np.float32)
        valid = flat(column).is_valid().to_pylist()
        return [float(str(value)) if there else None for value, there in zip(shortest, valid, strict=True)]
    return python_values(column)


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """A table's rows as Python values; dates and timestamps beyond Python's range are text."""
    columns = [python_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """A column's values in Python; dates and timestamps beyond Python's range are text."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_python_value(value) for value in column]


def _python_value(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        return {name: _python_value(inner) for name, inner in value.items()}
    if isinstance(value, pa.ListScalar):
        return [_python_value(inner) for inner in value.values]
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return render_date(value.value) if pa.types.is_date32(value.type) else render_instant(value.value)


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """A column's cells as a CSV cell or a table shows them; NULL stays None."""
    kind, values = column.type, _cells(column)
    if pa.types.is_boolean(kind):
        return _map_valid(_boolean, values)
    if pa.types.is_floating(kind):
        return _map_valid(_double, values)
    if pa.types.is_integer(kind):
        return _map_valid(str, values)
    if pa.types.is_string(kind) or pa.types.is_temporal(kind):
        return values
    return _map_valid(_text, values)


def _map_valid(make: Callable[[Any], str], values: Iterable[Any]) -> list[Any]:
    return [None if value is None else make(value) for value in values]


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _double(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _text(value: Any) -> str:
    match value:
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case datetime():
            return _instant(value)
        case date():
            return value.isoformat()
        case dict() | list():
            return _json(value)
    return str(value)


def _instant(value: datetime) -> str:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return render_instant((aware - EPOCH) // timedelta(microseconds=1))


# ------------------------------------------------------------------------------------------------------ csv


def to_csv(table: pa.Table, *, header: bool = True) -> str:
    """RFC 4180 with LF: a header, NULL empty, the empty string `""`."""
    lines = [",".join(map(_csv_cell, table.column_names))] if header else []
    columns = [list(map(_csv_cell, _texts(column))) for column in table.columns]
    lines += map(",".join, zip(*columns, strict=True))
    return "".join(f"{line}\n" for line in lines)


def _csv_cell(text: str | None) -> str:
    if text is None:
        return ""
    if not text or not _MUST_QUOTE.isdisjoint(text):
        return '"' + text.replace('"', '""') + '"'
    return text


# ------------------------------------------------------------------------------------------------------ json


def to_json(table: pa.Table) -> str:
    """One object a line; nulls are kept, decimals are numbers at their scale, NaN and infinities strings."""
    names = [_json(name) for name in table.column_names]
    columns = [list(map(_json, _cells(column))) for column in table.columns]
    return "".join(
        "{" + ",".join(f"{name}:{cell}" for name, cell in zip(names, row, strict=True)) + "}\n"
        for row in zip(*columns, strict=True)
    )


def _json(value: Any) -> str:
    match value:
        case float():
            return repr(value) if math.isfinite(value) else f'"{_double(value)}"'
        case Decimal():
            return f"{value:f}"
        case date() | bytes() | timedelta():
            return json.dumps(_text(value))
        case dict():
            return "{" + ",".join(f"{_json(key)}:{_json(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# ------------------------------------------------------------------------------------------------------ tables


_LONGEST_SHOWN: Final = 4_000
"""Characters of one value in a table; all other formats have the whole value."""


def to_text(table: pa.Table, limit: int | None = None) -> str:
    """A table for people: aligned columns, numbers to the right, NULL spelled out, very long values cut; at most `limit` rows."""
    shown = table if limit is None else table.slice(0, limit)
    columns = [
        ["NULL" if text is None else _printable(text) for text in _texts(column)] for column in shown.columns
    ]
    names = [_printable(name) for name in table.column_names]
    widths = [max([len(name), *map(len, column)]) for name, column in zip(names, columns, strict=True)]
    right = [_is_number(field.type) for field in table.schema]
    lines = [_line(names, widths, right), "  ".join("─" * width for width in widths)]
    lines += [_line(row, widths, right) for row in zip(*columns, strict=True)]
    more = table.num_rows - shown.num_rows
    count = f"({table.num_rows:,} row{'' if table.num_rows == 1 else 's'}{f', {more:,} not shown' if more else ''})"
    return "\n".join([*(line.rstrip() for line in lines), count]) + "\n"


def to_html(table: pa.Table, caption: str, limit: int = 50) -> str:
    """A table as HTML, with a caption: values as in `to_text`, and nothing in them is markup; at most `limit` rows."""
    shown = table.slice(0, limit)
    heads = "".join(f"<th>{escape(_printable(name))}</th>" for name in table.column_names)
    columns = [
        [f"<td>{'NULL' if text is None else escape(_printable(text))}</td>" for text in _texts(column)]
        for column in shown.columns
    ]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))
    more = table.num_rows - shown.num_rows
    count = (
        f"{table.num_rows:,} row{'' if table.num_rows == 1 else 's'}{f', {more:,} not shown' if more else ''}"
    )
    title = f"<caption>{escape(_printable(caption))} ({count})</caption>"
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _printable(text: str) -> str:
    """Without characters that would break the table or move the terminal's cursor, cut after a few thousand characters."""
    if len(text) > _LONGEST_SHOWN:
        return f"{_printable(text[:_LONGEST_SHOWN])}… ({len(text) - _LONGEST_SHOWN:,} characters more)"
    return text.translate(_CONTROL)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _line(cells: Iterable[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = zip(cells, widths, right, strict=True)
    return "  ".join(cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in parts)
