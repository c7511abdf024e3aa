"""The newest epochs of a hub in memory: when each was committed, its rows, times and state, and how far streams were behind."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import field
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.observation import EpochObservation
from headrace.time import Clock

_RETAINED: Final = 1200
"""Epochs: a minute of twenty a second."""


@dataclass(slots=True)
class RecentEpochs:
    """Facts about the newest epochs; each is a few numbers, however many operators ran."""

    clock: Clock
    _epochs: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_RETAINED))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def epoch(self, seen: EpochObservation) -> None:
        """An epoch was committed."""
        facts = {
            "epoch": seen.epoch,
            "kind": seen.kind,
            "at": self.clock(),
            "rows": seen.rows,
            "bytes": seen.bytes,
            "late": seen.late,
            "rejected": seen.rejected,
            "seconds": dict(seen.seconds),
            "state_bytes": seen.state_bytes,
            "state_runs": seen.state_runs,
            "operators": len(seen.operators),
            "lag": {name: stream.lag for name, stream in seen.streams.items()},
        }
        with self._lock:
            self._epochs.append(facts)

    def after(self, epoch: int, most: int) -> list[dict[str, Any]]:
        """The newest epochs after one, oldest first."""
        with self._lock:
            newer = [facts for facts in self._epochs if facts["epoch"] > epoch]
        return newer[-most:]
