"""When are files removed that no live manifest names? At every start, and every so many epochs, between two epochs.

What has to be kept beside what manifests and logs name: the plan in force, and micro-batches that Spark has written and
nobody has recorded yet. They are handed on at the next start, however long that takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.runtime.home import Home
from headrace.runtime.intake import Intake
from headrace.runtime.sources.segments import batch_name, batches_written
from headrace.store.collect import Collected, LiveNames, collect
from headrace.time import HOUR, Duration, Instant

GRACE: Final = HOUR
"""Unnamed files younger than this may be what a running attempt has just written."""
_SEGMENTS: Final = "segments"


@dataclass(slots=True)
class Housekeeping:
    """Collects the garbage of one home. Law: too much may be kept, nothing that is needed goes."""

    home: Home
    intake: Intake
    every: int = 64
    grace: Duration = GRACE
    _names: LiveNames = field(init=False)
    _epoch: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._names = LiveNames(self.home.store)

    def is_due(self, epoch: int) -> bool:
        """Whether enough epochs have passed since the last collection."""
        return epoch - self._epoch >= self.every

    def collect(self, epoch: int, plan: str, now: Instant) -> Collected:
        """Remove what is old enough and needed by nobody, at epoch `epoch` of which `plan` is in force."""
        self._epoch = epoch
        home = self.home
        return collect(
            home.store,
            home.manifests,
            now=now,
            grace=self.grace,
            also={plan, *self._unrecorded()},
            live=self._names,
        )

    def _unrecorded(self) -> Iterator[str]:
        """Segments of micro-batches above the last one that is in the ingest log."""
        for stream in self.home.catalog.streams.values():
            folder = Path(self.home.store.root) / _SEGMENTS / stream.name
            for batch in batches_written(folder):
                if batch > self.intake.last_batch(stream.name):
                    yield f"{_SEGMENTS}/{stream.name}/{batch_name(batch)}"
