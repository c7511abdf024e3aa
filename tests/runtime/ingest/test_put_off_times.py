"""Queries over Parquet whose event times are not all read answer as over Arrow, of which they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.formats import parquet_reader
from headrace.connectors.records.ingest_record import SourceChanged
from headrace.connectors.sources.listing import list_new
from headrace.connectors.sources.source_reader import read
from headrace.operators.base.batch import Batch
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.tasks.timing import timed
from headrace.schema import INT, TIMESTAMP, Field, Schema
from tests.connectors.building import ARRIVAL, stream
from tests.examples import examples

SECOND = 1_000_000
START = 1_600_000_020 * SECOND
KIND = pa.timestamp("us", "UTC")
QUERIES = {
    "tumbling": "SELECT window_end, k, COUNT(*) AS n, SUM(v) AS t FROM s [RANGE 60 SECONDS SLIDE 60 SECONDS] GROUP BY k",
    "sliding": "SELECT window_end, COUNT(*) AS n, MAX(v) AS m FROM s [RANGE 30 SECONDS SLIDE 20 SECONDS]",
    "gaps": "SELECT window_end, k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 60 SECONDS] GROUP BY k",
    "one": "SELECT window_end, SUM(v) AS t FROM s [RANGE 60 SECONDS SLIDE 60 SECONDS] WHERE v > 2",
    "two": "SELECT window_end, SUM(v) AS t FROM s [RANGE 60 SECONDS SLIDE 60 SECONDS] WHERE v <= 2",
    "failing": "SELECT window_end, SUM(6 / v) AS t FROM s [RANGE 60 SECONDS SLIDE 60 SECONDS]",
    "distinct": "SELECT window_end, COUNT(DISTINCT v) AS d FROM s [RANGE 60 SECONDS SLIDE 60 SECONDS]",
    "latest": "SELECT window_end, LAST(v) AS l FROM s [RANGE 60 SECONDS SLIDE 60 SECONDS]",
    "first": "SELECT window_end, k, FIRST(v) AS f FROM s [RANGE 60 SECONDS SLIDE 60 SECONDS] GROUP BY k",
    "rows": "SELECT k, v FROM s WHERE v > 5",
    "counted": "SELECT k, COUNT(*) AS n FROM s [ROWS 3] GROUP BY k",
}
ROW = st.tuples(st.integers(0, 250), st.integers(0, 2), st.integers(0, 6))
FILES = st.lists(
    st.lists(st.lists(ROW, min_size=1, max_size=5), min_size=1, max_size=3), min_size=1, max_size=3
)


def answered(
    folder: Path, using: str, files: list[list[list[tuple[int, int, int]]]], queries: list[str]
) -> Any:
    """Results, rejected rows and progress after one epoch a file; a file is a list of row groups."""
    source = folder / using
    source.mkdir()
    schema = pa.schema({"at": KIND, "k": pa.int32(), "v": pa.int64()})
    seen: list[Any] = []
    with Hub(folder / f"home-{using}", LocalExecutor(), tasks=2) as hub:
        hub.execute(
            f"CREATE STREAM s (at TIMESTAMP, k INT, v BIGINT) USING {using} OPTIONS (path '{source}', archive 'none') "
            "TIMESTAMP BY at SLACK 10 SECONDS;"
            + ";".join(f"CREATE QUERY {name} AS {QUERIES[name]}" for name in queries)
        )
        for number, groups in enumerate(files):
            tables = [
                pa.table(
                    [
                        pa.array([START + at * SECOND for at, _, _ in rows], KIND),
                        pa.array([k for _, k, _ in rows], pa.int32()),
                        pa.array([v for _, _, v in rows], pa.int64()),
                    ],
                    schema=schema,
                )
                for rows in groups
            ]
            path = source / f"{number}.{using}"
            if using == "parquet":
                with pq.ParquetWriter(path, schema) as writer:
                    for table in tables:
                        writer.write_table(table)
            else:
                with pa.ipc.new_file(path, schema) as out:
                    for table in tables:
                        out.write_table(table)
            hub.catch_up()
            status = hub.status()["streams"]["s"]
            seen.append([status[name] for name in ("rows", "late", "punctuation") if name in status])
        hub.finish(seal=True)
        seen.append(hub.status()["rejected"])
        seen += [(name, sorted(map(str, hub.query(name).history().to_pylist()))) for name in queries]
    return seen


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row group is read by itself."""
    monkeypatch.setattr(parquet_reader, "_ALONE", 1)


