"""An archive is ordinary Parquet: DuckDB, Spark and pandas read what this library does, of runs, of runs that were joined in one file, and of segments
that a vacuum has written.
"""

from __future__ import annotations

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.archive.runs import POSITION
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.samples import periodic_write
from headrace.store.logs import radix_list
from headrace.time import SECOND

DAY = 86_400
EPOCHS, ROWS = 20, 40


@pytest.fixture(scope="module", params=["", ", reduce 'age(2 DAYS 0.5)'"], ids=["joined", "reduced"])
def files(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> list[str]:
    """Five days of small epochs, of which four at a time are joined in a file, or of which the first days are reduced to a half."""
    home = tmp_path_factory.mktemp("archive") / "home"
    with pytest.MonkeyPatch.context() as patch, open_hub(home, local=True) as hub:
        patch.setattr(radix_list, "FANOUT", 4)
        patch.setattr(periodic_write, "EVERY", 1)
        hub.execute(
            "CREATE STREAM s (at TIMESTAMP, k INT, v DOUBLE, name STRING) USING push"
            f" OPTIONS (blocks '4'{request.param}) TIMESTAMP BY at"
        )
        for epoch in range(EPOCHS + 1):
            number = list(range(epoch * ROWS, (epoch + 1) * ROWS))
            at = [one * 5 * DAY * SECOND // (EPOCHS * ROWS) for one in number]
            hub.push(
                "s",
                pa.table(
                    {
                        "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
                        "k": pa.array([one % 7 for one in number], pa.int32()),
                        "v": [None if one % 11 == 0 else one / 4 for one in number],
                        "name": [f"n{one % 5}" for one in number],
                    }
                ),
            )
            hub.catch_up()
        hub.vacuum()
        hub.catch_up()
        entries = [
            ArchiveEntry.from_json(value) for value in hub.home.entries(hub.home.latest(), "archive:s")
        ]
        found = sorted({str(home / piece.file) for entry in entries for piece in entry.pieces})
        assert request.param or any(entry.within for entry in entries)
    assert 1 < len(found) < EPOCHS
    return found


def rows(files: list[str]) -> list[tuple[object, ...]]:
    """Of each file by this library's reader: position, and the columns that users have declared."""
    names = [POSITION, "k", "v", "name"]
    tables = [pq.ParquetFile(file).read(columns=names) for file in files]
    return sorted(map(tuple, (row.values() for table in tables for row in table.to_pylist())))


def test_duckdb_and_pandas_read_every_row(files: list[str]) -> None:
    wanted = rows(files)
    assert 300 < len(wanted) <= (EPOCHS + 1) * ROWS
    found = duckdb.sql(
        f'SELECT "{POSITION}", k, v, name FROM read_parquet({files}, union_by_name=true)'
    ).fetchall()
    assert sorted(found) == wanted
    counted = duckdb.sql(f"SELECT COUNT(*), SUM(v) FROM read_parquet({files})").fetchall()
    assert counted == [(len(wanted), sum(row[2] for row in wanted if row[2] is not None))]
    frame = pd.concat([pd.read_parquet(file) for file in files])
    assert sorted(frame[POSITION]) == [row[0] for row in wanted]


def test_spark_reads_every_row(files: list[str], spark: SparkSession) -> None:
    found = spark.read.parquet(*files).select(POSITION, "k", "v", "name").collect()
    assert sorted(map(tuple, found), key=lambda row: row[0]) == rows(files)
