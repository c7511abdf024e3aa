"""The lines that each test executes, in its own process and in those that it starts, into one file per test.

A sandbox puts this module on the path as `sitecustomize`, so that every Python process writes what it executes as soon as it
does: a process that is killed has written it too. Of a function, the first calls of a test are followed line by line, later
ones are not, which keeps traced tests about as fast as others.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

FOLDER = "MUTANTS_LINES"
"""The environment variable with the folder to write into. Unset: nothing is traced."""
ROOTS = "MUTANTS_ROOTS"
"""The one with the folders whose modules are followed, separated by colons."""
TEST = "MUTANTS_TEST"
"""The one with the test that runs, or the file whose fixtures do."""
_CALLS = 8


def file_of(folder: Path, test: str) -> Path:
    """Where the lines of a test, or of a file's fixtures, are written: `path:line` in every line."""
    return folder / hashlib.blake2s(test.encode(), digest_size=12).hexdigest()


class Tracer:
    """A trace function of this process; `restart` at each new test."""

    def __init__(self, folder: Path, roots: tuple[str, ...]) -> None:
        self._folder, self._roots = folder, roots
        self._file = -1
        self.restart()

    def restart(self) -> None:
        """Write from now on for the test that the environment names now."""
        self._calls: dict[int, int] = {}
        self._seen: set[tuple[str, int]] = set()
        test, before = os.environ.get(TEST, ""), self._file
        self._file = os.open(file_of(self._folder, test), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if before >= 0:
            os.close(before)  # other threads write to the new one

    def enter(self, frame: FrameType, event: str, _: Any) -> Any:
        """As `sys.settrace` wants it: called for every new frame."""
        code = id(frame.f_code)  # the hash of a code object is that of all its names
        calls = self._calls.get(code)
        if calls is None:
            calls = 0 if frame.f_code.co_filename.startswith(self._roots) else _CALLS
        if calls >= _CALLS:
            self._calls[code] = calls
            return None
        self._calls[code] = calls + 1
        return self._line(frame, "line", None)

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        place = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and place not in self._seen and place[0].startswith(self._roots):
            self._seen.add(place)
            os.write(self._file, f"{place[0]}:{place[1]}\n".encode())
        return self._line


TRACER: Tracer | None = None
if __name__ == "sitecustomize" and os.environ.get(FOLDER):
    TRACER = Tracer(Path(os.environ[FOLDER]), tuple(os.environ[ROOTS].split(":")))
    threading.settrace(TRACER.enter)
    sys.settrace(TRACER.enter)
