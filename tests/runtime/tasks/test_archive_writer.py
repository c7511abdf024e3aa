"""A task's share of an archive: runs that are full are durable first, and then leave their memory to others."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.archive import runs
from headrace.archive.runs import RunWriter
from headrace.runtime.tasks.scan.archive_writer import Archiving
from headrace.store.files.filesystem import LocalStore


class Noting(LocalStore):
    """What is asked of it beside writing, in order."""

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
