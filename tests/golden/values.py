"""Values of golden cases: rows of CSV with NULL spelled out, their types, and equality but for rounding."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv as arrow_csv

ROUNDING: Final = 1e-9
_CELL: Final = re.compile(r'("(?:[^"]|"")*"|[^,\n]*)(,|\n|$)')
_AT: Final = re.compile(r"(?<![^,\n])@(-?\d+(?:\.\d+)?)(?![^,\n])")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ARROW: Final[dict[str, Callable[[], pa.DataType]]] = {
    "BOOLEAN": pa.bool_,
    "TINYINT": pa.int8,
    "SMALLINT": pa.int16,
    "INT": pa.int32,
    "BIGINT": pa.int64,
    "FLOAT": pa.float32,
    "DOUBLE": pa.float64,
    "STRING": pa.string,
    "DATE": pa.date32,
    "TIMESTAMP": lambda: pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": lambda: pa.timestamp("us"),
}

Cells = tuple[str, ...]


def cells(text: str) -> list[Cells]:
    """The rows of a CSV text, each cell as it is written; an empty one as `NULL`, the string of that name quoted."""
    rows, row, at = list[Cells](), list[str](), 0
    while at < len(text):
        match = _CELL.match(text, at)
        assert match is not None, f"a quote is open: {text[at:]}"
        row.append(match[1] or "NULL")
        at = match.end()
        if match[2] != ",":
            rows.append(tuple(row))
            row = []
        elif at == len(text):
            rows.append((*row, "NULL"))
    return rows


def printed(text: str) -> list[str]:
    """The lines of a CSV text below its header, as a case shows them."""
    quoted = re.sub(r"(?<![^,\n])NULL(?![^,\n])", '"NULL"', text)
    return [",".join(row) for row in cells(quoted)[1:]]


def letters(schema: pa.Schema) -> str:
    """A letter for each column: Boolean, Date, Integer, timestamP, Real or decimal, Text, ? for others."""
    return "".join(_letter(field.type) for field in schema)


def _letter(kind: pa.DataType) -> str:
    tests: dict[str, Callable[[Any], bool]] = {
        "B": pa.types.is_boolean,
        "I": pa.types.is_integer,
        "R": lambda kind: pa.types.is_floating(kind) or pa.types.is_decimal(kind),
        "T": pa.types.is_string,
        "D": pa.types.is_date,
        "P": pa.types.is_timestamp,
    }
    return next((letter for letter, test in tests.items() if test(kind)), "?")


def same_types(written: str, answered: str) -> bool:
    """Whether the types of a case are those of an answer; `?` is any."""
    return len(written) == len(answered) and all(
        a in ("?", b) for a, b in zip(written, answered, strict=True)
    )


def same_rows(expected: Sequence[str], answered: Sequence[str], types: str, *, sort: bool) -> bool:
    """Whether rows are equal: texts to the letter, columns of type R within `ROUNDING`."""
    left, right = cells("\n".join(expected)), cells("\n".join(answered))
    if sort:
        left, right = sorted(left, key=_coarse), sorted(right, key=_coarse)
    return len(left) == len(right) and all(
        len(a) == len(b) == len(types) and all(map(_same, a, b, types))
        for a, b in zip(left, right, strict=True)
    )


def _same(a: str, b: str, kind: str) -> bool:
    if a == b:
        return True
    if kind != "R" or "NULL" in (a, b):
        return False
    try:
        one, other = float(a), float(b)
    except ValueError:
        return False
    return one != 0 and math.isclose(one, other, rel_tol=ROUNDING)  # 0.0 and -0.0 are two texts


def _coarse(row: Cells) -> Cells:
    """A key under which doubles that differ by rounding are neighbours."""
    return tuple(
        f"{float(cell):.7g}" if re.fullmatch(r"-?\d+\.\d+(e[-+]?\d+)?", cell) else cell for cell in row
    )


def instant(text: str) -> datetime:
    """A point in time: `@12.5` is seconds since 1970, everything else ISO 8601, in UTC without a zone."""
    if match := _AT.fullmatch(text):
        return _EPOCH + timedelta(seconds=float(match[1]))
    read = datetime.fromisoformat(text)
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


def spelled(text: str) -> str:
    """A CSV text with every cell like `@12.5` as a timestamp."""
    return _AT.sub(lambda match: instant(match[0]).replace(tzinfo=None).isoformat() + "Z", text)


def table(lines: Sequence[str], columns: dict[str, str]) -> pa.Table:
    """Rows of a stream with these columns and SQL types; the first line may be a header, columns it leaves out are NULL.

    An empty cell and `NULL` are NULL, `""` is the empty string.
    """
    first = next(csv.reader(lines[:1]), [])
    header = bool(first) and set(first) <= set(columns)
    names = first if header else list(columns)
    body = "\n".join(lines[header:]) + "\n"
    options = arrow_csv.ConvertOptions(
        column_types={name: arrow_type(columns[name]) for name in names},
        null_values=["", "NULL"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    reading = arrow_csv.ReadOptions(column_names=names)
    parsing = arrow_csv.ParseOptions(newlines_in_values=True)
    if not body.strip():
        return pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()]).empty_table()
    parsed = arrow_csv.read_csv(io.BytesIO(spelled(body).encode()), reading, parsing, options)
    return pa.table(
        {
            name: parsed[name] if name in names else pa.nulls(parsed.num_rows, arrow_type(kind))
            for name, kind in columns.items()
        }
    )


def arrow_type(sql: str) -> pa.DataType:
    """The Arrow type of an SQL type."""
    if match := re.fullmatch(r"DECIMAL\((\d+), *(\d+)\)", sql):
        return pa.decimal128(int(match[1]), int(match[2]))
    if sql not in _ARROW:
        raise ValueError(f"rows of a case cannot have columns of type {sql}")
    return _ARROW[sql]()
