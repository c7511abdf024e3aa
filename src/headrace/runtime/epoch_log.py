"""The home's `epochs.jsonl`: a line of JSON for each epoch and each attempt that failed, for people and their tools.

It is no truth of ours: an epoch counts by its manifest. So a log that cannot be written (a full disk) stops nothing; its
lines wait for the next one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headrace.store.filesystem import NotPermitted

EPOCHS: Final = "epochs.jsonl"
_MOST_WAITING: Final = 1 << 20
"""Bytes that wait while the disk is full; what comes then is lost."""


class EpochLog:
    """Appends lines, whole ones in order. `waiting` bytes could not be written yet."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._descriptor = os.open(folder / EPOCHS, flags, 0o644)
        except PermissionError as error:
            raise NotPermitted(
                f"cannot write {folder / EPOCHS}: {error.strerror}\n"
                "  Give this user the right to write there, or name another folder with --home DIR."
            ) from error
        self._waiting = b""

    @property
    def waiting(self) -> int:
        """Bytes that could not be written yet."""
        return len(self._waiting)

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line, after those that wait."""
        if len(self._waiting) < _MOST_WAITING:
            self._waiting += json.dumps(line).encode() + b"\n"
        self._flush()

    def close(self) -> None:
        """Write what waits, if the disk lets it, and let go of the file."""
        self._flush()
        os.close(self._descriptor)

    def _flush(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._descriptor, self._waiting) :]
        except OSError:  # the lines wait, and status tells how many bytes
            return
