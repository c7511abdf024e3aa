"""The archive files of a scan task: full runs are written and made durable while the scan continues.

One thread writes. The scan waits when it is a run behind, so that memory stays bounded. A file counts only once the task's
receipt names it: a task that dies leaves files without a name in a manifest, which are collected.
A task that reads many rows does not read its files back soon, so their memory is freed for the next rows: pages that were
in use a moment before take a third of the time of new ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.archive.runs import Ints, RunWriter
from headrace.store.files.filesystem import Store

_MOST_WAITING: Final = 1


class Archiving:
    """Writes the runs of one stream in one task; `new_name` returns an unused file name."""

    def __init__(self, store: Store, writer: RunWriter, new_name: Callable[[], str]) -> None:
        self._store, self._writer, self._new_name = store, writer, new_name
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()
        self._names: list[str] = []

    def add(
        self, columns: Sequence[pa.Array], at: Ints, position: Ints, late: npt.NDArray[np.bool_] | None
    ) -> None:
        """Add a batch with its late rows."""
        for run, _ in self._writer.add(columns, at, position, late):
            self._write_in_background(run)

    def finish(self) -> list[str]:
        """Write the remaining rows; returns the names of all files, complete though perhaps not durable yet."""
        for run, _ in self._writer.finish():
            self._names.append(self._new_name())
            self._store.write_once(self._names[-1], [run], durable=False)
        while self._waiting:
            self._waiting.popleft().result()
        if self._thread is not None:
            self._thread.shutdown()
        return self._names

    def _write_in_background(self, run: pa.Buffer) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        while len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft().result()
        self._names.append(self._new_name())
        self._waiting.append(self._thread.submit(self._make, self._names[-1], run))

    def _make(self, name: str, run: pa.Buffer) -> None:
        self._store.write_once(name, [run], durable=False)
        self._store.sync([name])
        self._store.set_aside(name)
