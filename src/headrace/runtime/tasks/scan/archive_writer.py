"""The archive files of a scan task: rows are encoded, and full runs made durable, while the scan continues.

One thread encodes, another writes: neither needs Python's lock for long. The scan waits when it is three batches ahead of the first,
which waits when it is two runs ahead of the second, so that memory stays bounded. Small batches the scan encodes itself. A file
counts only once the task's receipt names it: a task that dies leaves files without a name in a manifest, which are collected.
A task that reads many rows does not read its files back soon, so their memory is freed for the next rows: pages that were
in use a moment before take a third of the time of new ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.archive.runs import Ints, RunWriter
from headrace.store.files.filesystem import Store

_ENOUGH: Final = 1 << 16
"""Rows of a batch from which threads are used."""


class Background:
    """A thread that does one thing after the other; at most `most` wait besides the one that it is doing."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()

    def do(self, thing: Callable[[], None]) -> None:
        """Do it later; raises the error of an earlier one."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        while len(self._waiting) > self._most:
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(thing))

    def finish(self) -> None:
        """Wait until all is done; raises the first error."""
        if self._thread is not None:
            with self._thread:
                while self._waiting:
                    self._waiting.popleft().result()


class Archiving:
    """Writes the runs of one stream in one task; `new_name` returns an unused file name, and `draws` the numbers of rows by
    which their blocks are drawn.
    """

    def __init__(
        self,
        store: Store,
        writer: RunWriter,
        new_name: Callable[[], str],
        draws: Callable[[Sequence[pa.Array], Ints], Ints] = lambda _, position: position,
    ) -> None:
        self._store, self._writer, self._new_name, self._draws = store, writer, new_name, draws
        self._encoding, self._writing = Background("encode", most=2), Background("archive", most=1)
        self._is_large = False
        self._names: list[str] = []

    def add(
        self, columns: Sequence[pa.Array], at: Ints, position: Ints, late: npt.NDArray[np.bool_] | None
    ) -> None:
        """Add a batch with its late rows."""

        def encode() -> None:
            draw = self._draws(columns, position)
            for run, _ in self._writer.add(columns, at, position, late, draw):
                self._names.append(self._new_name())
                self._writing.do(partial(self._make, self._names[-1], run))

        self._is_large = self._is_large or len(at) >= _ENOUGH
        if self._is_large:  # also of fewer rows that follow: rows stay in their order
            self._encoding.do(encode)
        else:
            encode()

    def finish(self) -> list[str]:
        """Write the remaining rows; returns the names of all files, complete though perhaps not durable yet."""
        self._encoding.finish()
        for run, _ in self._writer.finish():
            self._names.append(self._new_name())
            self._store.write_once(self._names[-1], [run], durable=False)
        self._writing.finish()
        return self._names

    def _make(self, name: str, run: pa.Buffer) -> None:
        self._store.write_once(name, [run], durable=False)
        self._store.sync([name])
        self._store.set_aside(name)
