"""The merging of runs of results: which sealed part of the results list is due, the file that replaces its runs, and the manifest
that names it in their place.

Sixty-four entries of the list become parts of one file for each class of retention, and 64 such files one of 4,096 entries. An
entry stays where it is in the list, with its epoch and its class; only the file that it names is another one. So the cursor of
a follower means the same, and a history opens a number of files that grows with the logarithm of its length. A merged run is
written before a manifest names it, and a manifest names either it or the runs that it replaces: a kill between leaves a file
without a name. Results of dropped queries, and what has expired, are left out. Source: the log-structured merge-tree (O'Neil et al.).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.runtime.home import file_names
from headrace.runtime.home.background_write import BackgroundWrite
from headrace.runtime.home.home import Home
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.result_entry import few_facts
from headrace.runtime.results.merged_file import Input, Merge, TooLarge
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles, RadixList, covered, flat_segment
from headrace.store.maintenance.retention_classes import (
    CLASS,
    PART,
    RETAIN_ALL,
    class_of,
    expired_of,
    is_expired,
)

MERGED: Final = "merged results"
"""The fact of a manifest with the entries of the results list up to which runs were merged: by 64, and by 4,096."""
RESULTS: Final = "results"
_BYTES: Final = 1 << 26
"""Bytes of merged runs that are written after one epoch: no more start."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge has written: `segment` in place of the sealed file `replaces` of a height, whose first entry is `first`.

    Without a segment nothing is replaced: all is expired, or too large.
    """

    height: int
    first: int
    replaces: str = ""
    segment: str | None = None
    bytes: int = 0


def merged_to(manifest: Manifest) -> tuple[int, int]:
    """The entries of the results list up to which runs were merged, by 64 and by 4,096."""
    low, high = manifest.facts.get(MERGED, (0, 0))
    return low, high


def next_range(listed: RadixList, marks: Sequence[int]) -> tuple[int, int] | None:
    """Height and first entry of the next sealed file whose runs are merged; None where none is due."""
    low, high = (
        max(mark, listed.start - listed.start % covered(height)) for height, mark in enumerate(marks)
    )
    if high + covered(1) <= low:
        return 1, high
    if low + covered(0) <= listed.length - len(listed.tail):
        return 0, low
    return None


@dataclass(frozen=True, slots=True)
class Merger:
    """The merging of a home's results as of a manifest; `is_needed` is whether there is a query, by its operator."""

    home: Home
    manifest: Manifest
    is_needed: Callable[[str], bool]

    def merged(self) -> list[Merged]:
        """Merge what is due, durably, up to some bytes."""
        listed, marks = self.home.list_of(self.manifest, RESULTS), list(merged_to(self.manifest))
        done: list[Merged] = []
        while sum(one.bytes for one in done) < _BYTES:
            due = next_range(listed, marks)
            if due is None or (due[0] and done):  # of files that a manifest names already
                break
            done.append(self._merged(listed, *due))
            marks[due[0]] = due[1] + covered(due[0])
        return done

    def _merged(self, listed: RadixList, height: int, first: int) -> Merged:
        store, expired = self.home.store, expired_of(self.manifest, RESULTS)
        sealed = listed.sealed(height, first, store.read)
        if sealed is None:
            return Merged(height, first)
        entries, by_class = list(sealed.entries), dict[str, dict[str, list[int]]]()
        for at, entry in enumerate(entries):
            if first + at >= listed.start and not is_expired(expired, first + at, entry) and "name" in entry:
                by_class.setdefault(class_of(entry), {}).setdefault(entry["name"], []).append(at)
        written = 0
        for files in by_class.values():
            name = file_names.merged_results(first, len(entries))
            try:
                size = Merge(store, self.is_needed).write(
                    name, [_input(entries, *file) for file in files.items()]
                )
            except (
                TooLarge,
                CorruptStore,
            ):  # a damaged run stays where it is, for its readers and the check to report
                continue
            written += size or 0
            for at in (at for places in files.values() for at in places):
                entries[at] = self._part(entries[at], at, name if size else None)
        if entries == list(sealed.entries):
            return Merged(height, first)
        segments = ListFiles(store)
        segment = segments.write(flat_segment(height, entries))
        store.sync(segments.unsynced)
        return Merged(height, first, sealed.name, segment, written)

    def _part(self, entry: Mapping[str, Any], part: int, name: str | None) -> dict[str, Any]:
        """The entry as a part of a merged run; without a run if no query of it is left.

        Of what expires it is known later which queries had results, if that is in the entry already.
        """
        new = {"epoch": entry["epoch"], CLASS: class_of(entry), PART: part}
        if class_of(entry) != RETAIN_ALL:
            new |= few_facts(entry, self.is_needed)
        return new if name is None else {**new, "name": name}


def _input(entries: Sequence[Mapping[str, Any]], name: str, places: Sequence[int]) -> Input:
    if PART not in entries[places[0]]:
        return Input(name, places[0], {})
    return Input(name, None, {entries[at][PART]: at for at in places})


def with_merged(manifest: Manifest, done: Merged, files: ListFiles) -> Manifest:
    """The manifest with what a merge has written; without it where it has another sealed file there by now."""
    listed, marks = manifest.lists.get(RESULTS, RadixList()), list(merged_to(manifest))
    if done.segment is not None:
        name = listed.segment_at(done.height, done.first, files.read)
        if name is not None:
            if name != done.replaces:
                return manifest
            listed = listed.with_segment(done.height, done.first, done.segment, files.write, files.read)
    marks[done.height] = done.first + covered(done.height)
    return replace(
        manifest, lists=manifest.lists.changed({RESULTS: listed}), facts={**manifest.facts, MERGED: marks}
    )


@dataclass(slots=True)
class Merging:
    """The merging of a home's results while its epochs run: in a thread, and the next epoch's manifest names what it has written."""

    home: Home
    writing: BackgroundWrite[list[Merged]] = field(
        default_factory=lambda: BackgroundWrite("headrace-merging")
    )
    """The next manifest takes in what it has written."""

    def settled(self, planned: Manifest, files: ListFiles) -> Manifest:
        """An epoch's manifest with the merged runs that were written."""
        for done in self.writing.taken() or ():
            planned = with_merged(planned, done, files)
        return planned

    def discard(self) -> None:
        """Leave out what no manifest names yet: a full collection may delete it."""
        self.writing.wait()
        self.writing.taken()

    def look(self, manifest: Manifest, plan: EpochPlan, *, in_thread: bool) -> None:
        """Merge what is due after an epoch, in a thread of its own with `in_thread`. Raises the failure of the last time."""
        if not self.writing.is_free():
            return
        if next_range(self.home.list_of(manifest, RESULTS), merged_to(manifest)) is None:
            return
        registered = {query.operator_id for query in self.home.catalog.queries.values()}
        merger = Merger(self.home, manifest, (registered | plan.planned.keys()).__contains__)
        self.writing.start(merger.merged, in_thread=in_thread)
