"""The catalog that other threads read: of the driver what it has logged, of a reader what it reads in the query log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.runtime.backfill import completeness
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection import explain
from headrace.store.logs.record_log import Chunk, RecordLog

STREAM = "CREATE STREAM s (a BIGINT, t TIMESTAMP) USING push TIMESTAMP BY t"
QUERY = "CREATE QUERY {} AS SELECT a FROM s"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM)
        hub.execute(QUERY.format("chosen"))
        yield hub


class Held:
    """A thread whose reading of the log ends when it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Any) -> None:
        self.has_read, self.may_end = threading.Event(), threading.Event()
        read, thread = RecordLog.chunks, threading.Thread(target=work, daemon=True)
        self.thread = thread

        def chunks(log: RecordLog, from_ordinal: int = 0) -> Iterator[Chunk]:
            yield from list(read(log, from_ordinal))
            if threading.current_thread() is thread:
                self.has_read.set()
                assert self.may_end.wait(30)

        monkeypatch.setattr(RecordLog, "chunks", chunks)
        thread.start()

    def end(self) -> None:
        self.may_end.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.mark.parametrize("statement", ["EXPLAIN ALL", "EXPLAIN QUERY chosen", "SHOW QUERIES"])
def test_a_statement_that_reads_takes_no_query_back_that_was_created_meanwhile(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    reader = Held(monkeypatch, lambda: hub.execute(statement))
    reader.has_read.wait(0.5)
    hub.execute(QUERY.format("second"))
    reader.end()
    assert hub.catalog.query("second") is not None
    hub.catch_up()
    assert hub.query("second").history().num_rows == 0


def test_two_threads_of_a_reader_apply_each_entry_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home.at(hub.path)
    hub.execute(QUERY.format("second"))
    first = Held(monkeypatch, home.newest_catalog)
    assert first.has_read.wait(30)
    hub.execute(QUERY.format("third"))
    other = threading.Thread(target=home.newest_catalog, daemon=True)
    other.start()
    other.join(0.3)
    first.end()
    other.join(30)
    assert set(home.newest_catalog().queries) == {"chosen", "second", "third"}
    assert home.catalog.position == hub.catalog.position


def test_an_explanation_is_of_one_catalog(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query is dropped between the reading of its plan and that of its name."""
    plan = completeness.newest_plan

    def newest_plan(*arguments: Any) -> Any:
        made = plan(*arguments)
        if hub.catalog.query("chosen") is not None:
            hub.execute("DROP QUERY chosen")
        return made

    monkeypatch.setattr(explain, "newest_plan", newest_plan)
    assert "chosen" in explain.explain_all(hub.home)
    assert "chosen" not in explain.explain_all(hub.home)
