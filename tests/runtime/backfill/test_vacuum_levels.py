"""Reductions and blocks that change while a stream runs, and the map of free space: segments are the rows whose hashes their
shares keep, whatever the levels were before, and wherever a process was killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive.blocks import Blocks, hashes_of, seed_of
from headrace.archive.runs import BLOCK, POSITION, Order, randomised
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import plan_files
from headrace.runtime.reduction.segments import segments_of
from headrace.runtime.reduction.vacuum import Vacuum
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from tests.runtime.backfill.test_vacuum import HOUR_ROWS, ages, asked, fill, hour, opened
from tests.soak.ledger import digest
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points, share_of

Use = Callable[[FaultyDisk | None], None]
STREAM = "CREATE OR REPLACE STREAM s (at TIMESTAMP, v BIGINT) USING push OPTIONS ({}) TIMESTAMP BY at"
LEVELS = (
    "blocks '8', reduce 'age(2 HOURS 0.5, 5 HOURS 0.875)'",
    "blocks '16', reduce 'age(2 HOURS 0.25)'",
    "blocks '4', reduce 'uniform(0.5)'",
    "blocks '16', reduce 'age(1 HOUR 0.3, 3 HOURS 0.9)'",
    "blocks '8'",
)


def level(hub: Hub, options: str) -> None:
    hub.execute(STREAM.format(options))
    hub.catch_up()


def check_segments(hub: Hub) -> None:
    """No row is lost, and each segment has exactly the rows whose hashes are below its share, in its blocks."""
    manifest = hub.home.latest()
    hours = manifest.stream("s").rows // HOUR_ROWS
    segments = segments_of(manifest, "s")
    listed = hub.home.entries(manifest, "archive:s")
    assert sum(segment.rows for segment in segments) + sum(e["rows"] for e in listed) == hours * HOUR_ROWS
    first = 0
    for segment in segments:
        table = pq.read_table(Path(hub.home.store.root) / segment.file)
        assert table.num_rows == segment.stored
        numbers = np.arange(first, first + segment.rows)
        position = numbers % HOUR_ROWS + ((numbers // HOUR_ROWS) << 32)
        below = (hashes_of(position, seed_of("s")) >> np.uint64(32)) < segment.keep * 2**32
        assert sorted(table.column("v").to_pylist()) == numbers[below].tolist()
        first += segment.rows


@pytest.mark.parametrize(("options", "newest"), [*zip(LEVELS, (0.5, 0.75, 0.5, 0.75), strict=False)])
def test_a_vacuum_follows_the_reduction_that_applies_now(tmp_path: Path, options: str, newest: float) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 9)
        hub.vacuum()
        level(hub, options)
        hub.vacuum()
        check_segments(hub)
        fill(hub, 9, 16)
        hub.vacuum()
        check_segments(hub)
        assert ages(hub)[-1][0] == newest
        row = asked(hub, "SELECT COUNT(*) AS n FROM s WHERE v % 2 = 0 WITHIN 0 PERCENT")
        assert abs(row["n"] - 8 * HOUR_ROWS) < 2.5 * row["n_error"]


def test_what_was_dropped_is_not_there_again_under_a_finer_level(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8', reduce 'uniform(0.875)'") as hub:
        fill(hub, 0, 5)
        hub.vacuum()
        level(hub, "blocks '4', reduce 'uniform(0.5)'")
        fill(hub, 5, 9)
        hub.vacuum()
        assert ages(hub) == [(0.125, 4 * HOUR_ROWS), (0.5, 4 * HOUR_ROWS)]
        level(hub, "blocks '16', reduce 'uniform(0.875)'")
        hub.vacuum()
        assert ages(hub) == [(0.125, 8 * HOUR_ROWS)]
        check_segments(hub)


def test_segments_merged_under_a_finer_level_have_the_share_that_they_had(tmp_path: Path) -> None:
    """The level changes between two steps of a vacuum, of which the second one merges."""
    with opened(tmp_path / "home", "blocks '8', reduce 'uniform(0.875)'") as hub:
        engine = hub.loop.engine
        engine.vacuuming.every = 1000
        fill(hub, 0, 5)
        hub.vacuum()
        fill(hub, 5, 8)
        vacuum = Vacuum(hub.home, engine.manifest, lambda *_: [])
        engine.vacuuming.writing.start(
            lambda: vacuum.next(list(engine.plan.streams.values())), in_thread=False
        )
        fill(hub, 8, 9)
        assert ages(hub) == [(0.125, 4 * HOUR_ROWS), (0.125, 3 * HOUR_ROWS)]
        level(hub, "blocks '4', reduce 'uniform(0.5)'")
        hub.vacuum()
        assert ages(hub) == [(0.125, 7 * HOUR_ROWS), (0.5, HOUR_ROWS)]
        check_segments(hub)


def test_runs_from_before_there_were_blocks_are_reduced(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "retain '1 DAY'") as hub:
        fill(hub, 0, 3)
        level(hub, "blocks '8', reduce 'uniform(0.5)', retain '1 DAY'")
        fill(hub, 3, 6)
        hub.vacuum()
        check_segments(hub)
        assert ages(hub) == [(0.5, 5 * HOUR_ROWS)]


@given(
    rows=st.integers(1, 300),
    cut=st.integers(0, 300),
    kept=st.sampled_from(((8, 4), (16, 8), (8, 3))),
    blocks=st.sampled_from((2, 4, 8, 16, 5)),
)
def test_a_merged_run_is_the_run_of_all_rows(rows: int, cut: int, kept: tuple[int, int], blocks: int) -> None:
    """Compaction composes, byte for byte: rows from blocks of any number, in any order, are in the blocks of their hashes."""
    import pyarrow as pa

    position = np.arange(rows)
    at = (position * 7) % 50
    share = kept[1] / kept[0]

    def run(order: np.ndarray) -> bytes:
        new = Blocks(3, blocks)
        order = order[new.within(position[order], share)]
        block = pa.field(BLOCK, pa.int16(), nullable=False)
        table = pa.table(
            {"at": at[order], POSITION: position[order], "__fate": np.zeros(len(order), np.int8)}
        )
        table = table.append_column(block, pa.array(new.of(position[order])))
        data = randomised(table, Order(at[order], position[order], position[order]), new, of=rows, keep=share)
        return bytes(data.to_pybytes())

    by_blocks = np.argsort(Blocks(3, kept[0]).of(position), kind="stable")
    first = by_blocks[by_blocks < cut]
    assert run(np.concatenate([first, by_blocks[by_blocks >= cut]])) == run(position)


@given(
    steps=st.lists(
        st.one_of(st.integers(1, 4), st.sampled_from(["vacuum", "reopen"]), st.sampled_from(LEVELS[:4])),
        min_size=1,
        max_size=7,
    )
)
def test_the_map_of_free_space_is_what_a_vacuum_frees(
    steps: list[int | str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After any arrivals, vacuums, restarts and changes of the level: all that is free, in row groups, and none that is not."""
    home = tmp_path_factory.mktemp("free") / "home"
    hub = Hub(home, LocalExecutor())
    level(hub, LEVELS[0])
    hours, levels = 0, {LEVELS[0]}
    try:
        for step in steps:
            if isinstance(step, int):
                fill(hub, hours, hours + step)
                hours += step
            elif step == "vacuum":
                check_free(hub, is_exact=len(levels) == 1)
            elif step == "reopen":
                hub.close()
                hub = Hub(home, LocalExecutor())
            else:
                level(hub, step)
                levels.add(step)
        check_free(hub, is_exact=len(levels) == 1)
    finally:
        hub.close()
        shutil.rmtree(home)


