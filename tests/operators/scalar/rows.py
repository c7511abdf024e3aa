"""A table of values that break things: one column per type, values drawn by a fixed seed, each value at least once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Field,
    Schema,
    Type,
    decimal,
    to_arrow,
)

_NAN, _INF = float("nan"), float("inf")

_BIGINTS = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    7,
    10,
    -10,
    1000,
    2**31,
    -(2**31) - 1,
    2**53 + 1,
    2**62,
    2**63 - 1,
    -(2**63),
    None,
]
_INTS = [0, 1, -1, 2, -3, 5, 12, 45, 100, -155, 2**31 - 1, -(2**31), None]
_DOUBLES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 2.675, 1.005, -3.7, 1e-4, 123456.789, 1e7, 3e9, -3e9, 1e15 + 0.5,
    2.0**53, 2.0**63, -(2.0**63), 1e19, 1e38, 1e300, -1e300, 5e-324, _NAN, _INF, -_INF, None,
]  # fmt: skip
_FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 16777216.0, 2.0**31, 2.0**63, 3e38, 1e-3, _NAN, _INF, -_INF, None]
_TEXTS = [
    "", " ", "a", "A", "abc", "ABC abc", "headrace", " pad ", "ß", "é", "Éa", "añ😀b", "日本語 テキスト", "aXbXc", "a.b.c", "%", "_", "a_c",
    "a%c", "\\", "line\nbreak", "tab\there", "0", "1", "true", "x-12 y-345", "ÀÉ çà", "hEAD-race dAY", None,
]  # fmt: skip
NUMBER_TEXTS = [
    "0", "1", "-1", "+12", " 12 ", "\t7\n", "007", "1.5", "-0.5", ".5", "5.", "1e3", "1E-2", "nan", "NaN", "-NaN", "inf", "+Infinity",
    "-inf", "1d", "2.5F", "0x1p3", "1e400", "1_000", "", " ", "abc", "12a", "- 1", "--1", "2147483648", "-2147483648", "128", "300",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "00000000000000000000000005", "99999999.99", "1.005", "-1.005",
    "123456789.125", "1e50", "0e50", "true", "TRUE ", "t", "yes", "n", "on", "12345678901234567890123456789012345678901", None,
]  # fmt: skip
TIME_TEXTS = [
    "2024-02-29", "2023-02-29", "2024-2-9", "2024-02", "2024", "20240229", "+2024-01-01", "-0044-03-15", "12024-01-01", "1969-12-31",
    " 2024-01-01 ", "2024-01-01 ", "2024-01-01T", "2024-01-01 12", "2024-01-01 12:30", "2024-01-01T12:30:15", "2024-01-01 12:30:15.",
    "2024-01-01 12:30:15.1", "2024-01-01 12:30:15.123456", "2024-01-01 12:30:15.1234567", "2024-01-01 12:30Z", "2024-01-01 12:30:15Z",
    "2024-01-01 12:30:15 Z", "2024-01-01 12:30:15z", "2024-01-01 12:30:15+01:00", "2024-01-01 12:30:15-1:30", "2024-01-01 12:30:15+0130",
    "2024-01-01 12:30:15+01:30:10", "2024-01-01 12:30:15UTC+1", "2024-01-01 12:30:15 GMT-01:00", "2024-07-01 12:30:15 Europe/Paris",
    "2024-01-01 12:30:15PST", "2024-01-01 12:30:15 EST", "2024-01-01 12:30:15+18:00", "2024-01-01 12:30:15+19:00", "2024-01-01 24:00:00",
    "2024-01-01 12:60:00", "2024-01-01 12:30:60", "2024-01-01 1:2:3", "2024-13-01", "2024-00-10", "2024-01-32", "2024-01-01abc",
    "2024-01-01 abc", "2024-01-01Tabc", "294247-01-10 04:00:54.775807", "294247-01-10 04:00:54.775808", "9999999-01-01", "", "x", "0000-01-01",
    "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2024-01-01 12:30:15 Nowhere/City", None,
]  # fmt: skip
_DAYS = [
    date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(2023, 2, 28), date(2000, 12, 31), date(1900, 1, 1), date(1, 1, 1),
    date(9999, 12, 31), date(2024, 12, 30), date(2021, 1, 3), date(1582, 10, 10), 3_000_000, -1_000_000, None,
]  # fmt: skip
_INSTANTS = [
    0, 1, -1, 999_999, -999_999, 1_700_000_000_123_456, 1_709_210_655_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999,
    -77_000_000_000_000_000, 400_000_000_000_000_000, 951_827_696_500_000, 10**18, 2**63 - 1, None,
]  # fmt: skip
_SPANS = [0, 1, -1, 3, 86_400_000_000, -3_600_000_000, 10**17, 2**63 - 1, -(2**63) + 1, None]
_DECIMALS = [
    "0",
    "0.01",
    "-0.01",
    "1.00",
    "-1.50",
    "2.50",
    "99999999.99",
    "-99999999.99",
    "12.34",
    "7.00",
    "0.05",
    None,
]
_WIDE = [
    "0",
    "1",
    "-1",
    "0.5",
    "99999999999999999999.999999999999999999",
    "-12345678901234567890.123456789012345678",
    "3",
    "1e-18",
    None,
]
_NARROW = ["0", "1.5", "-2.5", "9.9", "-9.9", None]

ROWS = 300

COLUMNS: dict[str, tuple[Type, Sequence[Any]]] = {
    "r": (BIGINT, range(ROWS)),
    "b": (BOOLEAN, [True, False, None]),
    "c": (BOOLEAN, [True, False, None]),
    "t": (TINYINT, [0, 1, -1, 5, 127, -128, None]),
    "h": (SMALLINT, [0, 1, -7, 300, 32767, -32768, None]),
    "i": (INT, _INTS),
    "j": (INT, _INTS),
    "k": (INT, [0, 1, 2, 3, -1, -2, 4, 7, 100, None]),
    "l": (BIGINT, _BIGINTS),
    "m": (BIGINT, _BIGINTS),
    "f": (FLOAT, _FLOATS),
    "d": (DOUBLE, _DOUBLES),
    "e": (DOUBLE, _DOUBLES),
    "p": (decimal(10, 2), [None if text is None else Decimal(text) for text in _DECIMALS]),
    "q": (decimal(2, 1), [None if text is None else Decimal(text) for text in _NARROW]),
    "w": (decimal(38, 18), [None if text is None else Decimal(text) for text in _WIDE]),
    "s": (STRING, _TEXTS),
    "u": (STRING, _TEXTS),
    "n": (STRING, NUMBER_TEXTS),
    "z": (STRING, TIME_TEXTS),
    "y": (DATE, _DAYS),
    "x": (DATE, _DAYS),
    "at": (TIMESTAMP, _INSTANTS),
    "ts": (TIMESTAMP, _INSTANTS),
    "v": (INTERVAL, _SPANS),
    "o": (INTERVAL, _SPANS),
}
SCHEMA = Schema(tuple(Field(name, kind) for name, (kind, _) in COLUMNS.items()))


def table() -> pa.Table:
    """The same rows each time: every value of a column once, then drawn ones, in an order of its own."""
    drawn = random.Random(20_240_229)
    arrays = []
    for kind, values in COLUMNS.values():
        cells = [*values, *drawn.choices(values, k=ROWS - len(values))]
        drawn.shuffle(cells)
        arrays.append(_array(cells, kind))
    return pa.table(arrays, schema=SCHEMA.arrow())


def _array(cells: list[Any], kind: Type) -> pa.Array:
    if kind == DATE:
        days = [(cell - date(1970, 1, 1)).days if isinstance(cell, date) else cell for cell in cells]
        return pa.array(days, pa.int32()).cast(pa.date32())
    if kind in (TIMESTAMP, INTERVAL):
        return pa.array(cells, pa.int64()).cast(to_arrow(kind))
    return pa.array(cells, to_arrow(kind))
