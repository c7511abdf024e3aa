"""When the files of an epoch's tasks are written: at once, or once the receipts that name them are on their way.

The driver needs the names for the next manifest, and the files only when it makes them durable. So standing tasks answer first, and
write while the driver computes the manifest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

LATER_ROWS: Final = 1 << 14
"""Rows of which a file is written later: those of more would stay in memory for long."""


class FileWrites:
    """The files of one execution: each is written as soon as it is made."""

    is_later = False
    """Whether files are written after the receipts."""

    def add(self, write: Callable[[], object]) -> None:
        """Write a file, now or later."""
        write()


AT_ONCE: Final = FileWrites()


class LaterWrites(FileWrites):
    """The same, written by `finish`."""

    is_later = True

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()

    def add(self, write: Callable[[], object]) -> None:
        """Write a file later."""
        self._waiting.append(write)

    def finish(self) -> None:
        """Write all files; raises the error of the first that cannot be written, and leaves out those after it."""
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self.drop()

    def drop(self) -> None:
        """Write none of them: what names them does not count."""
        self._waiting.clear()
