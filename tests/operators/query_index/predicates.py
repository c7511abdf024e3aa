"""Generated predicates and batches of every type that has an order, with NULL, NaN, extremes and ties."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Expression
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.operators.query_index.matching.prepare import Failed
from headrace.operators.scalar import Evaluation
from headrace.schema import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Field,
    Schema,
    decimal,
)

SCHEMA = Schema(
    (
        Field("t", TINYINT),
        Field("i", INT),
        Field("b", BIGINT),
        Field("f", FLOAT),
        Field("d", DOUBLE),
        Field("m", decimal(10, 2)),
        Field("w", decimal(38, 4)),
        Field("s", STRING),
        Field("r", BINARY),
        Field("day", DATE),
        Field("at", TIMESTAMP),
        Field("ok", BOOLEAN),
    )
)

VALUES: dict[str, list[object]] = {
    "t": [-128, -1, 0, 1, 5, 127],
    "i": [-(2**31), -7, 0, 1, 2, 3, 5, 2**31 - 1],
    "b": [-(2**63), -1, 0, 5, 2**53, 2**53 + 1, 2**63 - 1],
    "f": [float("-inf"), -1.5, -0.0, 0.0, 0.1, 2.5, float("inf"), float("nan")],
    "d": [float("-inf"), -5e-324, -0.0, 0.0, 0.1, 2.5, 2.0**53, float("inf"), float("nan")],
    "m": [Decimal("-99999999.99"), Decimal("0.00"), Decimal("2.50"), Decimal("2.51"), Decimal("99999999.99")],
    "w": [
        Decimal(-(10**34) + 1),
        Decimal("-0.0001"),
        Decimal("0.0000"),
        Decimal("2.5000"),
        Decimal(10**34 - 1),
    ],
    "s": ["", "a", "ab", "ab\x00", "ab%", "abc", "ac", "ÿ", "\U0010ffff"],
    "r": [b"", b"a", b"a\x00", b"\xff", b"\xff\xff"],
    "day": [date(1, 1, 1), date(1969, 12, 31), date(2020, 2, 29), date(9999, 12, 31)],
    "at": [-1, 0, 1_582_934_400_000_000, 1_582_934_400_000_001],
    "ok": [True, False],
}

CONSTANTS: dict[str, list[str]] = {
    "t": ["-128", "0", "5", "127", "300", "2.5", "-0.5D"],
    "i": ["-7", "0", "2", "2147483647", "2147483648", "2.5", "1.5D", "CAST('NaN' AS DOUBLE)", "'5'"],
    "b": ["5", "9007199254740993", "9223372036854775807", "-9223372036854775808", "2.5", "9007199254740992D"],
    "f": ["0.1", "0.1D", "CAST(0.1 AS FLOAT)", "0", "CAST('NaN' AS FLOAT)", "CAST('-Infinity' AS DOUBLE)"],
    "d": ["0.1", "-0.0D", "0", "2.5", "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"],
    "m": ["0", "2.5", "2.505", "99999999.99", "1e3", "123456789012.5"],
    "w": ["0", "2.5", "-0.00005", "9999999999999999999999999999999999.0001"],
    "s": ["''", "'a'", "'ab'", "'abc'", "'zz'"],
    "r": ["X''", "X'61'", "X'FF'"],
    "day": ["DATE '2020-02-29'", "DATE '0001-01-01'", "'1970-01-01'"],
    "at": ["TIMESTAMP '2020-02-29 00:00:00'", "TIMESTAMP '1970-01-01 00:00:00'"],
    "ok": ["TRUE", "FALSE"],
}

NAMES = sorted(VALUES)


def _comparison(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(NAMES))
    value = st.sampled_from(CONSTANTS[name])
    match draw(st.integers(0, 7)):
        case 0:
            return f"{name} IN ({', '.join(draw(st.lists(value, min_size=1, max_size=4)))})"
        case 1:
            return f"{name} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(value)} AND {draw(value)}"
        case 2:
            return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 3:
            return f"{draw(value)} {draw(st.sampled_from(['<', '=', '>=']))} {name}"
        case 4 | 5:
            return _of_two(draw)
        case _:
            symbol = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
            return f"{name} {symbol} {draw(value)}"


def _of_two(draw: st.DrawFn) -> str:
    """Comparisons of two attributes, integers with constants: sums and differences may overflow, and doubles round."""
    symbol = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
    if not draw(st.integers(0, 4)):
        return f"{draw(st.sampled_from('fd'))} {symbol} d + {draw(st.sampled_from(CONSTANTS['d'][:4]))}"
    added = [
        "",
        " + 1",
        " - 3",
        " + 127Y",
        " + 2147483647",
        " - 2147483640",
        " + 9223372036854775806",
        " - CAST('NaN' AS DOUBLE)",
    ]
    left, right = (draw(st.sampled_from("tib")) + draw(st.sampled_from(added)) for _ in range(2))
    return f"{left} {symbol} {right}" if draw(st.booleans()) else f"5 + {left} {symbol} {right}"


OTHERS = [
    *(
        "s LIKE 'a%'",
        "s LIKE 'ab\\%'",
        "s LIKE '%b'",
        "s LIKE ''",
        "s LIKE '%'",
        "s NOT LIKE 'a_'",
        "ok",
        "NOT ok",
    ),
    *(
        "lower(s) = 'ab'",
        "d * 2 > 1",
        "i + t > 3",
        "i + 2147483647 > 5",
        "10 / i > 1",
        "i > t",
        "b = i",
        "TRUE",
    ),
    *(
        "FALSE",
        "i = NULL",
        "length(s) > 1",
        "CAST(s AS INT) > 3",
        "10 / t < 5",
        "f < d",
        "startswith(s, 'ab')",
    ),
]


@st.composite
def texts(draw: st.DrawFn, depth: int = 2) -> str:
    """A predicate as a user writes it."""
    kind = draw(st.integers(0, 9)) if depth else 0
    if kind < 5:
        return _comparison(draw) if draw(st.integers(0, 3)) else draw(st.sampled_from(OTHERS))
    inner = [draw(texts(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    if kind == 5:
        return f"NOT ({inner[0]})"
    return "(" + (" AND " if kind < 9 else " OR ").join(f"({one})" for one in inner) + ")"


def bound(text: str) -> Expression:
    return bind_expression(text, SCHEMA)


@st.composite
def batches(draw: st.DrawFn, most: int = 150) -> dict[str, pa.Array]:
    """Columns of one length; sometimes longer than a word of 64 rows."""
    rows = draw(st.integers(0, most))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    columns = {}
    for field in SCHEMA.arrow():
        known = VALUES[field.name]
        nulls = draw(st.sampled_from([0.0, 0.1, 1.0]))
        picks = rng.integers(0, len(known), rows)
        gone = rng.random(rows) < nulls
        values = [None if out else known[pick] for pick, out in zip(picks, gone, strict=True)]
        columns[field.name] = pa.array(values, field.type)
    return columns


def brute(predicate: Expression | None, columns: dict[str, pa.Array]) -> tuple[np.ndarray, Failed]:
    """The rows wanted and the rows failed, by evaluating the predicate on every row."""
    rows = len(columns["i"])
    if predicate is None:
        return np.ones(rows, bool), Failed(np.empty(0, np.int64), ())
    evaluation = Evaluation(columns, rows)
    mask, errors = evaluation.mask(predicate), evaluation.errors
    if errors is None:
        return mask, Failed(np.empty(0, np.int64), ())
    failed = np.flatnonzero(errors.mask)
    return mask & ~errors.mask, Failed(failed, tuple(errors.reasons[row] for row in failed.tolist()))
