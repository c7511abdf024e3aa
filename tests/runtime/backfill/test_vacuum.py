"""Archives that thin with age: what is dropped is the end of each run, in one manifest, and what remains answers questions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.archive.blocks import blocks_of, seed_of
from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.archive.runs import POSITION
from headrace.errors import CorruptStore, UserError
from headrace.runtime.backfill.backfill_scheduler import Chunk, ReplaySchedule
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.reduction.segments import Segment, segments_of
from headrace.runtime.reduction.vacuum import Vacuum
from headrace.time import SECOND

START = 1_699_999_200 * SECOND
"""A full hour."""
HOUR_ROWS = 3600
"""Rows of an epoch: one a second for an hour."""
OPTIONS = "blocks '8', reduce 'age(2 HOURS 0.5, 5 HOURS 0.875)'"


class OneEntry(ReplaySchedule):
    """The archive is read an entry at a time."""

    def turn(self, *, live_waits: bool) -> Chunk:
        return Chunk(1, 1)


@contextmanager
def opened(path: Path, options: str = OPTIONS) -> Iterator[Hub]:
    with open_hub(path, local=True) as hub:
        hub.execute(
            f"CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push OPTIONS ({options}) TIMESTAMP BY at"
        )
        yield hub


def hour(number: int) -> pa.Table:
    first = number * HOUR_ROWS
    v = np.arange(first, first + HOUR_ROWS)
    return pa.table({"at": pa.array(START + v * SECOND).cast(pa.timestamp("us", tz="UTC")), "v": v})


def fill(hub: Hub, first: int, last: int) -> None:
    for number in range(first, last):
        hub.push("s", hour(number))
        hub.catch_up()


def segments(hub: Hub) -> tuple[Segment, ...]:
    return segments_of(hub.home.latest(), "s")


def asked(hub: Hub, text: str) -> dict[str, float]:
    (outcome,) = hub.execute(text)
    assert outcome.table is not None
    (row,) = outcome.table.to_pylist()
    return row


def ages(hub: Hub) -> list[tuple[float, int]]:
    """The share and the rows of each segment."""
    return [(segment.keep, segment.rows) for segment in segments(hub)]


def test_rows_are_dropped_by_their_age_and_only_the_last_blocks_of_them(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 3)
        hub.vacuum()
        assert (
            ages(hub) == []
        )  # the punctuation is at 02:59:59: the first hour ended two hours ago, but for a second
        fill(hub, 3, 9)
        hub.vacuum()
        # at 08:59:59: the hours 0 to 2 are older than five hours, 3 to 5 than two
        assert ages(hub) == [(0.125, 3 * HOUR_ROWS), (0.5, 3 * HOUR_ROWS)]
        assert len(hub.home.entries(hub.home.latest(), "archive:s")) == 3
        for segment in segments(hub):
            table = pq.read_table(tmp_path / "home" / segment.file)
            block = blocks_of(table.column(POSITION).to_numpy(), seed_of("s"), 8)
            assert set(block.tolist()) == set(range(round(segment.keep * 8)))
            assert table.num_rows == segment.stored
            prefixes = Prefixes.of(RunFile.of(hub.home.store.map(segment.file), segment.file).footer)
            assert (prefixes.shares[-1], prefixes.population) == (segment.keep, segment.rows)
        stored = {
            row["v"]
            for segment in segments(hub)
            for row in pq.read_table(tmp_path / "home" / segment.file).to_pylist()
        }
        everything = np.arange(6 * HOUR_ROWS)
        position = np.concatenate([np.arange(HOUR_ROWS) + (hour << 32) for hour in range(6)])
        kept = blocks_of(position, seed_of("s"), 8) < np.where(everything < 3 * HOUR_ROWS, 1, 4)
        assert stored == set(everything[kept].tolist())
        assert hub.check().faults == 0


def test_of_runs_with_empty_blocks_no_row_beyond_the_share_is_left(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8', reduce 'uniform(0.5)'") as hub:
        for number in range(30):
            hub.push("s", hour(number).slice(0, 3))
            hub.catch_up()
        hub.vacuum()
        (segment,) = segments(hub)
        position = pq.read_table(tmp_path / "home" / segment.file).column(POSITION).to_numpy()
        assert (segment.rows, segment.stored) == (29 * 3, len(position))
        assert blocks_of(position, seed_of("s"), 8).max() < 4


def test_what_remains_answers_within_the_error_it_says(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 9)
        hub.vacuum()
        row = asked(
            hub,
            "SELECT COUNT(*) AS n, SUM(v) AS total, AVG(v) AS mean FROM s WHERE v % 3 = 0 WITHIN 0 PERCENT",
        )
        v = np.arange(9 * HOUR_ROWS)
        v = v[v % 3 == 0]
        for name, truth in (("n", len(v)), ("total", v.sum()), ("mean", v.mean())):
            assert 0 < row[f"{name}_error"] < 0.05 * truth
            assert abs(row[name] - truth) < 2 * row[f"{name}_error"]
        recent = asked(
            hub, "SELECT COUNT(*) AS n FROM s BEGIN NOW - INTERVAL 2 HOURS END NOW WITHIN 0 PERCENT"
        )
        assert (recent["n"], recent["n_error"]) == (2 * HOUR_ROWS + 1, 0)


def test_a_query_that_comes_later_starts_after_what_was_reduced_and_says_so(tmp_path: Path) -> None:
    text = "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 HOUR]"
    with opened(tmp_path / "home") as hub:
        hub.register(text, "always")
        fill(hub, 0, 9)
        hub.vacuum()
        hub.register(text, "late")
        hub.catch_up()
        assert hub.query("late").history()["n"].to_pylist()[-1] == HOUR_ROWS
        assert hub.query("late").history().num_rows < hub.query("always").history().num_rows
        assert hub.home.latest().stream("s").retained_since > START


def test_what_a_query_has_not_read_yet_is_not_reduced(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 HOUR]", "q")
        fill(hub, 0, 2)
        hub.execute("PAUSE QUERY q")
        fill(hub, 2, 9)
        hub.vacuum()
        assert [rows for _, rows in ages(hub)] == [2 * HOUR_ROWS]
        hub.execute("RESUME QUERY q")
        hub.catch_up()
        assert set(hub.query("q").history()["n"].to_pylist()) == {HOUR_ROWS}
        hub.vacuum()
        assert sum(rows for _, rows in ages(hub)) == 6 * HOUR_ROWS


def test_uniformly_and_retained(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '4', reduce 'uniform(0.75)', retain '4 HOURS'") as hub:
        fill(hub, 0, 3)
        hub.vacuum()
        assert ages(hub) == [(0.25, 2 * HOUR_ROWS)]
        fill(hub, 3, 9)
        hub.vacuum()
        assert min(segment.high for segment in segments(hub)) >= START + (9 - 4) * HOUR_ROWS * SECOND - SECOND


def test_it_happens_by_itself_and_its_files_replace_the_old_ones(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.loop.engine.vacuuming.every = 1
        hub.loop.engine.housekeeping.every, hub.loop.engine.housekeeping.readers = 1, 0
        fill(hub, 0, 24)
        assert sum(rows for _, rows in ages(hub)) > 10 * HOUR_ROWS
        live = {segment.file for segment in segments(hub)}
        live |= {
            name for entry in hub.home.entries(hub.home.latest(), "archive:s") for name in entry["files"]
        }
        hub.loop.engine.housekeeping.collect_retired()
        hub.catch_up()
    with opened(tmp_path / "home") as hub:
        hub.loop.engine.housekeeping.grace = -1
        hub.loop.engine.collect()
        there = {f"archive/s/{path.name}" for path in (tmp_path / "home/archive/s").iterdir()}
        live = {segment.file for segment in segments(hub)}
        live |= {
            name for entry in hub.home.entries(hub.home.latest(), "archive:s") for name in entry["files"]
        }
        assert there >= live
        assert len(there) < 24
        assert hub.check().faults == 0


def test_a_query_registered_while_a_segment_is_written_keeps_its_rows(tmp_path: Path) -> None:
    """The segment was chosen before the query was there: it is not taken in until the query has read the rows."""
    text = "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 HOUR]"
    with opened(tmp_path / "home") as hub:
        engine = hub.loop.engine
        engine.vacuuming.every = 1000
        fill(hub, 0, 9)
        vacuum = Vacuum(hub.home, engine.manifest, lambda *_: [])
        engine.vacuuming.writing.start(
            lambda: vacuum.next(list(engine.plan.streams.values())), in_thread=False
        )
        hub.register(text, "q")
        engine.replay_schedule = OneEntry()
        for _ in range(3):
            engine.step(live_first=True)
            assert segments(hub) == ()
        engine.step(live_first=True)
        hub.catch_up()
        assert hub.query("q").history()["n"].to_pylist() == [HOUR_ROWS] * 8
        assert ages(hub) == [(0.125, 3 * HOUR_ROWS)]


def test_a_dropped_stream_leaves_no_segments(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 9)
        hub.vacuum()
        hub.execute("DROP STREAM s")
        hub.catch_up()
        assert segments(hub) == ()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("reduce 'uniform(0.5)'", "with blocks"),
        ("blocks '4', reduce 'half'", "no reduction"),
        ("blocks '4', reduce 'uniform(1.5)'", "between 0 and 1"),
        ("blocks '4', reduce 'uniform(1 DAY 0.5)'", "no step"),
        ("blocks '4', reduce 'age(0.5)'", "no step"),
        ("blocks '4', reduce 'age(2 DAYS 0.5, 1 DAY 0.75)'", "ascend"),
        ("blocks '4', reduce 'age(1 DAY 0.75, 2 DAYS 0.5)'", "ascend"),
        ("blocks '4', reduce 'age(x 0.75)'", "reduce"),
    ],
)
def test_reductions_that_mean_nothing_are_refused(tmp_path: Path, options: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason), opened(tmp_path / "home", options):
        pass


VICTIM = """
import sys
from pathlib import Path
from tests.runtime.backfill import test_vacuum as t
with t.opened(Path(sys.argv[1])) as hub:
    hub.loop.engine.vacuuming.every = 1
    hub.catch_up()
    first = hub.home.latest().stream("s").rows // t.HOUR_ROWS
    for number in range(first, 10_000):
        hub.push("s", t.hour(number), )
        hub.catch_up()
        hub.vacuum()
        print(number, flush=True)