def check_free(hub: Hub, *, is_exact: bool) -> None:
    """The rows of the map are those by which a vacuum makes the archive smaller; of blocks of other numbers, at most these."""
    free = hub.status()["archives"]["s"]["free"]
    before = stored(hub)
    hub.vacuum()
    freed = before - stored(hub)
    assert free["rows"] == freed if is_exact else free["rows"] <= freed
    assert (free["row_groups"] > 0) == (free["rows"] > 0) == (free["bytes"] > 0) == (free["files"] > 0)
    assert set(hub.status()["archives"]["s"]["free"].values()) == {0}


def stored(hub: Hub) -> int:
    """Rows of all files of the archive."""
    manifest = hub.home.latest()
    entries = hub.home.entries(manifest, "archive:s")
    return sum(s.stored for s in segments_of(manifest, "s")) + sum(entry["rows"] for entry in entries)


def test_what_waits_for_the_vacuum_is_shown(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 7)
        (outcome,) = hub.execute("DESCRIBE EXTENDED s")
        lines = dict(zip(*(outcome.table.column(n).to_pylist() for n in ("property", "value")), strict=True))
        free = hub.status()["archives"]["s"]["free"]
        assert free["files"] == 4
        assert free["rows"] > 4 * HOUR_ROWS * 0.5
        assert lines["reduced archive"] == "0 of 0 rows, files: 0"
        assert lines["waits for the vacuum"] == f"{free['rows']:,} rows, {free['bytes']:,} bytes, files: 4"
        hub.vacuum()
        (outcome,) = hub.execute("DESCRIBE EXTENDED s")
        lines = dict(zip(*(outcome.table.column(n).to_pylist() for n in ("property", "value")), strict=True))
        report = hub.status()["archives"]["s"]
        assert report["rows"] == 4 * HOUR_ROWS
        assert lines["reduced archive"] == f"{report['stored']:,} of {report['rows']:,} rows, files: 2"
        assert lines["waits for the vacuum"] == "0 rows, 0 bytes, files: 0"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Every store made from now on writes on this disk."""

    def use(faulty: FaultyDisk | None) -> None:
        monkeypatch.setattr(filesystem, "Disk", (lambda: faulty) if faulty is not None else Disk)

    return use


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with segments, and rows that a vacuum would reduce next."""
    path = tmp_path_factory.mktemp("reduced") / "home"
    with Hub(path, LocalExecutor()) as hub:
        level(hub, LEVELS[0])
        fill(hub, 0, 6)
        hub.vacuum()
        fill(hub, 6, 8)
    return path


