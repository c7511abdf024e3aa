"""Cells: a text means the same value whatever is around it, and the same as to Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats.json_values import Misfit
from headrace.connectors.formats.json_values import value as json_value
from headrace.connectors.formats.text_values import convert
from headrace.connectors.records.options import text_options
from headrace.connectors.sources.segment_files import as_rows
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.operators.scalar import evaluate
from headrace.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Field,
    Schema,
    decimal,
)
from tests.operators.scalar.rows import TIME_TEXTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def cells(texts: list[str], kind) -> list[object]:
    """Each value, or "failed"; instants as numbers, since Python has no year 0."""
    values, failed = convert(pa.array(texts), kind, OPTIONS)
    numbers = micros(values) if kind in (TIMESTAMP, TIMESTAMP_NTZ) else values.to_pylist()
    bad = [False] * len(texts) if failed is None else failed.to_pylist()
    return ["failed" if wrong else value for value, wrong in zip(numbers, bad, strict=True)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(st.lists(TEXT, min_size=1, max_size=8))
def test_a_cell_means_the_same_whatever_stands_around_it(kind, texts: list[str]) -> None:
    together = cells([*texts, "no such thing"], kind)
    assert repr(together) == repr([*(cells([text], kind)[0] for text in texts), "failed"])


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
        ("1 day", INTERVAL, "failed"),
        ("", INTERVAL, None),
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


NAMED = [
    *("2024-05-01T12:00:05 Europe/Berlin", "2024-05-01 12:00:05 GMT+2", "2024-05-01 12:00:05 CET", "2024-05-01T12:00:05UTC+1"),
    *("2024-05-01 12:00:05.25 PST ", " 2024-12-01 12:00:05America/New_York", "2024-03-31 02:30:00 Europe/Berlin", "2024-05-01 12:00:05 UT"),
    *("2024-05-01 12:00:05 Nowhere/City", "2024-05-01 12:00:05 europe", "2024-02-30 12:00:05 CET", "2024-05-01 12:00:05 GMT+19"),
    *("+12024-05-01 12:00:05 CET", "-0044-03-15 12:00:05 Z", " 2024-05-01 12:00:05", "2024-05-01", " 2024-05-01 ", "2024-05-01T12:00:05"),
]  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_a_cell_is_every_instant_that_cast_reads(zone: str) -> None:
    texts = [text for text in (*NAMED, *TIME_TEXTS) if text]
    asked = bind_expression("TRY_CAST(z AS TIMESTAMP)", Schema((Field("z", STRING),)), zone)
    cast = evaluate(asked, {"z": pa.array(texts)}, len(texts)).values
    values, _ = convert(pa.array(texts), TIMESTAMP, text_options({"timeZone": zone}))
    read = dict(zip(texts, zip(micros(values), micros(cast), strict=True), strict=True))
    assert {text: both for text, both in read.items() if both[0] != both[1] and both[1] is not None} == {}
    assert [text for text in NAMED if read[text][0] is not None and read[text][1] is None] == []
    assert sum(read[text][0] is not None for text in NAMED) == 14
    options = text_options({"timeZone": zone})
    for text, instant in zip(texts, micros(values), strict=True):
        if instant is None:
            with pytest.raises(Misfit):
                json_value(text, TIMESTAMP, options)
        else:
            assert json_value(text, TIMESTAMP, options) == instant


LENIENT = ("2024-01-01 12:30Z", "2024-01-01 12:30:15+19:00")
"""Cells that Spark rejects."""


@pytest.mark.spark
def test_a_cell_is_every_instant_that_sparks_reader_reads(spark: SparkSession, tmp_path: Path) -> None:
    texts = [text for text in (*NAMED, *TIME_TEXTS) if text and text not in LENIENT]
    file = tmp_path / "cells.csv"
    file.write_text("".join(f'{number},"{text}"\n' for number, text in enumerate(texts)))
    rows = (
        spark.read.schema("n INT, at TIMESTAMP").csv(str(file)).selectExpr("n", "unix_micros(at) AS micros")
    )
    theirs = {texts[row.n]: row.micros for row in rows.collect()}
    ours = dict(zip(texts, micros(convert(pa.array(texts), TIMESTAMP, OPTIONS)[0]), strict=True))
    assert ours == theirs


def micros(column: pa.Array) -> list[int | None]:
    return column.cast(pa.int64()).to_pylist()


def test_a_pushed_text_names_its_zone() -> None:
    stream = StreamDefinition("s", Schema((Field("at", TIMESTAMP),)), "push", time="at")
    (row,) = as_rows(stream, [{"at": "2024-05-01T12:00:05 Europe/Berlin"}]).to_pylist()
    assert row == {"at": datetime(2024, 5, 1, 10, 0, 5, tzinfo=UTC)}
