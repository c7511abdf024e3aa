"""A Spark streaming DataFrame as a source: one segment for each micro-batch, however often Spark repeats it."""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats.text_values import convert
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.records.options import text_options
from headrace.errors import UserError
from headrace.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Field, Schema, decimal
from tests.connectors.building import ARRIVAL, everything

pytestmark = pytest.mark.spark

STREAM = StreamDefinition(
    "s", Schema((Field("k", BIGINT), Field("s", STRING), Field("at", TIMESTAMP))), "spark", time="at"
)


def write(folder: Path, name: str, first: int, rows: int) -> None:
    folder.mkdir(exist_ok=True)
    at = pa.array([ARRIVAL - 1] * rows).cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"k": range(first, first + rows), "s": ["x"] * rows, "at": at}), folder / name)
    os.utime(folder / name, (ARRIVAL // 1_000_000 + first,) * 2)  # Spark reads the oldest first


def test_each_micro_batch_is_one_segment_and_repetitions_are_known_by_their_batch(
    spark, tmp_path: Path
) -> None:
    from headrace.runtime.spark import streaming_source

    source, folder, checkpoint = tmp_path / "in", tmp_path / "segments", tmp_path / "checkpoint"
    write(source, "a.parquet", 0, 3)
    write(source, "b.parquet", 3, 2)
    frame = (
        spark.readStream.schema("k BIGINT, s STRING, at TIMESTAMP")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(source))
    )

    def run() -> list[IngestRecord]:
        records: list[IngestRecord] = []
        query = streaming_source.start(
            frame, STREAM, folder, checkpoint, records.append, available_now=True, clock=lambda: ARRIVAL
        )
        query.awaitTermination()
        return records

    first = run()
    assert [(record.batch, record.rows_hint) for record in first] == [(0, 3), (1, 2)]
    rows, reasons = everything(STREAM, first)
    assert sorted(row["k"] for row in rows) == [0, 1, 2, 3, 4]
    assert reasons == []

    write(source, "c.parquet", 5, 1)
    again = run()
    assert [record.batch for record in again] == [0, 1, 2]
    assert [record.uri for record in again[:2]] == [record.uri for record in first]

    # Spark loses that the last batch was done, as after a crash before its commit: the segment is found, not doubled.
    (checkpoint / "commits" / "2").unlink()
    (checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    repeated = run()
    assert [record.batch for record in repeated] == [0, 1, 2, 2]
    known = {record.batch: record for record in repeated}
    assert sorted(row["k"] for row in everything(STREAM, list(known.values()))[0]) == [0, 1, 2, 3, 4, 5]

    shutil.rmtree(checkpoint)
    with pytest.raises(UserError, match=r"checkpoint .* is gone, but batches up to 2 were read"):
        run()


def test_a_frame_that_changes_its_rows_is_refused(spark, tmp_path: Path) -> None:
    from headrace.runtime.spark import streaming_source

    frame = spark.readStream.format("rate").load().groupBy("value").count()
    with pytest.raises(UserError, match="cannot run this DataFrame in append mode"):
        streaming_source.start(
            frame, STREAM, tmp_path / "segments", tmp_path / "checkpoint", lambda record: None
        )


@pytest.mark.parametrize("using", ["csv", "json", "parquet"])
def test_well_formed_files_read_as_spark_reads_them(spark, tmp_path: Path, using: str) -> None:
    from tests.connectors.building import SCHEMA, stream

    ddl = ", ".join(f"{field.name} {field.type}" for field in SCHEMA)
    rows = [
        "(1, 1.5D, 'plain', TIMESTAMP'2023-01-01 00:00:00.123456')",
        "(-2147483648, double('NaN'), 'a,b', TIMESTAMP'1969-12-31 23:59:59')",
        "(NULL, double('-Infinity'), 'é ü', TIMESTAMP'2024-02-29 12:00:00')",
        "(7, 1e-300D, NULL, TIMESTAMP'2026-01-01 00:00:00')",
    ]
    frame = spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t(k, v, s, at)")
    out = tmp_path / "out"
    frame.coalesce(1).write.option("header", "true").format(using).save(str(out))
    expected = [
        row.asDict()
        for row in spark.read.schema(ddl).option("header", "true").format(using).load(str(out)).collect()
    ]
    options = {"header": "true"} if using == "csv" else {}
    parsed, reasons = everything(stream(out, using, **options))
    assert reasons == []
    assert [repr({**row, "at": row["at"].timestamp()}) for row in parsed] == [
        repr({**row, "at": row["at"].timestamp()}) for row in expected
    ]


NOTATIONS = {
    INT: ["1", "+1", "-1", " 1", "1 ", "1.0", "0x1", "2147483647", "2147483648", "1e2", "--1", "+", "007", "1_0"],
    DOUBLE: ["1", " 1.5 ", "+1.5", ".5", "5.", "1e3", "1E-3", "NaN", "Inf", "-Inf", "Infinity", "x", "1,5", "-", "0x10"],
    decimal(5, 2): ["1", "1.005", "-1.005", "+1.5", "1000", "999.99", "999.995", ".5", "1e2", "x", "1E-2"],
    BOOLEAN: ["true", "TRUE", "False", "t", "1", "0", "yes", " true"],
    DATE: ["2024-02-29", "2023-02-29", "2024-2-9", "2024-02", "2024", "24-01-01", "2024-01-01 05:00:00", " 2024-01-01 ", "x"],
    TIMESTAMP: [
        *("2024-01-01 00:00:00", "2024-01-01T00:00:00", "2024-01-01", "2024-01", "2024", "2024-1-1 1:2:3", "2024-01-01 24:00:00"),
        *("2024-01-01 00:00:00.1", "2024-01-01 00:00:00.123456789", "2024-01-01 00:00", "2024-01-01 05", "2023-02-29 00:00:00"),
        *("2024-01-01T00:00:00Z", "2024-01-01T00:00:00+01:00", "2024-01-01T00:00:00-0130", "2024-01-01 00:00:00 UTC"),
        *("2024-01-01T00:00:00+24:00", " 2024-01-01 00:00:00 ", "x", "2024-01-01T00:00:00+5", "2024-01-01 00:00:60"),
    ],
}  # fmt: skip


def test_cells_mean_what_they_mean_to_spark(spark, tmp_path: Path) -> None:
    """Two differences are meant: a time without a day is no moment here (Spark takes today), and a zone may be up
    to 23:59 from Greenwich (in Spark 18:00).
    """
    from pyspark.sql import functions as f

    differences = []
    for kind, texts in NOTATIONS.items():
        file = tmp_path / f"{kind.name}.csv"
        file.write_text("".join(f'{number};"{text}"\n' for number, text in enumerate(texts)))
        frame = (
            spark.read.schema(f"n INT, c {kind}")
            .option("sep", ";")
            .option("mode", "PERMISSIVE")
            .csv(str(file))
        )
        cell = f.col("c").cast("double") if kind == TIMESTAMP else f.col("c").cast("string")
        theirs = {row["n"]: row["c"] for row in frame.select("n", cell.alias("c")).collect()}
        for number, text in enumerate(texts):
            values, _ = convert(pa.array([text]), kind, text_options({}))
            ours = values[0].as_py()
            if isinstance(ours, datetime):
                ours = ours.timestamp()
            elif ours is not None:
                ours = {True: "true", False: "false"}.get(ours) if isinstance(ours, bool) else str(ours)
            same = ours == theirs[number]
            if kind == DOUBLE and ours is not None and theirs[number] is not None:
                same = repr(float(ours)) == repr(float(theirs[number]))
            if not same:
                differences.append((str(kind), text, ours, theirs[number]))
    assert differences == []
