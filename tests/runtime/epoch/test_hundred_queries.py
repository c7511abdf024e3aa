"""What a hundred queries with forty new rows add to an epoch: calls of Python functions. Counted, not timed."""

from __future__ import annotations

from pathlib import Path

from benchmarks import latency_rows
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from tests.runtime.epoch.test_lone_query import EPOCHS, calls

ROWS = 40
MOST_CALLS_A_QUERY = 22
"""A fifth more than was counted; 56 when each epoch compared all queries and made a scanner for each, 43 when it noted what each one without rows had done."""


def calls_an_epoch(path: Path, queries: int) -> int:
    """Of the benchmark `latency`: half of the queries select rows, the others have windows."""
    tables = latency_rows.batches(ROWS, 3 * EPOCHS)
    with Hub(path, LocalExecutor(), tasks=1) as hub:
        hub.loop.engine.housekeeping.every = 1 << 20
        hub.execute(f"{latency_rows.STREAM}; {latency_rows.FOLLOWED}")
        hub.register_many(latency_rows.queries(queries))
        counted = 0
        for number, table in enumerate(tables):
            hub.push("e", table)
            with calls() as called:
                assert hub.loop.step() is not None
            counted += called["calls"] if number >= 2 * EPOCHS else 0
    return counted // EPOCHS


def test_each_of_a_hundred_queries_adds_few_calls_to_an_epoch(tmp_path: Path) -> None:
    """Most have no row of theirs in an epoch: what is found by comparing them is found once for a plan."""
    few, many = calls_an_epoch(tmp_path / "few", 3), calls_an_epoch(tmp_path / "many", 100)
    assert (many - few) / 97 <= MOST_CALLS_A_QUERY, (few, many)
