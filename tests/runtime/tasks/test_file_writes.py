"""Files that are written after the receipts that name them: none is there before, all are there afterwards."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.archive.run_file import RunFile
from headrace.archive.runs import AT, RunWriter
from headrace.errors import StoreError
from headrace.runtime.epoch import commit
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.tasks import file_writes
from headrace.runtime.tasks.file_writes import LaterWrites
from headrace.runtime.tasks.levels import run_states
from headrace.runtime.tasks.scan import archive_writer
from headrace.runtime.tasks.scan.archive_writer import Archiving
from headrace.runtime.tasks.scan.scan_task import scan_blobs
from headrace.store.files.filesystem import LocalStore
from headrace.time import SECOND
from tests.runtime.rig import QUERIES, Rig, assert_as_the_reference, cut, faults_once_tidy, made_rows

NAMES = ("tumble", "slide", "now", "some")
ROWS = made_rows(7, 80, disorder=4 * SECOND)
"""Some are late, many out of order, and some have NULLs."""
FILES = cut(ROWS, 15, 16, 40, 70)


class Later(LocalExecutor):
    """Writes files when they are awaited, as standing tasks do; `there` has how many of each epoch's files were there before that."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = LaterWrites()
        self.there: list[int] = []
        self.named: list[int] = []

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        self.await_files()
        inbox: dict[int, list[ScanBlob]] = {state.task: [] for state in states}
        for scan in scans:
            for task, blob in scan_blobs(pickle.loads(pickle.dumps(scan)), self.writes):
                inbox[task].append(blob)
        finished = run_states(pickle.loads(pickle.dumps(states)), inbox, self.writes)
        names, store = commit.files_named(finished.receipts), LocalStore(Path(states[0].root))
        self.there.append(sum(store.exists(name) for name in names))
        self.named.append(len(names))
        return finished.receipts

    def await_files(self) -> None:
        self.writes.finish()


@pytest.fixture(params=["few rows", "many rows"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether an epoch's rows are few, or more than are archived later."""
    is_few = request.param == "few rows"
    if not is_few:
        monkeypatch.setattr(archive_writer, "LATER_ROWS", 12)
    return is_few


@pytest.mark.parametrize("large", [False, True])
def test_files_written_later_are_those_that_the_receipts_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool, large: bool
) -> None:
    if large:
        monkeypatch.setattr(archive_writer, "_ENOUGH", 20)  # rows of some batches are encoded in a thread
    rig, executor = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, SECOND), Later()
    rig.drop(*FILES)
    with Hub(rig.home, executor, tasks=2) as hub:
        hub.execute(rig.script({name: QUERIES[name] for name in NAMES}))
        hub.catch_up()
        hub.register(QUERIES["slide"], "backfilled")  # it reads the archive
        assert_as_the_reference(hub, FILES, SECOND)
        assert faults_once_tidy(hub) == []
    assert max(executor.named) >= 4
    if few and not large:
        assert sum(executor.there) == 0, "no file is there before it is awaited"
    else:
        assert 0 < sum(executor.there) < sum(executor.named), "only archives of many rows are there before"


def test_a_file_that_cannot_be_written_ends_the_writing_of_all() -> None:
    writes, written = LaterWrites(), list[int]()

    def refuse() -> None:
        raise StoreError("full")

    for number, write in enumerate((lambda: written.append(0), refuse, lambda: written.append(2))):
        assert not written, number
        writes.add(write)
    with pytest.raises(StoreError):
        writes.finish()
    writes.finish()
    assert written == [0]


def test_files_are_written_at_once_by_default() -> None:
    written: list[int] = []
    file_writes.AT_ONCE.add(lambda: written.append(1))
    assert written == [1]


@pytest.mark.parametrize(("most", "later"), [(None, True), (20_000, True), (1 << 12, False)])
def test_rows_that_fill_half_of_the_memory_are_not_archived_later(
    tmp_path: Path, most: int | None, later: bool
) -> None:
    store, writes, names = LocalStore(tmp_path), LaterWrites(), itertools.count()
    writer = RunWriter(pa.schema([("v", pa.int64())]), most_bytes=None if most is None else most // 4)
    archiving = Archiving(store, writer, lambda: f"runs/{next(names)}", most=most, writes=writes)
    for number in range(20):
        at = np.arange(20) * (-1) ** number + 100 * number
        archiving.add([pa.array(at * 3)], at, at + number, None)
    files = tuple(archiving.finish())
    assert [store.exists(name) for name in files] == [not later] * len(files)
    assert (len(files) == 1) == later
    writes.finish()
    rows = pa.concat_tables([RunFile.of(store.map(name), name).read() for name in files])
    assert rows.num_rows == 400
    for name in files:
        times = RunFile.of(store.map(name), name).read().column(AT).to_pylist()
        assert times == sorted(times)
