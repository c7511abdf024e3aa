"""The system calls of the store that change files: the methods of `Disk`, and no others.

A test can replace this one small object, stop the process before or after any call, tear a write, or lose what was never
synced, and then restart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headrace.store.files.spare_files import spare_files

_AT_ONCE: Final = 512
"""Buffers of one gather-write; systems refuse more than 1024."""


class Disk:
    """The calls themselves. Paths are absolute; errors are the operating system's (`OSError`)."""

    syncs = True
    """Whether what was synced survives a power cut."""

    def create(self, path: str) -> int:
        """A descriptor of a new file that only this call can have made: a spare one, where the folder has one."""
        descriptor = spare_files().named(path)
        if descriptor is None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        return descriptor

    def nameless(self, folder: str) -> int | None:
        """A descriptor of a new file of a folder that has no name yet, and vanishes without one; None where there is none."""
        return spare_files().nameless(folder)

    def name(self, descriptor: int, path: str) -> None:
        """Give a file without a name its name; fails when that is taken, however many try at once."""
        spare_files().name(descriptor, path)

    def write(self, descriptor: int, parts: Iterable[bytes | memoryview]) -> int:
        """Write all parts one after the other; the number of bytes written."""
        views = [view for part in parts if (view := memoryview(part)).nbytes]
        total = sum(view.nbytes for view in views)
        at = 0
        while at < len(views):
            written = os.writev(descriptor, views[at : at + _AT_ONCE])
            while at < len(views) and written >= views[at].nbytes:
                written -= views[at].nbytes
                at += 1
            if written:  # the call stopped in the middle of a part
                views[at] = views[at].cast("B")[written:]
        return total

    def fsync(self, descriptor: int) -> None:
        """Return once the file's bytes would survive a power cut."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""
        os.close(descriptor)

    def fsync_file(self, path: str) -> None:
        """As `fsync`, for a file that another process wrote and closed."""
        self._fsync_path(path, os.O_RDONLY)

    def fsync_folder(self, path: str) -> None:
        """Return once the folder's names would survive a power cut."""
        self._fsync_path(path, os.O_RDONLY | os.O_DIRECTORY)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; fails when the name is taken, however many try at once."""
        os.link(source, target)

    def rename(self, source: str, target: str) -> None:
        """Replace a file at once: for files shown to others, whose names stay. Nothing in a home is replaced."""
        os.replace(source, target)  # noqa: PTH105

    def unlink(self, path: str) -> None:
        """Remove a name; readers that have the file mapped keep it."""
        os.unlink(path)  # noqa: PTH108 - a path object costs more than the call

    def mkdir(self, path: str) -> None:
        """Make one folder."""
        Path(path).mkdir()

    @staticmethod
    def _fsync_path(path: str, flags: int) -> None:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class UnsyncedDisk(Disk):
    """The calls without the syncs: for a home that its process deletes at its end, so that nothing has to survive a power cut."""

    syncs = False

    def fsync(self, descriptor: int) -> None:
        """Return at once."""

    def fsync_file(self, path: str) -> None:
        """Return at once."""

    def fsync_folder(self, path: str) -> None:
        """Return at once."""