@examples(25, shares_fixtures=True)
@given(files=FILES, queries=st.lists(st.sampled_from(sorted(QUERIES)), min_size=1, max_size=4, unique=True))
def test_answers_are_those_over_arrow(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[list[tuple[int, int, int]]]],
    queries: list[str],
) -> None:
    folder = tmp_path_factory.mktemp("hubs")
    assert answered(folder, "parquet", files, queries) == answered(folder, "arrow", files, queries)


def damaged(folder: Path, minutes: list[int]) -> None:
    """A file of one row group of 600 rows within each minute, the pages of whose event times cannot be read."""
    folder.mkdir(exist_ok=True)
    for minute in minutes:
        instants = [START + (60 * minute * SECOND) + row * 100_000 for row in range(600)]
        path = folder / f"{len(list(folder.iterdir()))}.parquet"
        rows = pa.table({"at": pa.array(instants, KIND), "k": pa.array([0, 1] * 300, pa.int32())})
        pq.write_table(rows, path, use_dictionary=False, compression="none")
        first = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
        content = bytearray(path.read_bytes())
        content[first : first + 40] = b"\xff" * 40
        path.write_bytes(bytes(content))


def counting(slide: int) -> str:
    return f"SELECT window_end, k, COUNT(*) AS n FROM s [RANGE 60 SECONDS SLIDE {slide} SECONDS] GROUP BY k"


def made(hub: Hub, folder: Path, archive: str, clauses: str, queries: list[str]) -> None:
    hub.execute(
        f"CREATE STREAM s (at TIMESTAMP, k INT) USING parquet OPTIONS (path '{folder}', archive '{archive}') "
        f"TIMESTAMP BY at {clauses};"
        + ";".join(f"CREATE QUERY q{number} AS {text}" for number, text in enumerate(queries))
    )


@pytest.mark.parametrize(
    ("archive", "clauses", "queries", "is_read"),
    [
        ("none", "", [counting(60)], False),
        ("in place", "", [counting(60), counting(120)], False),
        ("none", "", [counting(30)], True),
        ("copy", "", [counting(60)], True),
        ("none", "", [counting(60), "SELECT k FROM s"], True),
        ("none", "", [counting(60), counting(60).replace("COUNT(*)", "FIRST(k)")], True),
        ("none", "PROGRESS PER (k) EXPECT 2", [counting(60)], True),
    ],
)
def test_times_are_read_where_they_are_needed(
    tmp_path: Path, archive: str, clauses: str, queries: list[str], is_read: bool
) -> None:
    damaged(tmp_path / "in", [0, 1])
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        made(hub, tmp_path / "in", archive, clauses, queries)
        hub.catch_up()
        hub.finish(seal=True)
        counts = hub.query("q0").history().column("n").to_pylist()
        assert hub.status()["streams"]["s"]["rejected"] == (2 if is_read else 0)
    assert counts == ([] if is_read else [300] * 4)


def test_times_of_late_rows_are_read(tmp_path: Path) -> None:
    """A row group with rows below the punctuation is rejected, as all that cannot be read."""
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        damaged(tmp_path / "in", [1, 2])
        made(hub, tmp_path / "in", "none", "", [counting(60)])
        hub.catch_up()
        damaged(tmp_path / "in", [0, 3])
        hub.catch_up()
        assert hub.status()["streams"]["s"]["rejected"] == 1
        hub.finish(seal=True)
        assert hub.query("q0").history().column("n").to_pylist() == [300] * 6


def test_a_file_that_is_gone_before_its_times_are_read_is_no_failure_of_a_query(tmp_path: Path) -> None:
    damaged(tmp_path / "in", [0])
    definition = stream(tmp_path / "in", "parquet", Schema((Field("at", TIMESTAMP), Field("k", INT))))
    (record,) = list_new(definition, (), ARRIVAL)
    (batch,) = read(record, definition, ["k"], reads_times=lambda low, high: False)
    (tmp_path / "in/0.parquet").unlink()
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        made(hub, tmp_path / "in", "none", "", [counting(30)])
        (scanner,) = timed(hub.plan.operators.values(), {})
    with pytest.raises(SourceChanged, match="it is gone"):
        scanner.add(Batch({"k": batch.table.column("k")}, batch.times, batch.rows))
    assert scanner.failures() == {}
