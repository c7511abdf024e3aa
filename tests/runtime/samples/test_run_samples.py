"""Samples of archive runs: which rows they have, what questions read of them, and that an answer never depends on them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.archive import blocks as archive_blocks
from headrace.archive.blocks import Blocks, blocks_of, seed_of
from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.archive.runs import BLOCK, POSITION
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import answer, archived_rows, run_sums
from headrace.runtime.samples import periodic_write, run_samples
from headrace.runtime.samples.run_samples import RunSample, last_part, samples_of
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.time import SECOND
from tests.runtime.epoch.work import disk_calls
from tests.runtime.rig import faults_once_tidy
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points

START = 1_700_000_000 * SECOND
ROWS = 2000
"""Rows of an epoch."""
GROUP = 4
QUESTION = (
    "SELECT k, COUNT(*) AS n, SUM(v) AS total, AVG(v) AS mean, PERCENTILE(v, 0.5) AS middle FROM s"
    " WHERE v > 3 GROUP BY k"
)


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four epochs have a sample, so that few suffice."""
    monkeypatch.setattr(run_samples, "GROUP", GROUP)
    monkeypatch.setattr(periodic_write, "EVERY", 1)
    monkeypatch.setattr(answer, "_FIRST_ROWS", 512)


@contextmanager
def opened(path: Path, options: str = "blocks '16'") -> Iterator[Hub]:
    with open_hub(path, local=True) as hub:
        hub.execute(stream(options))
        yield hub


def stream(options: str) -> str:
    return f"CREATE STREAM s (at TIMESTAMP, k INT, v DOUBLE) USING push OPTIONS ({options}) TIMESTAMP BY at"


def rows_of(number: int, count: int = ROWS) -> pa.Table:
    """Rows of one second each; a group grows, so that epochs differ."""
    draw, at = np.random.default_rng(number), number * ROWS + np.arange(count)
    return pa.table(
        {
            "at": pa.array(START + at * SECOND).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array(draw.integers(0, 3, count), pa.int32()),
            "v": draw.gamma(2.0, 10.0, count) + number,
        }
    )


def fill(hub: Hub, first: int, last: int) -> None:
    for number in range(first, last):
        hub.push("s", rows_of(number))
        hub.catch_up()


def samples(hub: Hub) -> list[tuple[int, RunSample]]:
    return samples_of(hub.home, hub.home.latest(), "s")


def asked(hub: Hub, text: str) -> tuple[list[dict[str, Any]], str]:
    run_sums.cached.clear()
    (outcome,) = hub.execute(text)
    assert outcome.table is not None
    return outcome.table.to_pylist(), outcome.message


def test_a_sample_has_the_rows_that_a_run_of_all_has_in_its_first_parts(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 10)
        found = samples(hub)
        assert [(first, sample.rows) for first, sample in found] == [(0, 4 * ROWS), (4, 4 * ROWS)]
        for first, sample in found:
            files = [
                name
                for entry in hub.home.entries(hub.home.latest(), "archive:s")[first : first + GROUP]
                for name in entry["files"]
            ]
            whole = pa.concat_tables([pq.read_table(tmp_path / "home" / name) for name in files])
            chosen = whole.filter(pa.array(whole.column(BLOCK).to_numpy() < 4))
            table = pq.read_table(tmp_path / "home" / sample.file)
            assert table.sort_by(POSITION).equals(chosen.sort_by(POSITION))
            prefixes = Prefixes.of(RunFile.of(hub.home.store.map(sample.file), sample.file).footer)
            assert prefixes.shares == (1 / 16, 2 / 16, 3 / 16, 4 / 16)
            assert prefixes.population == 4 * ROWS
            assert table.column(BLOCK).to_pylist() == sorted(table.column(BLOCK).to_pylist())
            assert (sample.low, sample.high) == (
                START + first * ROWS * SECOND,
                START + ((first + GROUP) * ROWS - 1) * SECOND,
            )


