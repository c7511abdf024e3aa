"""Cells: a text means the same value whatever is around it, and the same as to Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.formats.text_values import convert
from headrace.connectors.records.options import text_options
from headrace.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    decimal,
)

KINDS = [BOOLEAN, TINYINT, INT, BIGINT, FLOAT, DOUBLE, decimal(5, 2), DATE, TIMESTAMP, TIMESTAMP_NTZ]
OPTIONS = text_options({})
TEXT = st.one_of(
    st.text("0123456789", min_size=1, max_size=20),
    st.text("0123456789+-.:TZ eExXinfa/_", max_size=12),
    st.from_regex(r"[+-]?[0-9]{1,6}(\.[0-9]{0,4})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.from_regex(r"(19|20)[0-9]{2}-[0-1]?[0-9]-[0-3]?[0-9]([T ][0-2]?[0-9](:[0-6]?[0-9](:[0-6]?[0-9](\.[0-9]{0,9})?)?)?)?"
                  r"(Z|[+-][0-2][0-9](:?[0-6][0-9])?)?", fullmatch=True),
    st.datetimes().map(lambda at: at.isoformat(sep=" ")),
    st.datetimes().map(lambda at: at.isoformat() + "Z"),
    st.sampled_from(["true", "FALSE", "1", "0", "nan", "NaN", "Infinity", "-inf", "INF", "t", "", " 1", "1 ", "٣"]),
)  # fmt: skip


def alone(text: str, kind) -> object:
    values, failed = convert(pa.array([text]), kind, OPTIONS)
    return "failed" if failed is not None else values[0].as_py()


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(st.lists(TEXT, min_size=1, max_size=8))
def test_a_cell_means_the_same_whatever_stands_around_it(kind, texts: list[str]) -> None:
    values, failed = convert(pa.array([*texts, "no such thing"]), kind, OPTIONS)
    assert failed is not None
    together = [
        "failed" if bad else value for value, bad in zip(values.to_pylist(), failed.to_pylist(), strict=True)
    ]
    assert repr(together) == repr([*(alone(text, kind) for text in texts), "failed"])


@given(st.integers(1, 600), st.sets(st.integers(0, 599), max_size=5))
def test_bad_cells_are_found_wherever_they_stand_in_a_long_column(length: int, bad: set[int]) -> None:
    texts = ["x" if at in bad else str(at) for at in range(length)]
    values, failed = convert(pa.array(texts), INT, OPTIONS)
    expected = [None if at in bad else at for at in range(length)]
    assert values.to_pylist() == expected
    assert (failed is not None) == (None in expected)
    assert failed is None or failed.to_pylist() == [value is None for value in expected]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("+5", INT, 5),
        ("-128", TINYINT, -128),
        ("128", TINYINT, "failed"),
        ("9223372036854775808", BIGINT, "failed"),
        (" 1.5 ", DOUBLE, 1.5),
        ("-Inf", DOUBLE, float("-inf")),
        ("1e400", DOUBLE, float("inf")),
        ("True", BOOLEAN, True),
        ("1", BOOLEAN, "failed"),
        ("1.005", decimal(5, 2), Decimal("1.01")),
        ("1000", decimal(5, 2), "failed"),
        ("-0.005", decimal(5, 2), Decimal("-0.01")),
        ("2024-2-29", DATE, date(2024, 2, 29)),
        ("2023-2-29", DATE, "failed"),
        ("2024-02", DATE, date(2024, 2, 1)),
        ("2024-01-01T01:00:00+01:00", TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC)),
        ("2024-01-01 00:00:00.123456789", TIMESTAMP, datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
        ("2024-01-01", TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC)),
        ("2024-1-1 1:2:3", TIMESTAMP, datetime(2024, 1, 1, 1, 2, 3, tzinfo=UTC)),
        ("2024-01-01 24:00:00", TIMESTAMP, "failed"),
        ("2024-01-01 00:00:00 UTC", TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_notations_are_those_of_spark(text: str, kind, value: object) -> None:
    assert alone(text, kind) == value


def test_a_pattern_reads_other_spellings_of_a_moment() -> None:
    options = text_options({"timestampFormat": "dd/MM/yyyy HH:mm:ss", "dateFormat": "dd.MM.yyyy"})
    moments, failed = convert(pa.array(["31/12/2023 23:59:58", "2023-12-31", None]), TIMESTAMP, options)
    assert moments.to_pylist() == [datetime(2023, 12, 31, 23, 59, 58, tzinfo=UTC), None, None]
    assert failed is not None
    assert failed.to_pylist() == [False, True, False]
    days, failed = convert(pa.array(["31.12.2023"]), DATE, options)
    assert (days.to_pylist(), failed) == ([date(2023, 12, 31)], None)
