"""How much memory a process and all its descendants really take: the proportional set size, at its peak.

Shared pages are divided among those that share them, so forked workers and mapped files are not counted twice.
Linux only.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

_PROC = Path("/proc")
EVERY_SECONDS = 0.5
"""Cheap enough not to be seen in what is timed; where memory itself is the question, ask more often."""


def tree_pss_kb(root: int) -> int:
    """The sum over `root` and its descendants, in kB; processes that end meanwhile count nothing."""
    children = _children()
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        total += _pss_kb(process)
        waiting.extend(children.get(process, ()))
    return total


class PeakMemory:
    """Samples a tree between `with` and its end; `peak_kb` is the greatest of `samples` sums seen."""

    def __init__(self, root: int, every_seconds: float = EVERY_SECONDS) -> None:
        self.peak_kb = self.samples = 0
        self._root, self._every, self._done = root, every_seconds, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._every):
            self.peak_kb = max(self.peak_kb, tree_pss_kb(self._root))
            self.samples += 1


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has just ended
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    return children


def _pss_kb(process: int) -> int:
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