def test_the_parts_of_a_sample_are_finer_than_those_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run with 2,000 rows the least part is a half; of four of them it is a fourth."""
    monkeypatch.setattr(archive_blocks, "LEAST_ROWS", 1024)
    with opened(tmp_path / "home", "blocks '2'") as hub:
        fill(hub, 0, GROUP + 1)
        ((_, sample),) = samples(hub)
        prefixes = Prefixes.of(RunFile.of(hub.home.store.map(sample.file), sample.file).footer)
        assert prefixes.shares == (1 / 4,)
        position = pq.read_table(tmp_path / "home" / sample.file).column(POSITION).to_numpy()
        assert blocks_of(position, seed_of("s"), 4).max() == 0
        assert len(position) == pytest.approx(ROWS, rel=0.1)


@pytest.mark.parametrize(
    ("rows", "share"),
    [(100, None), (4000, None), (5000, 1 / 4), (1 << 20, 1 / 4), (1 << 21, 1 / 8), (1 << 26, 1 / 256)],
)
def test_a_sample_has_a_quarter_or_a_quarter_of_a_million_rows(rows: int, share: float | None) -> None:
    parts = Blocks(1, 16).parts(rows)
    last = last_part(parts, rows)
    assert (None if last is None else float(parts.share(last))) == share


def test_a_question_opens_the_samples_and_the_runs_after_them(tmp_path: Path) -> None:
    """Files by epochs: one for four of them, where each had its own."""
    opens = {}
    with opened(tmp_path / "home") as hub:
        for epochs in (9, 17):
            fill(hub, 0 if epochs == 9 else 9, epochs)
            archived_rows._prefixes.clear()
            with disk_calls() as calls:
                (row, *_), message = asked(hub, "SELECT COUNT(*) AS n FROM s WITHIN 20 PERCENT")
            opens[epochs] = calls["map"]
            assert f"of {epochs * ROWS:,} archived rows" in message
            assert row["kept"] <= 1 / 16 + 0.02
            assert abs(row["n"] - epochs * ROWS) <= 2 * row["n_error"] + 1
    assert opens == {9: 2 * (2 + 1), 17: 2 * (4 + 1)}  # once for the footer, and once for rows
    with opened(tmp_path / "home") as hub:
        (outcome,) = hub.execute("EXPLAIN SELECT COUNT(*) AS n FROM s WITHIN 20 PERCENT")
        plan = outcome.message or "\n".join(outcome.table["plan"].to_pylist())
    assert "1 runs and 4 samples of 4 epochs each" in plan


def test_all_rows_are_read_once_where_all_are_asked_for(tmp_path: Path) -> None:
    """What was read of a sample first counts no more, nor do its rows that fail."""
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 10)
        exact, message = asked(hub, f"{QUESTION} WITHIN 0 PERCENT")
        assert f"read {10 * ROWS:,} of {10 * ROWS:,} archived rows" in message
        rare, message = asked(hub, "SELECT k, COUNT(*) AS n FROM s WHERE v > 60 GROUP BY k WITHIN 1 PERCENT")
        assert f"read {10 * ROWS:,} of {10 * ROWS:,} archived rows" in message
        frame = pa.concat_tables([rows_of(number) for number in range(10)]).to_pandas()
        for row in exact:
            of = frame[(frame.k == row["k"]) & (frame.v > 3)].v
            assert (row["n"], row["n_error"], row["total_error"], row["middle_error"]) == (len(of), 0, 0, 0)
            assert row["total"] == pytest.approx(of.sum())
            assert row["middle"] == pytest.approx(of.median())
        for row in rare:
            assert row["n"] == ((frame.k == row["k"]) & (frame.v > 60)).sum()
            assert row["n_error"] == 0
        failing = "SELECT SUM(100 / (k - 1)) AS x FROM s WHERE v > 70 WITHIN 1 PERCENT"
        _, message = asked(hub, failing)
        assert f"{((frame.k == 1) & (frame.v > 70)).sum()} row" in message


def test_a_share_beyond_the_sample_is_what_a_home_without_samples_reads(tmp_path: Path) -> None:
    """Both have read half of each run: the same strata, so the same estimates and errors."""
    answers = []
    for every in (1, 1_000_000):
        with opened(tmp_path / str(every)) as hub:
            hub.loop.engine.archive_files.kinds.sampling.every = every
            fill(hub, 0, 9)
            assert len(samples(hub)) == (2 if every == 1 else 0)
            answers.append(
                asked(hub, "SELECT COUNT(*) AS n, AVG(v) AS mean FROM s WHERE k = 1 WITHIN 3 PERCENT")
            )
    (one, other) = ((rows[0], message) for rows, message in answers)
    assert 0.26 < one[0]["kept"] < 0.9
    assert one[1] == other[1]
    assert one[0] == {name: pytest.approx(value, rel=1e-12) for name, value in other[0].items()}


def test_a_part_of_the_time_is_read_from_the_runs_that_have_it(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 12)
        begin, end = START + 5 * ROWS * SECOND, START + (6 * ROWS - 1) * SECOND
        bounds = " ".join(
            f"{word} TIMESTAMP '{np.datetime64(at // SECOND, 's')}'"
            for word, at in (("BEGIN", begin), ("END", end))
        )
        (row, *_), message = asked(hub, f"SELECT COUNT(*) AS n FROM s {bounds} WITHIN 0 PERCENT")
        assert (row["n"], row["n_error"]) == (ROWS, 0)
        assert f"of {ROWS:,} archived rows" in message
        _, message = asked(hub, f"SELECT COUNT(*) AS n FROM s {bounds} WITHIN 20 PERCENT")
        assert f"of {ROWS:,} archived rows" in message
        end = START + (9 * ROWS - 1) * SECOND
        bounds = f"BEGIN TIMESTAMP '{np.datetime64(START // SECOND, 's')}' END TIMESTAMP '{np.datetime64(end // SECOND, 's')}'"
        (row, *_), _ = asked(hub, f"SELECT COUNT(*) AS n FROM s {bounds} WITHIN 10 PERCENT")
        assert abs(row["n"] - 9 * ROWS) <= 2 * row["n_error"]
        assert row["kept"] < 0.3


def test_sums_of_runs_are_known_after_their_sample_is_exceeded(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 8)
        text = "SELECT k, SUM(v) AS total FROM s GROUP BY k WITHIN 0 PERCENT"
        first, _ = asked(hub, text)
        (outcome,) = hub.execute(text)
        assert outcome.table.to_pylist() == first
        assert f"read 0 of {8 * ROWS:,}" in outcome.message


def test_expired_entries_take_their_samples_along(tmp_path: Path) -> None:
    with opened(tmp_path / "home", f"blocks '16', retain '{9 * ROWS} SECONDS'") as hub:
        for last in (14, 30):
            fill(hub, 0 if last == 14 else 14, last)
            start = hub.home.list_of(hub.home.latest(), "archive:s").start
            assert start >= GROUP
            written = [first for first, _ in samples(hub)]
            assert written == list(range(-(-start // GROUP) * GROUP, last - GROUP, GROUP))
            assert written
            (row, *_), _ = asked(hub, "SELECT COUNT(*) AS n FROM s WITHIN 0 PERCENT")
            assert row["n"] == (last - start) * ROWS
        assert faults_once_tidy(hub) == []
        there = {int(path.name[:12]) for path in (tmp_path / "home/samples/s").iterdir()}
        assert {first for first, _ in samples(hub)} <= there
        assert min(there) >= 2 * GROUP  # those that the last eight manifests name


def test_a_stream_of_the_same_name_has_samples_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 5)
        assert len(samples(hub)) == 1
        hub.execute("DROP STREAM s")
        hub.catch_up()
        assert samples(hub) == []
        assert faults_once_tidy(hub) == []
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 5)
        assert [sample.rows for _, sample in samples(hub)] == [4 * ROWS]
        (row, *_), _ = asked(hub, "SELECT COUNT(*) AS n FROM s WITHIN 0 PERCENT")
        assert row["n"] == 5 * ROWS


def test_a_sample_that_was_written_for_a_dropped_stream_is_not_that_of_the_next_one(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, GROUP)  # the next manifest would name the sample
        hub.execute("DROP STREAM s")
        hub.execute(stream("blocks '16'"))
        fill(hub, 0, 1)
        assert samples(hub) == []


def test_streams_without_blocks_and_epochs_of_few_rows_have_none(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '1'") as hub:
        fill(hub, 0, 5)
        assert not (tmp_path / "home/samples").exists()
    with opened(tmp_path / "few") as hub:
        for number in range(8):
            hub.push("s", rows_of(number, 10))
            hub.catch_up()
        fill(hub, 8, 13)
        assert [first for first, _ in samples(hub)] == [8]
        (row, *_), _ = asked(hub, "SELECT COUNT(*) AS n FROM s WITHIN 0 PERCENT")
        assert row["n"] == 80 + 5 * ROWS


def test_a_kill_at_any_call_leaves_a_home_whose_samples_have_the_rows_of_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, path = tmp_path / "saved", tmp_path / "home"
    with opened(saved) as hub:
        fill(hub, 0, 3)
        for number in range(3):
            hub.push("s", rows_of(100 + number, 1))
    disk = FaultyDisk()
    run(path, saved, disk, monkeypatch)
    points = list(kill_points(disk.trace))
    deaths = with_sample = 0
    for point in points[:: max(1, len(points) // 24)]:
        disk = FaultyDisk(fault=point, graves=str(tmp_path))
        deaths += run(path, saved, disk, monkeypatch)
        disk.lose_power(str(path), lambda number: number % 2 == 0)
        with opened(path) as hub:
            hub.catch_up()
            for first, sample in samples(hub):
                with_sample += 1
                entries = hub.home.entries(hub.home.latest(), "archive:s")[first : first + GROUP]
                assert sample.rows == sum(entry["rows"] for entry in entries)
                assert (
                    Prefixes.of(RunFile.of(hub.home.store.map(sample.file), sample.file).footer).population
                    == sample.rows
                )
            (row, *_), _ = asked(hub, "SELECT COUNT(*) AS n FROM s WITHIN 0 PERCENT")
            committed = hub.home.latest().stream("s")
            assert row["n"] == committed.rows - committed.late
            assert faults_once_tidy(hub) == [], point
    assert deaths > 10
    assert with_sample > 3


def run(path: Path, saved: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Epochs that make a sample, name it and collect, on a copy of a home and on this disk; whether it died."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(saved, path)
    with monkeypatch.context() as patched:
        try:
            with open_hub(path, local=True) as hub:
                patched.setattr(filesystem, "Disk", lambda: disk)
                hub.home.store._disk = disk
                hub.loop.engine.housekeeping.every = 2
                hub.loop.engine.housekeeping.readers = -1
                fill(hub, 3, 6)
                hub.home.store._disk = Disk()
        except SimulatedCrash:
            return True
    return False
