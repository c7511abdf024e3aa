"""Few pushed rows are in their record of the ingest log, without a file; many rows have files, and so have those of many pushes
that wait. Answers are the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.connectors.sources.segment_files import IN_RECORD
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest import ingest_queue

SCRIPT = "CREATE STREAM s (v BIGINT, t STRING) USING push; CREATE QUERY q AS SELECT v, t FROM s"
MANY = IN_RECORD // 8
"""Rows that are too large for a record."""


def opened(path: Path, script: str = "") -> Hub:
    hub = Hub(path, LocalExecutor(), tasks=1)
    hub.execute(script)
    return hub


def push(hub: Hub, first: int, count: int = 1) -> None:
    hub.push("s", [{"v": number, "t": f"é{number}"} for number in range(first, first + count)])


def files(hub: Hub) -> int:
    return len(hub.home.store.list("segments/"))


def answered(hub: Hub) -> list[int]:
    rows = hub.query("q").history().to_pylist()
    assert all(row["t"] == f"é{row['v']}" for row in rows)
    return sorted(row["v"] for row in rows)


def test_few_rows_make_no_file_and_many_do(tmp_path: Path) -> None:
    with opened(tmp_path, SCRIPT) as hub:
        push(hub, 0, 3)
        assert files(hub) == 0
        push(hub, 3, MANY)
        assert files(hub) == 1
        push(hub, 3 + MANY, 2)
        assert files(hub) == 1
        hub.catch_up()
        assert answered(hub) == list(range(5 + MANY))
        assert hub.check().faults == 0


def test_of_pushes_that_wait_only_so_many_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_queue, "_MOST_WITH_ROWS", 4)
    with opened(tmp_path, SCRIPT) as hub:
        for number in range(7):
            push(hub, number)
        assert files(hub) == 3
        hub.catch_up()
        push(hub, 7)
        assert files(hub) == 3
        hub.catch_up()
        assert answered(hub) == list(range(8))


def test_rows_that_wait_in_their_records_are_read_by_the_next_process(tmp_path: Path) -> None:
    with opened(tmp_path, SCRIPT) as hub:
        for number in range(3):
            push(hub, 2 * number, 2)
    with opened(tmp_path) as hub:
        assert hub.check().faults == 0
        hub.catch_up()
        assert answered(hub) == list(range(6))
        hub.execute("CREATE QUERY later AS SELECT SUM(v) AS total FROM s")  # from the archive
        hub.catch_up()
        assert hub.query("later").invoke().to_pylist() == [{"total": 15}]
