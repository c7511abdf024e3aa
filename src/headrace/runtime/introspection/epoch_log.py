"""The home's log `epochs.jsonl`, written and read: a line of JSON for each epoch, each attempt that failed and each change
of a sink's or an action's state, for people and their tools.

No epoch depends on it: an epoch counts by its manifest. So a log that cannot be written (a full disk) stops nothing; its
lines wait for the next one.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from headrace.errors import StoreError
from headrace.observation import EpochObservation
from headrace.runtime.home.gc_control import MANY, collector_disabled
from headrace.runtime.introspection.rotating_metrics import RotatingMetrics
from headrace.store.files.filesystem import NotPermitted

EPOCHS: Final = "epochs.jsonl"
OLDER: Final = "epochs.1.jsonl"
LARGEST: Final = 16 << 20
"""Bytes of one log: two logs are retained, so they cover the newest epochs, however old the home is."""
SINK: Final = "sink"
"""The kind of lines about sinks."""
_MOST_WAITING: Final = 1 << 20
"""Bytes that wait while the disk is full; further lines are lost."""


class EpochLog:
    """Appends lines, whole ones in order, from any thread. `waiting` bytes could not be written yet."""

    def __init__(self, folder: Path, largest: int = LARGEST) -> None:
        self._path, self._largest = folder / EPOCHS, largest
        try:
            self._descriptor = self._open()
        except OSError as error:
            if not isinstance(error, PermissionError) and error.errno != errno.EROFS:
                raise StoreError(f"cannot write {folder / EPOCHS}: {error.strerror}") from error
            raise NotPermitted(
                f"cannot write {folder / EPOCHS}: {error.strerror}\n"
                "  Give this user the right to write there, or name another folder with --home DIR."
            ) from error
        self._waiting = b""
        self._lock = threading.Lock()
        self._rotation = RotatingMetrics()

    @property
    def waiting(self) -> int:
        """Bytes that could not be written yet."""
        return len(self._waiting)

    def epoch(self, seen: EpochObservation) -> None:
        """Append an epoch's line, which does not grow with the number of operators; see `rotating_metrics`."""
        with collector_disabled(len(seen.operators) >= MANY):
            self.write(self._rotation.line(seen, time.monotonic()))

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line, after those that wait."""
        with self._lock:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting += json.dumps(line).encode() + b"\n"
            self._flush()
            if not self._waiting and os.fstat(self._descriptor).st_size >= self._largest:
                self._rotate()

    def close(self) -> None:
        """Write the lines that wait, if the disk lets it, and close the file."""
        with self._lock:
            self._flush()
            os.close(self._descriptor)

    def _flush(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._descriptor, self._waiting) :]
        except OSError:  # the lines wait, and status shows how many bytes
            return

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _rotate(self) -> None:
        """The full log takes the place of the older one."""
        try:
            self._path.replace(self._path.with_name(OLDER))
            fresh = self._open()
        except OSError:  # it grows until there is room
            return
        os.close(self._descriptor)
        self._descriptor = fresh


def last_lines(folder: Path, most: int) -> list[dict[str, Any]]:
    """The newest lines about epochs, oldest first: those among the last `most` lines that are not of failures or sinks.

    A line that is not whole (its writer is at work, or was killed) is not read.
    """
    lines = _tail(folder / EPOCHS, most)
    if len(lines) < most:
        lines = _tail(folder / OLDER, most - len(lines)) + lines
    entries = [json.loads(line) for line in lines]
    return [line for line in entries if line["kind"] not in ("failure", SINK)]


def sink_lines(folder: Path) -> list[dict[str, Any]]:
    """All lines about sinks, oldest first; `state` is each sink's new state."""
    entries: list[dict[str, Any]] = []
    for name in (OLDER, EPOCHS):
        with suppress(FileNotFoundError), (folder / name).open("rb") as log:
            lines = [json.loads(line) for line in log if _OF_SINKS in line and line.endswith(b"\n")]
            entries += [line for line in lines if line["kind"] == SINK]
    return entries


_OF_SINKS: Final = b'"kind": "sink"'


_BLOCK: Final = 1 << 20


def _tail(path: Path, most: int) -> list[bytes]:
    """The last whole lines of a file; none where there is no file."""
    try:
        with path.open("rb") as log:
            tail, start = b"", log.seek(0, os.SEEK_END)
            while start > 0 and tail.count(b"\n") <= most:
                size = min(_BLOCK, start)
                start -= size
                log.seek(start)
                tail = log.read(size) + tail
    except FileNotFoundError:
        return []
    whole = tail[: tail.rfind(b"\n") + 1].splitlines()
    return (whole if start == 0 else whole[1:])[-most:]
