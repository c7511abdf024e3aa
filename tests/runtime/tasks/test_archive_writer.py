"""A task's share of an archive: runs that are full are durable first, and then leave their memory to others."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.archive import runs
from headrace.archive.runs import RunWriter
from headrace.runtime.tasks.scan.archive_writer import Archiving, Background
from headrace.store.files.filesystem import LocalStore


class Noting(LocalStore):
    """What is asked of it besides writing, in order."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[tuple[str, str]] = []

    def sync(self, names: Iterable[str]) -> None:
        names = list(names)
        super().sync(names)
        self.asked += [("sync", name) for name in names]

    def set_aside(self, name: str) -> None:
        super().set_aside(name)
        self.asked.append(("set aside", name))


def test_full_runs_are_durable_and_then_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RUN_ROWS", 100)
    store, numbers = Noting(tmp_path), count()
    writer = RunWriter(pa.schema([("v", pa.int64())]))
    archiving = Archiving(store, writer, lambda: f"runs/{next(numbers)}")
    for start in range(0, 250, 50):
        places = np.arange(start, start + 50)
        archiving.add([pa.array(places)], places, places, None)
    names = archiving.finish()
    assert names == ["runs/0", "runs/1", "runs/2"]
    assert store.asked == [(what, name) for name in names[:2] for what in ("sync", "set aside")]
    assert [store.map(name).size > 0 for name in names] == [True] * 3


ENOUGH = 1 << 16  # rows of a batch that is encoded in a thread


@pytest.mark.parametrize("sizes", [[10, ENOUGH, 10, ENOUGH, 5], [ENOUGH] * 4, [10] * 4])
def test_rows_stay_in_their_order_whichever_thread_encodes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    monkeypatch.setattr(runs, "RUN_ROWS", 2 * ENOUGH)
    store, numbers = LocalStore(tmp_path), count()
    archiving = Archiving(store, RunWriter(pa.schema([("v", pa.int64())])), lambda: f"runs/{next(numbers)}")
    first = 0
    for size in sizes:
        places = np.arange(first, first + size)
        archiving.add([pa.array(places)], places, places, None)
        first += size
    tables = [pq.read_table(pa.BufferReader(store.map(name))) for name in archiving.finish()]
    assert pa.concat_tables(tables).column("v").to_numpy().tolist() == list(range(sum(sizes)))


class Full(LocalStore):
    """A disk on which no file finds room."""

    def write_once(self, name: str, parts: Iterable[Any], *, durable: bool = True) -> int:
        raise OSError("no space left")


@pytest.mark.parametrize("rows", [10, 3 * ENOUGH])
def test_a_run_that_cannot_be_written_fails_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(runs, "RUN_ROWS", rows)
    archiving = Archiving(Full(tmp_path), RunWriter(pa.schema([("v", pa.int64())])), lambda: "runs/1")
    places = np.arange(rows)

    def archive() -> None:
        archiving.add([pa.array(places)], places, places, None)
        archiving.finish()

    with pytest.raises(OSError, match="no space left"):
        archive()


def test_a_thread_with_enough_to_do_makes_who_gives_it_more_wait() -> None:
    started, go_on, done = threading.Event(), threading.Event(), []

    def slow() -> None:
        started.set()
        go_on.wait(30)

    background = Background("slow", most=1)
    background.do(slow)
    started.wait(30)
    background.do(lambda: done.append(1))  # waits
    giver = threading.Thread(target=lambda: background.do(lambda: done.append(2)))
    giver.start()
    giver.join(0.2)
    assert giver.is_alive(), "the third thing is taken although two are not done"
    go_on.set()
    giver.join(30)
    background.finish()
    assert done == [1, 2]
