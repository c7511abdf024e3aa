"""Law 8, on disk: the files of state hold at most twice what is still needed, besides runs that are still open.

What is needed is measured, not reckoned: a second home over the same rows merges all its state in every epoch. A run is open until
it has been checked for the first time, a dozen epochs after it was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.tasks.state import run_merging
from headrace.runtime.tasks.state.compaction import FAN_IN
from headrace.time import SECOND

FULL, THIN = 70, 76
"""Epochs of a second: with many rows, then with a few."""
OPEN = 2 * FAN_IN
SPAN = 30
"""Seconds after which no window of the queries below needs a row any more."""
EMPTY = 8 << 10
"""Bytes that a file of state has whatever it holds: names and schemas, for each of the runs kept."""

QUERIES = {
    "tumbling": "SELECT k, SUM(v) AS n FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k",
    "sliding": "SELECT k, SUM(v) AS n FROM s [RANGE 30 SECONDS SLIDE 7 SECONDS] GROUP BY k",
    "by value": "SELECT k % 9 AS g, MEDIAN(v) AS n FROM s [RANGE 30 SECONDS SLIDE 10 SECONDS] GROUP BY k % 9",
    "distinct": "SELECT COUNT(DISTINCT k) AS n FROM s [RANGE 30 SECONDS SLIDE 10 SECONDS]",
    "rows of windows": "SELECT k, v FROM s [RANGE 30 SECONDS SLIDE 10 SECONDS] ORDER BY v, k LIMIT 3",
    "at instants": "SELECT k % 9 AS g, SUM(v) AS n FROM s [RANGE 30 SECONDS] GROUP BY k % 9",
    "last rows": "SELECT COUNT(*) AS n, MAX(v) AS v FROM s [ROWS 500]",
    "sessions": "SELECT k, COUNT(*) AS n FROM s [PARTITION BY k SESSION 3 SECONDS] GROUP BY k",
    "streams met": "SELECT COUNT(*) AS n FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS] AS a,"
    " t [RANGE 30 SECONDS SLIDE 30 SECONDS] AS b WHERE a.k = b.k",
    "groups for ever": "SELECT k % 50 AS g, COUNT(*) AS n FROM s GROUP BY k % 50",
}


@dataclass(frozen=True, slots=True)
class Kept:
    """After an epoch: bytes of all files of state, and of those that are open."""

    all: int
    open: int


def kept(folder: Path, query: str) -> tuple[list[Kept], list[dict[str, object]]]:
    """The state of a home after every epoch, and all that the query emitted."""
    sizes = []
    clauses = "(k INT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 0 SECONDS"
    with Hub(folder, LocalExecutor(), tasks=1) as hub:
        hub.execute(f"CREATE STREAM s {clauses}; CREATE STREAM t {clauses};")
        hub.register(query, "q")
        for epoch in range(FULL + THIN):
            for stream in ("s", "t")[: 1 + ("b.k" in query)]:
                hub.push(stream, rows(epoch))
            hub.loop.drain()
            manifest = hub.home.latest()
            young = [run.bytes for run in manifest.state if manifest.epoch - run.epoch <= OPEN]
            sizes.append(Kept(sum(run.bytes for run in manifest.state), sum(young)))
        history = hub.query("q").history().to_pylist()
        assert sum(path.stat().st_size for path in folder.rglob("state/*.run")) >= sizes[-1].all > 0
    return sizes, history


def rows(epoch: int) -> pa.Table:
    """Keys of their own in every epoch: state is as large as its windows are long."""
    count = 100 if epoch < FULL else 1
    at = pa.array(np.full(count, epoch * SECOND)).cast(pa.timestamp("us", "UTC"))
    keys = np.arange(epoch * 100, epoch * 100 + count)
    return pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(keys % 977, pa.int64()), "at": at})


@pytest.mark.parametrize("kind", QUERIES)
def test_files_of_state_hold_twice_what_is_needed_at_most(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, history = kept(tmp_path / "as it is", QUERIES[kind])
    monkeypatch.setattr(run_merging, "due_for_merge", lambda runs: tuple(run.name for run in runs))
    merged, history_of_merged = kept(tmp_path / "merged", QUERIES[kind])
    assert history
    assert history == history_of_merged  # whichever runs were merged, neighbours or not
    needed = [size.all for size in merged]
    for epoch, size in enumerate(sizes):
        bound = max(needed[max(0, epoch - SPAN) : epoch + 1])
        assert size.all <= 2 * bound + size.open + EMPTY, (epoch, size, bound)
    assert sizes[-1].all <= 2 * needed[-1] + sizes[-1].open + EMPTY
