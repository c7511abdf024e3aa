"""A scan task's share of the archive: full runs are written, and made durable, while the scan reads on.

One thread writes; when it falls behind by a run the scan waits for it, so that memory stays bounded. Nothing refers to a
file before the task's receipt names it: a task that dies leaves files that nobody knows, which are collected.

Whoever brings many rows at once does not want them back at once, while the memory that would hold their files can be had for the
next ones: pages that had been used a moment before take a third of the time of fresh ones.
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
    """Writes the runs of one stream in one task; `new_name` gives a name that no file has."""

    def __init__(self, store: Store, writer: RunWriter, new_name: Callable[[], str]) -> None:
        self._store, self._writer, self._new_name = store, writer, new_name
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()
        self._names: list[str] = []

    def add(
        self, columns: Sequence[pa.Array], at: Ints, position: Ints, late: npt.NDArray[np.bool_] | None
    ) -> None:
        """Take in a batch, whatever its fate."""
        for run, _ in self._writer.add(columns, at, position, late):
            self._write_in_background(run)

    def finish(self) -> list[str]:
        """Write what is left; the names of all files, whole though perhaps not durable yet."""
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