def die(path: Path, faulty: FaultyDisk, use: Use) -> None:
    """Change the level, take in an hour, and vacuum, on a disk that fails."""
    use(None)
    with suppress(SimulatedCrash), Hub(path, LocalExecutor()) as hub:
        use(faulty)
        for store in (hub.home.store, hub.loop.engine.home.store):
            store._disk = faulty
        level(hub, LEVELS[1])
        hub.push("s", hour(8), producer="p", sequence=1)
        hub.catch_up()
        hub.vacuum()
        level(hub, LEVELS[3])
        hub.vacuum()
    use(None)
    plan_files.clear_caches()


def test_killed_at_any_call_of_a_vacuum_or_a_change_of_level_no_row_and_no_sample_is_lost(
    reduced: Path, tmp_path: Path, disk: Use
) -> None:
    """Laws 2 and 3."""
    shutil.copytree(reduced, tmp_path / "traced")
    traced = FaultyDisk()
    die(tmp_path / "traced", traced, disk)
    points: list[Fault] = list(kill_points(traced.trace))
    assert len(points) > 50
    points = share_of(points, 24, digest() + "levels")  # all of them in `make soak`
    with Hub(tmp_path / "traced", LocalExecutor()) as hub:
        check_segments(hub)
        unharmed = ages(hub)
    for number, fault in enumerate(points):
        path = tmp_path / f"home{number}"
        shutil.copytree(reduced, path)
        die(path, FaultyDisk(fault=fault), disk)
        with Hub(path, LocalExecutor()) as hub:
            assert hub.check().faults == 0, fault
            check_segments(hub)
            hub.push("s", hour(8), producer="p", sequence=1)
            hub.catch_up()
            level(hub, LEVELS[3])
            hub.vacuum()
            check_segments(hub)
            assert {keep for keep, _ in ages(hub)} == {keep for keep, _ in unharmed}, fault
            assert sum(rows for _, rows in ages(hub)) == sum(rows for _, rows in unharmed), fault
        shutil.rmtree(path)
