"""Collection of files that no live manifest names: at every start, and every `Housekeeping.every` epochs, between two epochs.

Besides the files of manifests and logs it keeps those of the plan in force, and micro-batches that Spark has written and that
are not in the ingest log yet: the next start logs them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.connectors.sources.segment_files import batch_name, batches_written
from headrace.runtime.home.file_names import segments
from headrace.runtime.home.home import Home
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.runtime.ingest.ingest_summary import INTAKE
from headrace.store.maintenance.garbage_collection import Collected, LiveNames, collect, live_manifests
from headrace.time import HOUR, Duration, Instant

GRACE: Final = HOUR
"""Unnamed files younger than this may be of a running attempt."""


@dataclass(slots=True)
class Housekeeping:
    """Collects the garbage of one home. It may keep too much; it never removes a file that is needed."""

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

    def collect(self, epoch: int, plan: Collection[str], now: Instant) -> Collected:
        """Remove files that are old enough and not needed, at epoch `epoch`; `plan` are the files of the plan in force."""
        self._epoch = epoch
        home = self.home
        summarised = home.latest().facts.get(INTAKE)
        if summarised is not None:
            home.ingest_log.drop_before(summarised["upto"])
        return collect(
            home.store,
            home.manifests,
            now=now,
            grace=self.grace,
            also={*plan, *self._unrecorded()},
            superseded=self._superseded_relations(),
            live=self._names,
        )

    def _superseded_relations(self) -> set[str]:
        """Versions of relations that were replaced before the oldest manifest. An archive may still name them."""
        oldest = min(manifest.querylog for manifest in live_manifests(self.home.manifests))
        files: dict[str, str] = {}
        superseded = set()
        for ordinal, entry in self.home.query_log.read(0):
            if ordinal < oldest and entry["do"] == "put_relation":
                name = entry["relation"]["name"].lower()
                if name in files:
                    superseded.add(files[name])
                files[name] = entry["file"]
            elif ordinal < oldest and entry["do"] == "drop" and entry["kind"] == "relation":
                superseded.add(files.pop(entry["name"].lower()))
        return superseded

    def _unrecorded(self) -> Iterator[str]:
        """Segments of micro-batches above the last one that is in the ingest log."""
        for stream in self.home.catalog.streams.values():
            folder = segments(stream.name)
            for batch in batches_written(Path(self.home.store.root) / folder):
                if batch > self.intake.last_batch(stream.name):
                    yield f"{folder}/{batch_name(batch)}"
