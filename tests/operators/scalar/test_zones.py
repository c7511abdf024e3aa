"""SET TIME ZONE: times and dates are read by the clocks of a zone, as Spark reads them, also where clocks are moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.schema import STRING, TIMESTAMP, Field, Schema
from headrace.time import DAY
from tests.operators.scalar.asking_spark import answers, cells_of_ours, cells_of_spark
from tests.operators.scalar.expressions_for_spark import IN_ZONES
from tests.operators.scalar.rows import SCHEMA, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ZONES = ("America/New_York", "Europe/Berlin", "+05:30")
MOVED = {
    "America/New_York": (datetime(2024, 3, 10, tzinfo=UTC), datetime(2024, 11, 3, tzinfo=UTC)),
    "Australia/Lord_Howe": (datetime(2024, 4, 6, tzinfo=UTC), datetime(2024, 10, 5, tzinfo=UTC)),
}
"""Days on which clocks were moved: by an hour, and by half an hour."""
AROUND = Schema((Field("r", TIMESTAMP), Field("at", TIMESTAMP), Field("z", STRING)))
ON_MOVED = [
    *("hour(at)", "minute(at)", "CAST(at AS STRING)", "CAST(at AS DATE)", "to_timestamp(z)", "CAST(CAST(z AS DATE) AS TIMESTAMP)"),
    *[f"date_trunc('{unit}', at)" for unit in ("year", "week", "day", "hour", "minute")],
]  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
def test_every_row_is_what_spark_says_in_a_zone(zone: str, spark: SparkSession) -> None:
    rows = _within_time(table())
    theirs = answers(spark, spark.createDataFrame(rows), IN_ZONES, zone)
    assert not _differences(IN_ZONES, SCHEMA, rows, theirs, zone)


@pytest.mark.parametrize("zone", MOVED)
def test_clocks_that_are_moved_skip_and_repeat_times_as_spark_s(zone: str, spark: SparkSession) -> None:
    moments = [day + timedelta(minutes=15 * step) for day in MOVED[zone] for step in range(-8, 96)]
    rows = pa.table(
        [moments, moments, [f"{moment:%Y-%m-%d %H:%M:%S}" for moment in moments]], schema=AROUND.arrow()
    )
    frame = spark.createDataFrame(rows).selectExpr("0 AS r", "at", "z")
    theirs = answers(spark, frame, ON_MOVED, zone)
    assert not _differences(ON_MOVED, AROUND, rows, theirs, zone)
    hours = cells_of_ours(bind_expression("hour(at)", AROUND, zone), rows)[1]
    assert any(abs(one - other) > 1 for one, other in zip(hours, hours[4:], strict=False)), (
        "clocks were moved"
    )


def _within_time(rows: pa.Table) -> pa.Table:
    """At both ends of the range local times are no TIMESTAMP; Spark then fails, or continues with other numbers."""
    is_within = pc.invert(pc.fill_null(pc.match_substring(rows.column("z"), "294247"), False))
    for name in ("at", "ts"):
        moments = pc.fill_null(rows.column(name).cast(pa.int64()), 0)
        is_within = pc.and_(
            is_within, pc.less(pc.abs(pc.max_element_wise(moments, -(2**63) + 1)), 2**63 - 2 * DAY)
        )
    return rows.filter(is_within)


def _differences(texts: list[str], schema: Schema, rows: pa.Table, theirs: pa.Table, zone: str) -> list[str]:
    shown = [field.name for field in schema if field.type in (TIMESTAMP, STRING)]
    inputs = [pc.cast(rows.column(name), pa.string()) for name in shown]
    differences = []
    for index, text in enumerate(texts):
        _, ours = cells_of_ours(bind_expression(text, schema, zone), rows)
        for row, (one, other) in enumerate(zip(ours, cells_of_spark(theirs.column(index)), strict=True)):
            if one != other:
                read = ", ".join(
                    f"{name}: {cells[row]}" for name, cells in zip(shown, inputs, strict=True) if name in text
                )
                differences.append(f"{text} of {read}: {one}, Spark has {other}")
    return differences
