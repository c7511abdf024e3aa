"""Blobs of a job in files: what arrives is what was sent, a large one by its name and in place, and no file is left."""

from __future__ import annotations

import shutil
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.messages import exchange_files
from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.exchange_files import exchange_folder, received, sent
from headrace.runtime.messages.task_messages import ScanReceipt
from headrace.runtime.spark.given_session import GivenSession
from headrace.runtime.spark.spark_executor import SparkExecutor


def blob(rows: int) -> ScanBlob:
    numbers = pa.table({"n": np.arange(rows), "s": pa.array([str(n) for n in range(rows)])})
    return ScanBlob(ScanReceipt(3), {}, {"q/a": numbers, "q/b": numbers.slice(0, 3)})


@pytest.mark.parametrize(("rows", "files"), [(0, 0), (10, 0), (200_000, 1)])
@pytest.mark.parametrize("has_folder", [False, True])
def test_what_arrives_is_what_was_sent(tmp_path: Path, rows: int, files: int, has_folder: bool) -> None:
    whole = blob(rows)
    with exchange_folder(tmp_path / "exchange" if has_folder else None) as folder:
        data = sent(whole, folder)
        there = [] if folder is None else list(folder.iterdir())
        assert len(there) == (files if has_folder else 0)
        assert (len(data) < 1000) == (rows == 0 or bool(there))
        arrived = received(data)
    assert arrived == whole  # read after the folder has been deleted
    assert not has_folder or list((tmp_path / "exchange").iterdir()) == []


def test_tables_of_a_file_are_read_in_place(tmp_path: Path) -> None:
    data, before = sent(blob(200_000), tmp_path), pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        arrived = received(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 100_000
    assert arrived.sections["q/a"].num_rows == 200_000


def _failing_job(parent: Path) -> None:
    with exchange_folder(parent) as folder:
        sent(blob(200_000), folder)
        raise ValueError("of the job")


def test_a_folder_is_deleted_when_the_job_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of the job"):
        _failing_job(tmp_path)
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True, slots=True)
class OnThisMachine(GivenSession):
    """The tests' session, as one that a hub has started for itself."""

    folder: Path

    @property
    def exchange(self) -> Path:  # type: ignore[override]
        return self.folder


STATEMENTS = """
CREATE STREAM l (at TIMESTAMP, k INT, v BIGINT) USING push TIMESTAMP BY at;
CREATE STREAM r (at TIMESTAMP, k INT, v BIGINT) USING push TIMESTAMP BY at;
CREATE QUERY q AS SELECT l.k AS k, l.v AS v, r.v AS w FROM l [RANGE TUMBLING 1 SECOND] JOIN r [RANGE TUMBLING 1 SECOND] ON l.k = r.k;
"""
ROWS = 40_000


def answer(home: Path, executor: SparkExecutor | None) -> pa.Table:
    """Of a join of rows that scan tasks send each other, made by one large epoch."""
    hub = open_hub(home, local=True) if executor is None else Hub(home, executor, tasks=2)
    with hub:
        hub.execute(STATEMENTS)
        for number, stream in enumerate("lr"):
            rng = np.random.default_rng(number)
            at = pa.array(1_700_000_000_000_000 + 100 * np.arange(ROWS)).cast(pa.timestamp("us", tz="UTC"))
            keys = pa.array(rng.integers(0, ROWS, ROWS), pa.int32())
            hub.push(stream, pa.table({"at": at, "k": keys, "v": np.arange(ROWS)}))
        hub.catch_up()
        return (
            hub.query("q").history().select(["k", "v", "w"]).sort_by([("v", "ascending"), ("w", "ascending")])
        )


@pytest.mark.spark
def test_answers_of_a_job_are_the_same_and_no_file_is_left(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, deleted = tmp_path / "exchange", list[int]()
    delete = shutil.rmtree

    def counted(path: Path, *, ignore_errors: bool) -> None:
        deleted.append(len(list(path.iterdir())))
        delete(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(exchange_files.shutil, "rmtree", counted)
    ours = answer(tmp_path / "spark", SparkExecutor(OnThisMachine(spark, folder), standing="never"))
    assert max(deleted) >= 2  # from each scan task
    assert list(folder.iterdir()) == []
    assert ours.num_rows > 1000
    assert ours == answer(tmp_path / "local", None)
