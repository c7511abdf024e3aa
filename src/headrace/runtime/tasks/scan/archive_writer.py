"""The archive files of a scan task: rows are encoded, and full runs made durable, while the scan continues.

One thread encodes, another writes: neither needs Python's lock for long. The scan waits when it is three batches ahead of the first,
which waits when it is two runs ahead of the second, so that memory stays bounded; with a limit of bytes also when more wait than that.
What is held is counted, and is a part of the memory budget. Small batches the scan encodes itself. A file
counts only once the task's receipt names it: a task that dies leaves files without a name in a manifest, which are collected.
A task that reads many rows does not read its files back soon, so their memory is freed for the next rows: pages that were
in use a moment before take a third of the time of new ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.archive.runs import Ints, RunWriter
from headrace.runtime.tasks.file_writes import AT_ONCE, LATER_ROWS, FileWrites
from headrace.store.files.filesystem import Store

_ENOUGH: Final = 1 << 16
"""Rows of a batch from which threads are used."""


class Held:
    """Bytes of rows and files that are not written yet: now, and the most that there were."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """So many more, or fewer."""
        with self._lock:
            self.now += size
            self.most = max(self.most, self.now)

    def fitted(self, size: int, most: int | None) -> bool:
        """So many more, if that is at most as many as given; whether it is."""
        with self._lock:
            if most is not None and self.now + size > most:
                return False
            self.now += size
            self.most = max(self.most, self.now)
            return True


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

    def wait(self) -> bool:
        """Wait for the thing that is done first; false if there is none. Raises its error."""
        if not self._waiting:
            return False
        self._waiting.popleft().result()
        return True

    def finish(self) -> None:
        """Wait until all is done; raises the first error."""
        if self._thread is not None:
            with self._thread:
                while self._waiting:
                    self._waiting.popleft().result()


class Archiving:
    """Writes the runs of one stream in one task; `new_name` returns an unused file name, and `draws` the numbers of rows by
    which their blocks are drawn. It holds at most `most` bytes, but for a row, and for what a file needs besides its rows.
    """

    def __init__(
        self,
        store: Store,
        writer: RunWriter,
        new_name: Callable[[], str],
        draws: Callable[[Sequence[pa.Array], Ints], Ints] = lambda _, position: position,
        most: int | None = None,
        writes: FileWrites = AT_ONCE,
    ) -> None:
        """`writes`: when files of few rows are written."""
        self.held, self._most, self._writes = Held(), most, writes
        self._few: list[Callable[[], None]] = []
        """What encodes rows that wait for the receipt."""
        self._waits = writes.is_later
        self._store, self._writer, self._new_name, self._draws = store, writer, new_name, draws
        self._encoding, self._writing = Background("encode", most=2), Background("archive", most=1)
        self._is_large, self._rows = False, 0
        self._names: list[str] = []

    def add(
        self, columns: Sequence[pa.Array], at: Ints, position: Ints, late: npt.NDArray[np.bool_] | None
    ) -> None:
        """Add a batch with its late rows."""
        size = sum(column.nbytes for column in columns) + at.nbytes + position.nbytes
        self._is_large = self._is_large or len(at) >= _ENOUGH
        parts = 1 if self._most is None else min(max(1, len(at)), -(-8 * size // self._most))
        if parts == 1:
            self._add(columns, at, position, late, size)
            return
        for low, high in pairwise(len(at) * number // parts for number in range(parts + 1)):
            part = [column.slice(low, high - low) for column in columns]
            is_late = None if late is None else late[low:high]
            self._add(part, at[low:high], position[low:high], is_late, size // parts)

    def _add(
        self,
        columns: Sequence[pa.Array],
        at: Ints,
        position: Ints,
        late: npt.NDArray[np.bool_] | None,
        size: int,
    ) -> None:
        def encode() -> None:
            before, draw = self._writer.held, self._draws(columns, position)
            runs = self._writer.add(columns, at, position, late, draw)
            self.held.add(self._writer.held - before - size)
            for run in runs:
                self._hold(run.size, self._writing)
                self._names.append(self._new_name())
                self._writing.do(partial(self._make, self._names[-1], run))

        self._hold(size, self._encoding)
        self._rows += len(at)
        if self._is_large:  # also of fewer rows that follow: rows stay in their order
            self._encode_few(self._encoding.do)
            self._encoding.do(encode)
        else:
            self._few.append(encode)
            self._waits = self._waits and self._may_wait()
            if not self._waits:
                self._encode_few(lambda each: each())

    def _may_wait(self) -> bool:
        """Whether the rows are few enough, in number and bytes, to be encoded after the receipt is sent."""
        are_small = self._most is None or self.held.now <= self._most // 2
        return self._rows <= LATER_ROWS and are_small

    def _encode_few(self, do: Callable[[Callable[[], None]], None]) -> None:
        """Encode the rows that wait for the end."""
        few, self._few = self._few, []
        for encode in few:
            do(encode)

    def _hold(self, size: int, thread: Background) -> None:
        """So many bytes more, once there is room for them, or nothing that waits for a thread takes any."""
        while not self.held.fitted(size, self._most):
            if not thread.wait():
                self.held.add(size)
                return

    def finish(self) -> list[str]:
        """Write the remaining rows; returns the names of all files, complete though perhaps not durable yet, or written later."""
        if self._few:
            self._names.append(self._new_name())
            self._writes.add(self._write_few)
            return self._names
        self._encoding.finish()
        for run in self._writer.finish():
            self.held.add(run.size)
            self._names.append(self._new_name())
            self._store.write_once(self._names[-1], [run], durable=False)
        self._writing.finish()
        return self._names

    def _write_few(self) -> None:
        """Write all rows as one run."""
        self._writer.gathers, self._writer.most_bytes = True, None
        self._encode_few(lambda each: each())
        (run,) = self._writer.finish()
        self._store.write_once(self._names[0], [run], durable=False)

    def _make(self, name: str, run: pa.Buffer) -> None:
        self._store.write_once(name, [run], durable=False)
        self._store.sync([name])
        self._store.set_aside(name)
        self.held.add(-run.size)
