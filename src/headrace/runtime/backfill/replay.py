"""The next piece of the past for operators that are behind: which entries of which archives, and how far that brings them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.backfill import union_replay
from headrace.runtime.backfill.backfill_scheduler import Chunk, Group, chunk_of, longest_backfill
from headrace.runtime.backfill.operator_progress import ArchiveEntry, splits_of
from headrace.runtime.backfill.union_replay import Bundle
from headrace.runtime.home.home import Home
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.plan.union_streams import USING
from headrace.runtime.progress.punctuation import progress_of
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList
from headrace.time import Instant

Records = Callable[[StreamDefinition, Sequence[ArchiveEntry]], Mapping[int, Mapping[str, Any]]]
"""The ingest records of a stream's entries, where it is read in place."""


@dataclass(frozen=True, slots=True)
class Archives:
    """The archives that a manifest names."""

    home: Home
    manifest: Manifest
    plan: EpochPlan

    def length(self, stream: str) -> int:
        """Where readers of a stream stand who have folded all of its past."""
        return union_replay.length(self.plan.streams[stream], self.manifest)

    def chunk(self, late: Mapping[str, tuple[str, int]], size: Chunk, records: Records) -> EpochWork:
        """What operators fold next; `late` has the stream and the place of each that is behind."""
        behind = longest_backfill(late)
        definition = self.plan.streams[behind.stream]
        bundles = self._bundles(definition, behind, size)
        splits = [
            (split, entry.rows + 1)
            for name, entries in _by_stream(bundles).items()
            for known in (records(self.plan.streams[name], entries),)
            for entry in entries
            for split in splits_of(entry, self.plan.streams[name], known)
        ]
        end = bundles[-1].place
        return EpochWork(
            "replay",
            tuple(splits),
            behind.operators,
            punctuations=dict.fromkeys(behind.operators, self._punctuation(definition, bundles[-1])),
            replayed=dict.fromkeys(behind.operators, end),
            relations=bundles[0].relations,
        )

    def _bundles(self, stream: StreamDefinition, behind: Group, size: Chunk) -> list[Bundle]:
        read, until = self.home.store.read, behind.until
        if stream.using == USING:
            found = union_replay.bundles(stream, self._list, read, behind.start)
        else:
            listed = self._list(stream.name).iterate(read, behind.start)
            found = (
                Bundle(index + 1, ((stream.name, ArchiveEntry.from_json(entry)),)) for index, entry in listed
            )
        return chunk_of(takewhile(lambda each: until is None or each.place <= until, found), size, None)

    def _punctuation(self, stream: StreamDefinition, last: Bundle) -> Instant:
        """What was promised after the chunk's last epoch; when that was the last of all, what is promised today."""
        if last.place == self.length(stream.name):
            return self._today(stream.name)
        if stream.using != USING:
            return last.entries[0][1].after
        today = {name: self._today(name) for name in self.plan.streams}
        return union_replay.punctuation_at(stream, self._list, self.home.store.read, last.place, today)

    def _today(self, stream: str) -> Instant:
        return progress_of(self.manifest.stream(stream)).punctuation

    def _list(self, stream: str) -> RadixList:
        return self.home.list_of(self.manifest, f"archive:{stream}")


def _by_stream(bundles: Sequence[Bundle]) -> dict[str, list[ArchiveEntry]]:
    found: dict[str, list[ArchiveEntry]] = {}
    for bundle in bundles:
        for name, entry in bundle.entries:
            found.setdefault(name, []).append(entry)
    return found