"""


def test_a_kill_at_any_moment_loses_no_row_and_no_sample(tmp_path: Path) -> None:
    """Laws 2 and 3: whatever a kill cuts off, the home is one epoch's, and its segments are the rows that their shares keep."""
    rng = np.random.default_rng(5)
    home = tmp_path / "home"
    for _ in range(6):
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(home)], stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        assert victim.stdout is not None
        for _ in range(int(rng.integers(3, 7))):
            assert victim.stdout.readline()
        time.sleep(float(rng.random()) * 0.05)  # anywhere in what follows
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        with opened(home) as hub:
            assert hub.check().faults == 0
            hub.catch_up()
            hours = hub.home.latest().stream("s").rows // HOUR_ROWS
            listed = hub.home.entries(hub.home.latest(), "archive:s")
            kept = segments(hub)
            assert sum(segment.rows for segment in kept) + sum(e["rows"] for e in listed) == hours * HOUR_ROWS
            for segment in kept:
                table = pq.read_table(home / segment.file)
                v = (np.arange(segment.low, segment.high + 1, SECOND) - START) // SECOND
                v = v[v < hours * HOUR_ROWS]
                found = table.column("v").to_numpy()
                assert len(found) == segment.stored
                assert len(np.unique(found)) == len(found)
                assert set(blocks_of(table.column(POSITION).to_numpy(), seed_of("s"), 8)) == set(
                    range(round(segment.keep * 8))
                )
                assert abs(len(found) - segment.keep * segment.rows) < 6 * np.sqrt(segment.rows)
            for name in [name for entry in listed for name in entry["files"]]:
                assert pq.read_metadata(home / name).num_rows == HOUR_ROWS


