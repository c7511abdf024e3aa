"""Others get into the query log first: a driver that was replaced, or one that wakes after it was. Nothing is logged unread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import AlreadyPublished, StoreError, UserError
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.manifest import ManifestLog
from headrace.store.logs.record_log import QUERY_LOG, RecordLog
from tests.runtime.rig import QUERIES, Rig, made_rows
from tests.store.faults import FaultyDisk, Trouble

TEXT = QUERIES["tumble"]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.drop(made_rows(3, 8))
    return made


@pytest.fixture
def hub(rig: Rig) -> Iterator[Hub]:
    with rig.hub(2, {"a": TEXT, "b": TEXT}) as opened:
        yield opened


def before_it_is_published(hub: Hub, action: Callable[[], object]) -> None:
    """Once, when the next entry of the log is written and is about to get its number."""
    disk = FaultyDisk()

    def act(call: str) -> None:
        if call == "link":
            disk.before_call = None
            action()

    disk.before_call = act
    hub.home.store._disk = disk


def another_writes(hub: Hub, *entries: dict[str, Any]) -> None:
    RecordLog(LocalStore(hub.home.store.root), QUERY_LOG).append(entries)


def log_of(rig: Rig) -> list[str]:
    return [entry["do"] for _, entry in RecordLog(LocalStore(rig.home), QUERY_LOG).read()]


DROP = {"do": "drop", "kind": "query", "name": "a"}


@pytest.mark.parametrize(
    "statement",
    ["DROP QUERY a", "ALTER QUERY a RENAME TO c", "PAUSE QUERY a", f"ALTER QUERY a AS {QUERIES['slide']}"],
)
def test_what_another_has_dropped_meanwhile_is_not_changed_again(statement: str, rig: Rig, hub: Hub) -> None:
    before = log_of(rig)
    before_it_is_published(hub, lambda: another_writes(hub, DROP))
    with pytest.raises(UserError, match=r"'a' has changed while this statement was executed\n.*repeat"):
        hub.execute(statement)
    assert log_of(rig) == [*before, "drop"]
    with pytest.raises(UserError, match="there is no query 'a'"):
        hub.execute(statement)
    hub.run_once()


def test_a_statement_about_something_else_follows_what_another_has_written(rig: Rig, hub: Hub) -> None:
    before = log_of(rig)
    before_it_is_published(hub, lambda: another_writes(hub, DROP))
    hub.execute("ALTER QUERY b RENAME TO c")
    assert log_of(rig) == [*before, "drop", "rename"]
    assert [query.definition.name for query in hub.catalog.queries.values()] == ["c"]
    assert set(hub.run_once()) == {"c"}


def test_what_no_longer_can_be_planned_after_what_another_has_written_is_refused(rig: Rig, hub: Hub) -> None:
    hub.execute("CREATE STREAM p (v BIGINT) USING push")
    before_it_is_published(hub, lambda: another_writes(hub, {"do": "drop", "kind": "stream", "name": "p"}))
    with pytest.raises(UserError, match="'p'"):
        hub.execute("CREATE QUERY sums AS SELECT SUM(v) AS total FROM p")
    assert hub.catalog.query("sums") is None
    assert Home.at(rig.home).catalog.query("sums") is None


def test_a_driver_that_sleeps_until_another_has_taken_over_logs_nothing(rig: Rig, hub: Hub) -> None:
    before = log_of(rig)

    def take_over() -> None:
        ManifestLog(LocalStore(rig.home)).takeover()
        another_writes(hub, DROP)

    before_it_is_published(hub, take_over)
    with pytest.raises(AlreadyPublished, match="another process has taken over") as raised:
        hub.execute("DROP QUERY a")
    assert raised.value.outcome == "absent"
    assert log_of(rig) == [*before, "drop"]


def test_ctrl_c_in_a_sync_and_the_statement_again(rig: Rig, hub: Hub) -> None:
    for name, again in (("a", "there is no query 'a'"), ("b", "there is no query 'b'")):
        disk = FaultyDisk(trouble=Trouble(5, KeyboardInterrupt))
        hub.home.store._disk = disk
        with pytest.raises(KeyboardInterrupt, match="fsync_folder"):
            hub.execute(f"DROP QUERY {name}")
        with pytest.raises(UserError, match=again):
            hub.execute(f"DROP QUERY {name}")
    assert log_of(rig).count("drop") == 2
    Home.at(rig.home)


def test_an_append_whose_outcome_is_unknown_says_so_until_the_disk_answers(rig: Rig, hub: Hub) -> None:
    disk = FaultyDisk(trouble=Trouble(5, 5, lasting=True))
    hub.home.store._disk = disk
    with pytest.raises(StoreError, match="Whether it is there is not known yet") as raised:
        hub.execute("DROP QUERY a")
    assert raised.value.outcome == "unknown"
    with pytest.raises(StoreError, match="Nothing of it is there") as raised:
        hub.execute("DROP QUERY b")
    assert raised.value.outcome == "absent"
    assert hub.catalog.query("a") is not None
    disk.trouble = None
    hub.execute("DROP QUERY b")
    assert not hub.catalog.queries
    assert log_of(rig)[-2:] == ["drop", "drop"]
