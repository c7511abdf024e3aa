"""What each of a hundred queries over SELECTs, or with IN (SELECT …), adds to an epoch with ten new rows: calls of Python functions.
Counted, not timed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.suite.standing import Clocked, queries_of, script
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from tests.runtime.epoch.test_lone_query import calls

EPOCHS = 8
MOST_CALLS_A_QUERY = {"nested": 350, "semijoins": 556, "joins": 52}
"""A fifth more than was counted; 735 and 1,313 when each stream of results was scanned by itself, and each union too."""


def calls_an_epoch(path: Path, kind: str, queries: int) -> float:
    """In epochs with ten rows, once runs have been merged."""
    with Hub(path, LocalExecutor(), tasks=1) as hub:
        hub.loop.engine.housekeeping.every = 1 << 20
        hub.execute(script(queries_of(kind, queries)))
        clocked = Clocked(hub)
        counted = 0
        for number in range(2 * EPOCHS):
            clocked.push(10, "s", "u")
            with calls() as called:
                assert hub.loop.step() is not None
            counted += called["calls"] if number >= EPOCHS else 0
    return counted / EPOCHS


@pytest.mark.parametrize("kind", MOST_CALLS_A_QUERY)
def test_each_query_over_results_adds_few_calls_to_an_epoch(kind: str, tmp_path: Path) -> None:
    few, many = (calls_an_epoch(tmp_path / str(queries), kind, queries) for queries in (10, 100))
    assert (many - few) / 90 <= MOST_CALLS_A_QUERY[kind], (few, many)