def test_a_time_of_which_all_rows_were_dropped_is_not_answered_exactly(tmp_path: Path) -> None:
    """The segment has two rows, and of the last ones none is left: the answer was 0 ± 0, of all rows."""
    with opened(tmp_path / "home", "blocks '128', reduce 'uniform(0.99)'") as hub:
        hub.push("s", hour(0).slice(0, 200))
        hub.catch_up()
        hub.push("s", hour(1).slice(0, 1))
        hub.catch_up()
        hub.vacuum()
        (segment,) = segments(hub)
        stored = pq.read_table(tmp_path / "home" / segment.file)["v"].to_pylist()
        end = (min([*stored, 200]) or max(stored) + 200) - 1
        begin, end = (0, end) if end < 200 else (max(stored) + 1, 199)
        instants = [f"TIMESTAMP '{np.datetime64(START // SECOND + at, 's')}'" for at in (begin, end)]
        row = asked(
            hub, f"SELECT COUNT(*) AS n FROM s BEGIN {instants[0]} END {instants[1]} WITHIN 0 PERCENT"
        )
        assert row["n"] == 0
        assert row["n_error"] > 0
        assert row["kept"] < 0.1


def test_a_damaged_run_is_not_reduced_and_stops_no_query(tmp_path: Path) -> None:
    """The hub names it; the archive is reduced once it is put back."""
    with opened(tmp_path / "home") as hub:
        hub.loop.engine.vacuuming.every = 1
        hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 HOUR]", "q")
        fill(hub, 0, 1)
        (file,) = (tmp_path / "home" / "archive" / "s").iterdir()
        data = file.read_bytes()
        file.unlink()
        file.write_bytes(data[:100])
        fill(hub, 1, 9)
        hub.catch_up()
        assert hub.query("q").history()["n"].to_pylist() == [HOUR_ROWS] * 8
        assert segments(hub) == ()
        (warning,) = hub.status()["sources"].values()
        assert "is not reduced" in warning
        assert file.name in warning
        with pytest.raises(CorruptStore, match=file.name):
            hub.vacuum()
        file.unlink()
        file.write_bytes(data)
        fill(hub, 9, 11)
        hub.catch_up()
        assert segments(hub)
        assert hub.status()["sources"] == {}
