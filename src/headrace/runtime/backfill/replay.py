"""The next chunk of a backfill, as the work of an epoch: which entries of which archives operators read, or which slices of a
large one, and their progress after it.

Operators that have read a part of an entry have not emitted by it: its punctuation applies once they have read all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.runtime.backfill import union_replay
from headrace.runtime.backfill.archive_entries import ArchiveEntry, rejects_of, splits_of
from headrace.runtime.backfill.backfill_scheduler import (
    Chunk,
    Group,
    Position,
    chunk_of,
    longest_backfill,
)
from headrace.runtime.backfill.entry_slices import first_slices, in_few_splits, slices_of
from headrace.runtime.backfill.union_replay import Bundle
from headrace.runtime.home.home import Home
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import Participants, RejectsFile
from headrace.runtime.plan.union_streams import USING, inputs_of
from headrace.runtime.progress.committed_progress import progress_of
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
        """The position of readers that have folded all of a stream's archive."""
        return self.manifest.length_of(stream)

    def chunk(
        self, backfilling: Mapping[str, tuple[str, Position]], size: Chunk, records: Records
    ) -> EpochWork:
        """The work of the next chunk; `backfilling` has the stream and the position of each operator that is backfilling."""
        group = longest_backfill(backfilling)
        definition = self.plan.streams[group.stream]
        bundles = self._bundles(definition, group, size)
        meets = group.until is not None and group.until[0] == group.start[0]  # others have read a part of it
        takes_parts = not any(self.plan.operators[name].counts_arrivals for name in group.operators)
        if takes_parts and (group.start[1] or meets or bundles[0].rows > max(size.rows, size.enough or 0)):
            return self._slice(definition, group, size, bundles[0], records)
        splits = [
            (split, entry.rows + 1)
            for name, entries in _by_stream(bundles).items()
            for of_all in ((records(self.plan.streams[name], entries), self._rejects(name, entries)),)
            for entry in entries
            for split in splits_of(entry, self.plan.streams[name], *of_all)
        ]
        end = bundles[-1].position
        return EpochWork(
            "replay",
            tuple(splits),
            Participants(frozenset(group.operators)),
            punctuations=dict.fromkeys(group.operators, self._punctuation(definition, bundles[-1])),
            replayed=dict.fromkeys(group.operators, end),
            relations=bundles[0].relations,
        )

    def _slice(
        self, stream: StreamDefinition, group: Group, size: Chunk, bundle: Bundle, records: Records
    ) -> EpochWork:
        """The next slices of a bundle; the last ones complete it."""
        slices = [
            piece
            for name, entry in bundle.entries
            for of_all in ((records(self.plan.streams[name], [entry]), self._rejects(name, [entry])),)
            for piece in slices_of(self.home.store, entry, self.plan.streams[name], *of_all)
        ]
        entries, first = group.start
        most = group.until[1] if group.until is not None and group.until[0] == entries else len(slices)
        chosen = first_slices(slices[first:most], max(size.rows, size.enough or 0))
        operators, read = group.operators, first + len(chosen)
        work = EpochWork(
            "replay",
            tuple(in_few_splits(chosen)),
            Participants(frozenset(operators)),
            relations=bundle.relations,
        )
        if read >= len(slices):
            after = dict.fromkeys(operators, self._punctuation(stream, bundle))
            return replace(work, punctuations=after, replayed=dict.fromkeys(operators, bundle.position))
        return replace(
            work,
            punctuations={name: self.manifest.operator(name).emitted_to for name in operators},
            replayed=dict.fromkeys(operators, entries),
            slices=dict.fromkeys(operators, read),
        )

    def _bundles(self, stream: StreamDefinition, group: Group, size: Chunk) -> list[Bundle]:
        read, start = self.home.store.read, group.start[0]
        until = None if group.until is None or group.until[0] == start else group.until[0]
        if stream.using == USING:
            bundles = union_replay.bundles(stream, self._list, read, start)
        else:
            listed = self._list(stream.name).iterate(read, start)
            bundles = (
                Bundle(index + 1, ((stream.name, ArchiveEntry.from_json(entry)),)) for index, entry in listed
            )
        return chunk_of(
            takewhile(lambda bundle: until is None or bundle.position <= until, bundles), size, None
        )

    def _punctuation(self, stream: StreamDefinition, last: Bundle) -> Instant:
        """The punctuation after the chunk's last epoch; when that was the latest epoch, the current one."""
        if last.position == self.length(stream.name):
            return self._current(stream.name)
        if stream.using != USING:
            return last.entries[0][1].after
        current = {part.stream: self._current(part.stream) for part in inputs_of(stream)}
        return union_replay.punctuation_at(stream, self._list, self.home.store.read, last.position, current)

    def _current(self, stream: str) -> Instant:
        return progress_of(self.manifest.stream(stream)).punctuation

    def _rejects(self, stream: str, entries: Sequence[ArchiveEntry]) -> Mapping[int, RejectsFile]:
        listed = self.home.list_of(self.manifest, f"rejects:{stream}")
        return rejects_of(entries, listed, self.home.store.read)

    def _list(self, stream: str) -> RadixList:
        return self.home.list_of(self.manifest, f"archive:{stream}")


def _by_stream(bundles: Sequence[Bundle]) -> dict[str, list[ArchiveEntry]]:
    by_stream: dict[str, list[ArchiveEntry]] = {}
    for bundle in bundles:
        for name, entry in bundle.entries:
            by_stream.setdefault(name, []).append(entry)
    return by_stream
