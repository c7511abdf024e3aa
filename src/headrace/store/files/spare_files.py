"""Files that are made before they are needed, for folders in which files are made all the time.

To make a file a file system searches for a free inode. ext4 without a journal passes all of those that were freed in the last minute: 0.3
to 0.6 ms where epochs retire files, and an epoch makes five. A thread makes them meanwhile, without a name (`O_TMPFILE`): what
is not used vanishes with its descriptor, whatever happens to the process.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import field
from functools import cache
from typing import Final

from headrace.dataclass import dataclass

_STOCK: Final = 8
"""Files that a folder has at most."""
_LOW: Final = 4
"""So many or fewer wake the thread."""
_OFTEN: Final = 4
_OFTEN_SECONDS: Final = 0.5
"""A folder gets spare files once so many files were made in it in this time."""
_QUIET_SECONDS: Final = 0.0035
"""After the last file of the process, when spare ones are made."""
_PATIENCE_SECONDS: Final = 0.012
"""The longest wait for such a moment."""
_IDLE_SECONDS: Final = 1.0
"""After so long without a new file a folder has none in stock."""
_FLAGS: Final = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)


@dataclass(slots=True)
class _Stock:
    """The spare files of a folder, as descriptors, and when the last files were made there (seconds of the monotonic clock)."""

    made: deque[float] = field(default_factory=lambda: deque(maxlen=_OFTEN))
    descriptors: deque[int] = field(default_factory=deque)
    is_refused: bool = False
    """The file system has no files without a name, or lets them get none, or the folder is full or gone."""

    def is_low(self) -> bool:
        """Whether the thread has to make some."""
        often = len(self.made) == _OFTEN and self.made[-1] - self.made[0] < _OFTEN_SECONDS
        return often and not self.is_refused and len(self.descriptors) <= _LOW

    def fill(self, folder: str) -> None:
        """Make what is missing."""
        try:
            while len(self.descriptors) < _STOCK and not self.is_refused:
                self.descriptors.append(os.open(folder, _FLAGS, 0o644))
                # A file gets its name by this path, without which it would have none.
                if not os.path.lexists(f"/proc/self/fd/{self.descriptors[-1]}"):
                    self.is_refused = True
        except OSError:
            self.is_refused = True  # who makes a file in the ordinary way meets the error, if it is one

    def close(self) -> None:
        """Let go of all of them."""
        while self.descriptors:
            os.close(self.descriptors.popleft())


class SpareFiles:
    """The spare files of this process. Safe to use from threads."""

    def __init__(self) -> None:
        self._stocks: dict[str, _Stock] = {}
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_refused = False
        """Files may not be linked in this process."""

    def named(self, path: str) -> int | None:
        """A descriptor of a new, empty file of this name; None where there is no spare file, or it cannot have the name."""
        descriptor = self.nameless(path.rpartition("/")[0])
        if descriptor is None:
            return None
        try:
            self.name(descriptor, path)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def nameless(self, folder: str) -> int | None:
        """A descriptor of a new, empty file in a folder that has no name yet; None where there is no spare file."""
        return self._take(folder) if hasattr(os, "O_TMPFILE") else None

    def name(self, descriptor: int, path: str) -> None:
        """Give such a file its name in its folder. After an error the folder has no spare files any more, unless the name is taken or
        the disk is full; no folder has any where files may not be linked.
        """
        try:
            # With `src_dir_fd` the call follows the symbolic link to the file. The path is absolute, so any descriptor will do.
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOSPC, errno.EDQUOT}:
                folder = path.rpartition("/")[0]
                is_there = os.access(folder, os.F_OK)
                self._refuse(folder, everywhere=is_there or isinstance(error, PermissionError))
            raise

    def count(self) -> int:
        """How many there are."""
        with self._lock:
            return sum(len(stock.descriptors) for stock in self._stocks.values())

    def let_go(self) -> None:
        """Close all of them: for a process that has them from the one that it was forked from."""
        for stock in self._stocks.values():
            stock.close()

    def _take(self, folder: str) -> int | None:
        with self._lock:
            if folder not in self._stocks and self._thread is None:
                self._forget()
            stock = self._stocks.setdefault(folder, _Stock())
            stock.made.append(time.monotonic())
            usable = stock.descriptors and not (stock.is_refused or self._is_refused)
            descriptor = stock.descriptors.popleft() if usable else None
            if stock.is_low():
                self._wanted.set()
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="headrace-spare-files", daemon=True
                    )
                    with suppress(RuntimeError):  # the interpreter is ending
                        self._thread.start()
        return descriptor

    def _refuse(self, folder: str, *, everywhere: bool) -> None:
        with self._lock:
            self._is_refused = self._is_refused or everywhere
            stock = self._stocks.setdefault(folder, _Stock())
            stock.made.append(time.monotonic())
            stock.is_refused = True
            stock.close()

    def _run(self) -> None:
        while True:
            if self._wanted.wait(_IDLE_SECONDS):
                self._wanted.clear()
                self._await_quiet()
                self._fill()
            with self._lock:
                self._forget()
                if not self._stocks:
                    self._thread = None
                    return

    def _await_quiet(self) -> None:
        """Wait until no file was made for a moment: to make one holds up those that are synced."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            with self._lock:
                last = max((stock.made[-1] for stock in self._stocks.values()), default=0.0)
            left = min(last + _QUIET_SECONDS, end) - time.monotonic()
            if left <= 0:
                return
            time.sleep(left)

    def _fill(self) -> None:
        with self._lock:
            low = [(folder, stock) for folder, stock in self._stocks.items() if stock.is_low()]
        for folder, stock in low:
            stock.fill(folder)

    def _forget(self) -> None:
        """Let go of the files of folders in which none was made for a while."""
        now = time.monotonic()
        for folder in [f for f, stock in self._stocks.items() if now - stock.made[-1] > _IDLE_SECONDS]:
            self._stocks.pop(folder).close()


@cache
def spare_files() -> SpareFiles:
    """Those of this process."""
    return SpareFiles()


def _after_fork() -> None:
    """The parent's are not the child's to name, and threads do not survive a fork."""
    if spare_files.cache_info().currsize:
        spare_files().let_go()
        spare_files.cache_clear()


os.register_at_fork(after_in_child=_after_fork)
