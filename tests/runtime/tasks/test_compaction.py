"""Runs of state are merged by levels; what windows that closed leave dead does not pile up among large runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import disorder
from benchmarks.progressing import run
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import RunRef
from headrace.runtime.tasks.state.compaction import FAN_IN, due_for_review, level_after
from headrace.time import SECOND


@pytest.mark.parametrize(
    ("merged", "rows", "level"),
    [
        ([(0, 100)] * FAN_IN, FAN_IN * 100, 1),  # nothing was dead: it rises
        ([(0, 100)] * FAN_IN, 120, 0),  # most was: it stays, to be merged again soon
        ([(0, 9), (1, 100)], 90, 1),  # a level below never lowers what it is merged into
        ([(0, 0)] * FAN_IN, 0, 0),
    ],
)
def test_a_run_rises_only_if_merging_made_it_larger(
    merged: list[tuple[int, int]], rows: int, level: int
) -> None:
    assert level_after(merged, rows) == level


@pytest.mark.parametrize(("size", "reviewed"), [(1 << 12, False), (1 << 20, True)])
def test_small_runs_are_left_to_merging(size: int, reviewed: bool) -> None:
    """A review of them costs more than what it could free: a lone query with ten rows had one in most epochs."""
    runs = [RunRef(name, 0, 256, 1, size, epoch) for name, epoch in (("old", 4), ("new", 9))]
    assert due_for_review(runs, 12) == ([("old", "new")] if reviewed else [])


def test_state_of_a_long_run_of_windows_that_close_stays_as_it_is() -> None:
    made = disorder.band(6000, 6000, 5, seed=7)
    state = run(made, "SLACK 5 SECONDS", epoch_rows=50).state
    early, late = state[20:40], state[60:]
    assert max(late) <= 1.5 * max(early)


def test_runs_of_windows_that_stay_open_rise_by_levels_and_stay_few(tmp_path: Path) -> None:
    with Hub(tmp_path, LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (k INT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 0 SECONDS;")
        hub.register("SELECT k, COUNT(*) AS n FROM s [RANGE 30 DAYS SLIDE 30 DAYS] GROUP BY k", "q")
        for epoch in range(2 * FAN_IN**2):
            at = pa.array([epoch * SECOND, epoch * SECOND]).cast(pa.timestamp("us", "UTC"))
            hub.push("s", pa.table({"k": pa.array([2 * epoch, 2 * epoch + 1], pa.int32()), "at": at}))
            hub.loop.drain()
        runs = hub.home.latest().state
    assert max(run.level for run in runs) == 2
    assert len(runs) <= 3 * FAN_IN


def test_files_of_runs_that_were_merged_are_closed(tmp_path: Path) -> None:
    """Else a worker that lives for months has a hundred dead files in its memory, and on disk though they were deleted."""
    with Hub(tmp_path, LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (k INT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 0 SECONDS;")
        hub.register("SELECT k, COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k", "q")
        for epoch in range(5 * FAN_IN):
            at = pa.array([epoch * SECOND]).cast(pa.timestamp("us", "UTC"))
            hub.push("s", pa.table({"k": pa.array([epoch], pa.int32()), "at": at}))
            hub.loop.drain()
        live = {Path(run.name).name for run in hub.home.latest().state}
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = {Path(line.split()[5]).name for line in maps if f"{tmp_path}/state/" in line}
    assert len(mapped - live) <= FAN_IN + 1  # what the last epoch merged was open while it ran
