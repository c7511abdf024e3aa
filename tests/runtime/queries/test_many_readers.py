"""What each of many queries over one join adds to an epoch in which all of them have changes: counted, not timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.runtime.epoch.test_lone_query import calls
from tests.runtime.epoch.work import disk_calls
from tests.runtime.queries.test_shared_joins import SCRIPT

ROWS = 1_000
MOST_CALLS_A_QUERY = 37
"""A tenth more than was counted; nine more when results were put in order, and their first and last instant found, query by query."""
MOST_BYTES_A_CHANGE = 15
"""Of 41 in memory; 45 when columns were written as wide as they are."""


def epochs(path: Path, queries: int) -> tuple[float, int, int]:
    """The calls of the second epoch of two, the bytes it writes, and the changes of all queries in it."""
    with Hub(path, LocalExecutor(), tasks=1) as hub:
        hub.execute(SCRIPT)
        hub.register_many(
            {
                f"q{number}": f"SELECT x.k, x.v, y.v AS w FROM a x [RANGE {30 + number % 3} SECONDS], b y [RANGE 30 SECONDS]"
                f" WHERE x.k = y.k AND y.v - x.v BETWEEN {number % 50} AND {number % 50 + number // 50}"
                for number in range(queries)
            }
        )
        counted = []
        for epoch in range(2):
            rng = np.random.default_rng(epoch)
            for stream in "ab":
                at = pa.array((np.arange(ROWS) + ROWS * epoch) * SECOND // 10).cast(
                    pa.timestamp("us", tz="UTC")
                )
                columns = {"k": rng.integers(0, 30, ROWS), "v": rng.integers(0, 100, ROWS), "at": at}
                hub.push(stream, pa.table(columns))
            with calls() as called, disk_calls() as asked:
                hub.loop.drain()
            changes = sum(hub.query(f"q{number}").history().num_rows for number in range(queries))
            counted.append((called["calls"], asked["bytes written"], changes))
        return counted[1][0], counted[1][1], counted[1][2] - counted[0][2]


def test_a_query_with_changes_adds_few_calls_and_its_changes_few_bytes(tmp_path: Path) -> None:
    few, many = epochs(tmp_path / "few", 50), epochs(tmp_path / "many", 250)
    assert (many[0] - few[0]) / 200 <= MOST_CALLS_A_QUERY
    assert (many[1] - few[1]) / (many[2] - few[2]) <= MOST_BYTES_A_CHANGE
