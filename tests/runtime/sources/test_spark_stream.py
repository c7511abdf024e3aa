"""A Spark streaming DataFrame as a source: one segment for each micro-batch, however often Spark repeats it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from building import ARRIVAL, everything

from headrace.catalog.definitions import StreamDefinition
from headrace.errors import UserError
from headrace.runtime.sources.records import IngestRecord
from headrace.schema import BIGINT, STRING, TIMESTAMP, Field, Schema

pytestmark = pytest.mark.spark

STREAM = StreamDefinition(
    "s", Schema((Field("k", BIGINT), Field("s", STRING), Field("at", TIMESTAMP))), "spark", time="at"
)


def write(folder: Path, name: str, first: int, rows: int) -> None:
    folder.mkdir(exist_ok=True)
    at = pa.array([ARRIVAL - 1] * rows).cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"k": range(first, first + rows), "s": ["x"] * rows, "at": at}), folder / name)


def test_each_micro_batch_is_one_segment_and_repetitions_are_known_by_their_batch(
    spark, tmp_path: Path
) -> None:
    from headrace.runtime.sources import spark_stream

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
        query = spark_stream.start(
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

    # Spark forgets that the last batch was done, as after a crash before its commit: the segment is found, not doubled.
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
    from headrace.runtime.sources import spark_stream

    frame = spark.readStream.format("rate").load().groupBy("value").count()
    with pytest.raises(UserError, match="cannot run this DataFrame in append mode"):
        spark_stream.start(frame, STREAM, tmp_path / "segments", tmp_path / "checkpoint", lambda record: None)


@pytest.mark.parametrize("using", ["csv", "json", "parquet"])
def test_well_formed_files_read_as_spark_reads_them(spark, tmp_path: Path, using: str) -> None:
    from building import SCHEMA, stream

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
    found, reasons = everything(stream(out, using, **options))
    assert reasons == []
    assert [repr({**row, "at": row["at"].timestamp()}) for row in found] == [
        repr({**row, "at": row["at"].timestamp()}) for row in expected
    ]
