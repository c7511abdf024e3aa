"""The buffers of archive writers and the sums that questions cache: bounded by bytes, counted in the budget of a hub, and shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.archive.blocks import Blocks
from headrace.archive.runs import RunWriter
from headrace.overload.memory import Claim, Limits, MemoryControl, MemoryUse
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import run_sums
from headrace.runtime.plan.adaptive.memory_budget import LEAST_BUFFER, bytes_for_archive
from headrace.runtime.tasks.scan.archive_writer import Archiving
from headrace.store.files.filesystem import LocalStore
from tests.overload.test_memory_of_a_hub import STREAM, rows

SCHEMA = pa.schema([("v", pa.int64())])
BATCH = 1 << 16


def archived(
    path: Path, most: int | None, batches: int, blocks: Blocks | None = None
) -> tuple[Archiving, list[str]]:
    names = iter(f"run-{number}" for number in range(10_000))
    writer = RunWriter(SCHEMA, None, blocks, most_bytes=None if most is None else most // 4)
    archive = Archiving(LocalStore(path), writer, lambda: next(names), most=most)
    random = np.random.default_rng(1)
    for number in range(batches):
        at = np.arange(BATCH) + number * BATCH
        archive.add([pa.array(random.integers(0, 1 << 60, BATCH))], at, at, None)
    return archive, archive.finish()


@pytest.mark.parametrize("blocks", [None, Blocks(4, 4)])
def test_writers_hold_no_more_than_their_part_and_write_every_row_once(
    tmp_path: Path, blocks: Blocks | None
) -> None:
    free, names = archived(tmp_path / "free", None, 12, blocks)
    bounded, parts = archived(tmp_path / "bounded", 2 << 20, 12, blocks)
    assert free.held.most > 4 << 20
    assert 1 << 18 < bounded.held.most <= 2 << 20
    assert bounded.held.now >= 0
    assert len(parts) > len(names)
    for folder, files in ("free", names), ("bounded", parts):
        values = pa.concat_tables([pq.read_table(tmp_path / folder / name) for name in files])
        assert sorted(values["__position"].to_pylist()) == list(range(12 * BATCH))


def use(**given: int) -> MemoryUse:
    return MemoryUse(1, [Claim("a", "a", "", "state", 100)], rows=10, row_bytes=50, **given)


def test_buffers_and_sums_count_and_are_given_up_before_queries() -> None:
    control = MemoryControl()
    assert control.used(use(archive=30, sums=20, caches=7), "") == 207
    assert control.used(use(archive=30, sums=20), "someone") == 0
    spared = control.after(use(sums=60), Limits(220))
    assert (spared.without_caches, spared.epoch_rows, spared.suspended) == (True, None, ())
    assert spared.used(use(sums=60), "") == 150
    smaller = control.after(use(archive=100), Limits(300))
    assert smaller.epoch_rows is not None
    assert (
        smaller.used(use(archive=100), "")
        == 100 + 50 * smaller.epoch_rows // 10 + 100 * smaller.epoch_rows // 10
    )
    assert smaller.suspended == ()


def test_a_hub_counts_its_buffers_and_the_sums_of_questions_and_gives_the_sums_up_first(
    tmp_path: Path,
) -> None:
    run_sums.cached.clear()
    with open_hub(tmp_path / "home", local=True, memory="1 MB") as hub:
        hub.execute(STREAM)
        hub.register("SELECT v, COUNT(*) AS n FROM s [RANGE 20 SECONDS SLIDE 2 SECONDS] GROUP BY v", "few")
        step(hub.push, hub.catch_up, 0)
        kinds = hub.status()["memory"]["kinds"]
        assert kinds["archive"] >= 100 * 3 * 8
        assert kinds["sums"] == 0
        first = answered(hub)
        held = run_sums.cached.shrink(str(hub.home.store.root), 1 << 60)
        assert 0 < held <= 1_000_000 // 16
        step(hub.push, hub.catch_up, 100)
        memory = hub.status()["memory"]
        assert memory["kinds"]["sums"] == held
        assert memory["used"] == sum(memory["kinds"].values())
        assert "sums " in hub.execute("EXPLAIN ALL")[0].message
        assert sum(row["n"] for row in first) == 100
        hub.loop.engine.rounds.memory.limits = Limits(memory["used"])
        step(hub.push, hub.catch_up, 200)
        memory = hub.status()["memory"]
        assert memory["kinds"]["sums"] == 0
        assert "caches of joins, and of sums for questions" in memory["given_up"]
        assert sum(row["n"] for row in answered(hub)) == 300
        assert run_sums.cached.shrink(str(hub.home.store.root), 1 << 60) == 0
        manifest = hub.home.latest()
        assert bytes_for_archive(manifest, 2) == LEAST_BUFFER


ASK = """
import sys
from pathlib import Path
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.home.home import Home
from headrace.runtime.invoke.questions import run_sums
from headrace.runtime.statements.show import show
home = Home.at(Path(sys.argv[1]))
for number in range(8):
    text = f"SELECT k, COUNT(*) AS n FROM s WHERE v > {number - 9} GROUP BY k WITHIN 0 PERCENT"
    (statement,) = parse_script(text)
    show(home, statement)
    print(run_sums.cached.shrink(str(home.store.root), 1 << 60))
"""


@pytest.mark.parametrize("memory", [None, "1 MB"])
def test_another_process_caches_no_more_sums_than_the_budget_of_the_hub_allows(
    tmp_path: Path, memory: str | None
) -> None:
    """Its caches are its own: the budget bounds each process, whether or not a hub runs."""
    with open_hub(tmp_path / "home", local=True, memory=memory) as hub:
        hub.execute(STREAM)
        hub.register("SELECT COUNT(*) AS n FROM s [RANGE 20 SECONDS SLIDE 2 SECONDS]", "few")
        hub.push("s", rows(0, 1000))
        hub.catch_up()
    asked = [sys.executable, "-c", ASK, str(tmp_path / "home")]
    held = [int(line) for line in subprocess.check_output(asked, text=True).split()]
    allowed = 1_000_000 // 16
    assert 0 < held[0] <= allowed
    assert (max(held) <= allowed) == (memory is not None)


def step(push: Callable[..., int], catch_up: Callable[[], object], first: int) -> None:
    push("s", rows(first, 100))
    catch_up()


def answered(hub: Hub) -> list[dict[str, Any]]:
    """A question that reads every archived row."""
    (outcome,) = hub.execute("SELECT v, COUNT(*) AS n, SUM(k) AS t FROM s GROUP BY v WITHIN 0 PERCENT")
    assert outcome.table is not None
    return outcome.table.to_pylist()
