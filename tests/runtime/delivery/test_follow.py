"""follow() gives results as epochs commit them, to any number of followers, and ends when the hub stops."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.home import run_cache
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.store.files.filesystem import LocalStore
from tests.runtime.rig import QUERIES, Rig, made_rows

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MINUTES = 12


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """One query over a pushed stream."""
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
        hub.register("SELECT window_end, SUM(v) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]", "q")
        yield hub


def push(hub: Hub, minute: int) -> None:
    """Two rows of a minute."""
    hub.push("s", [{"at": START + dt.timedelta(minutes=minute, seconds=s), "v": minute} for s in (1, 30)])


def followed(hub: Hub, seen: list[int], **options: object) -> threading.Thread:
    """A follower in a thread of its own; it collects the sums."""

    def run() -> None:
        for batch in hub.query("q").follow(**options):
            seen.extend(batch["n"].to_pylist())

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_followers_see_every_result_once_and_end_with_the_hub(hub: Hub) -> None:
    """One from the start of the run, one with what was there before; both get every window exactly once."""
    push(hub, 0)
    push(hub, 1)
    hub.loop.drain()
    fresh: list[int] = []
    every: list[int] = []
    with hub.running():
        followers = [followed(hub, fresh), followed(hub, every, since=0)]
        for minute in range(2, MINUTES):
            push(hub, minute)
    for follower in followers:
        follower.join(timeout=30)
        assert not follower.is_alive()
    hub.loop.drain()
    assert every == [2 * minute for minute in range(len(every))]
    assert len(every) >= 1
    assert fresh == every[1:]


def test_what_followers_saw_is_the_history(hub: Hub) -> None:
    """The same rows in the same order, whenever one looks."""
    seen: list[int] = []
    with hub.running():
        follower = followed(hub, seen, since=START)
        for minute in range(MINUTES):
            push(hub, minute)
    follower.join(timeout=30)
    assert seen == hub.query("q").history()["n"].to_pylist()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_followers_read_no_file_of_small_results(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """Also not where tasks ran in another process: the driver has the rows with their receipts."""
    opened: list[str] = []
    for name in ("map", "read"):
        original = getattr(LocalStore, name)

        def asked(store: LocalStore, file: str, original: Any = original) -> Any:
            opened.append(file)
            return original(store, file)

        monkeypatch.setattr(LocalStore, name, asked)
    if elsewhere:
        run = hub.loop.engine.executor.run

        def run_elsewhere(*messages: Any) -> Any:
            receipts = pickle.dumps(run(*messages))
            run_cache._newest.clear()
            return pickle.loads(receipts)

        monkeypatch.setattr(hub.loop.engine.executor, "run", run_elsewhere)
    with hub.running():
        sums = hub.query("q").follow(0)
        for minute in range(4):
            push(hub, minute)
            if minute:
                assert next(sums)["n"].to_pylist() == [2 * (minute - 1)]
    assert not [name for name in opened if name.startswith("results/")]
    run_cache._newest.clear()
    assert hub.query("q").history()["n"].to_pylist() == [0, 2, 4]


def test_a_failure_of_the_loop_reaches_followers_and_whoever_stops_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that died in silence would look like a quiet stream."""

    def fail() -> None:
        raise OSError("the disk is gone")

    hub.loop.supervisor.retries = Retries(())
    monkeypatch.setattr(type(hub.loop.engine), "step", lambda _, **__: fail())
    hub.start()
    with pytest.raises(HeadraceError, match="the epoch loop failed: the disk is gone"):
        list(hub.query("q").follow())
    with pytest.raises(OSError, match="the disk is gone"):
        hub.stop()


def test_in_a_relations_changes_what_goes_stands_before_what_comes(hub: Hub) -> None:
    """Whatever the values: a reader that applies changes in order never holds two rows where there is one."""
    hub.register("SELECT MIN(v) AS least FROM s", "r")
    for second, value in ((0, 5), (1, 3), (2, 9)):
        hub.push("s", [{"at": START + dt.timedelta(seconds=second), "v": value}])
    hub.loop.drain()
    changes = hub.query("r").history()
    assert list(zip(changes["least"].to_pylist(), changes["__change"].to_pylist(), strict=True)) == [
        (5, 1),
        (5, -1),
        (3, 1),
    ]
    assert hub.query("r").invoke().to_pylist() == [{"least": 3}]


def test_what_run_once_gives_is_what_history_would_show(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.drop(made_rows(9, 30))
    with rig.hub(2, {"tumble": QUERIES["best"], "now": QUERIES["now"], "some": QUERIES["some"]}) as hub:
        answers_at_end = hub.run_once()
        assert set(answers_at_end) == {"tumble", "now"}  # a stream has emitted everything
        assert answers_at_end["tumble"].schema.names == hub.query("tumble").history().schema.names
        assert answers_at_end["now"].schema.names == hub.query("now").history().schema.names
        hub.run_once(seal=True)
        for name, rows in answers_at_end.items():
            assert hub.query(name).history().to_pylist()[-rows.num_rows :] == rows.to_pylist()


def test_a_history_in_parts_is_the_history(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several epochs, also from an instant on; and a query that emits rows, not windows; none has no parts."""
    monkeypatch.setattr("headrace.runtime.results.result_log._BATCH_ROWS", 3)
    hub.register("SELECT v FROM s WHERE v > 3", "rows")
    for minute in range(MINUTES):
        push(hub, minute)
        hub.loop.drain()
    for name in ("q", "rows"):
        query = hub.query(name)
        parts = list(query.history_in_parts())
        assert [row for part in parts for row in part.to_pylist()] == query.history().to_pylist()
        late = query.history_in_parts(since=START + dt.timedelta(minutes=6))
        rows = [row for part in late for row in part.to_pylist()]
        assert rows == query.history(since=START + dt.timedelta(minutes=6)).to_pylist() != []
    assert len(list(hub.query("q").history_in_parts(since=START))) > 1
    assert list(hub.query("q").history_in_parts(since=START + dt.timedelta(days=1))) == []
