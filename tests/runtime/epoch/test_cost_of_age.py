"""What an epoch reads of its home does not depend on how many epochs there were before it. Counted, not timed."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.sources.segment_files import IN_RECORD
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import LocalStore

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
LOOKS = ("read", "map", "exists", "list")
QUERIES = (
    "CREATE QUERY windows AS SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]",
    "CREATE QUERY groups OPTIONS (retain '10 MINUTES') AS SELECT v % 3 AS k, COUNT(*) AS n FROM s [RANGE 2 MINUTES] GROUP BY v % 3",
    "CREATE QUERY over AS SELECT SUM(n) AS n FROM windows [RANGE 5 MINUTES SLIDE 5 MINUTES]",
)
ROUND = 64
"""Epochs that are counted together: in one round every list seals a segment, and garbage is collected once."""


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often a store is asked for something, by any caller; a listing counts once more for each file in it."""
    counts: Counter[str] = Counter()

    def counting(name: str) -> Any:
        original = getattr(LocalStore, name)

        def asked(self: LocalStore, *args: Any, **options: Any) -> Any:
            answer = original(self, *args, **options)
            counts[name] += 1
            if name == "list":
                answer = list(answer)
                counts["listed"] += len(answer)
            return answer

        return asked

    with monkeypatch.context() as patched:
        for name in LOOKS:
            patched.setattr(LocalStore, name, counting(name))
        yield counts


def push(hub: Hub, first: int, count: int) -> None:
    """A row a minute, each pushed and folded by itself."""
    for minute in range(first, first + count):
        hub.push("s", [{"at": START + dt.timedelta(minutes=minute), "v": minute}])
        hub.loop.drain()


def test_an_epoch_looks_at_as_many_files_in_an_old_home_as_in_a_young_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of epochs in a home of some age, and one twice as old: also a look that finds nothing to do."""
    with open_hub(tmp_path / "home", local=True) as hub:
        engine = hub.loop.engine
        engine.housekeeping.every, engine.housekeeping.grace = 10**9, -1
        hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
        for query in QUERIES:
            hub.execute(query)
        looks, idle = [], []
        for advance in range(3):
            with counted(monkeypatch) as calls:
                push(hub, advance * ROUND, ROUND)
            looks.append(sum(calls.values()))
            with counted(monkeypatch) as calls:
                assert hub.loop.step() is None
            idle.append(dict(calls))
            engine.collect()
        assert idle[2] == idle[1], idle
        assert looks[2] <= 1.1 * looks[1], looks


def test_a_push_and_an_epoch_wait_for_the_disk_twice_each_and_list_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the data, all at once, and for the name under which it counts."""
    syncs: Counter[str] = Counter()
    waits: list[int] = []
    together = filesystem._all_at_once
    waiting = threading.local()

    def counted_wait(calls: Any) -> None:
        waits.append(len(calls))
        waiting.here = True
        together(calls)
        waiting.here = False

    def counting(name: str) -> Any:
        original = getattr(Disk, name)

        def called(self: Disk, *args: Any) -> Any:
            syncs[name] += 1
            of_others = threading.current_thread().name.startswith("headrace-sync")
            if "sync" in name and not (of_others or getattr(waiting, "here", False)):
                waits.append(1)
            return original(self, *args)

        return called

    with open_hub(tmp_path / "home", local=True, tasks=1) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
        hub.execute("CREATE QUERY sums AS SELECT SUM(v) AS n FROM s [RANGE TUMBLING 1 MINUTE]")
        minutes = [{"at": START + dt.timedelta(minutes=minute), "v": 3} for minute in range(5)]
        push(hub, 0, 3)
        hub.push("s", minutes[3:4] * IN_RECORD)  # makes the folder of segments
        hub.loop.drain()
        monkeypatch.setattr(filesystem, "_all_at_once", counted_wait)
        monkeypatch.setattr(
            Disk, "nameless", lambda *_: None
        )  # whether there are spare files is a matter of time
        for name in ("create", "fsync", "fsync_file", "fsync_folder"):
            monkeypatch.setattr(Disk, name, counting(name))
        with counted(monkeypatch) as made_calls:
            hub.push("s", minutes[4:])
            assert waits == [1, 1]  # the log's chunk, which has the row; then its folder
            assert dict(syncs) == {"create": 1, "fsync": 1, "fsync_folder": 1}
            waits.clear()
            syncs.clear()
            hub.push("s", minutes[4:] * IN_RECORD)
            assert waits == [2, 1]  # segment with its folder, and the log's chunk; then the chunk's folder
            assert dict(syncs) == {"create": 2, "fsync": 1, "fsync_file": 1, "fsync_folder": 2}
            waits.clear()
            syncs.clear()
            assert hub.loop.step() is not None
            assert waits == [
                4,
                1,
            ]  # archive, state and results with their folders, and the manifest; then its folder
            assert dict(syncs) == {"create": 4, "fsync": 1, "fsync_file": 3, "fsync_folder": 4}
        assert made_calls["list"] == 0
