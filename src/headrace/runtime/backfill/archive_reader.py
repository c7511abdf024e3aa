"""Readers of a stream's archive, cached in the process: the columns of a run, decoded once, and the list of entries,
searched by event time.

An archive run is never rewritten, so decoded columns stay valid; the least recently used ones are evicted when the cache
exceeds its bytes. The list of runs of a stream only grows, so a process reads each entry of it once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.archive import runs
from headrace.archive.run_file import RunFile
from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, as_int64, flat, ints
from headrace.operators.on_demand.row_bitmaps import CHUNK, CHUNK_BITS
from headrace.runtime.backfill.archive_entries import ArchiveEntry, Piece
from headrace.runtime.home.home import Home
from headrace.store.files.filesystem import Store
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList, Read, leaf_entries
from headrace.time import BEGINNING, Instant

_MOST_BYTES: Final = 256 << 20
_OWN: Final = "@"
"""Prefix of keys of values derived from a run, which no column name has."""


class _Weighed:
    """A cache of decoded columns with a limit in bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._values: OrderedDict[tuple[str, str, str], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str, str], make: Callable[[], tuple[Any, int]]) -> Any:
        """The value of a key, made when it is not cached; `make` also returns its size in bytes."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        value, size = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = value, size
                self._bytes += size
            while self._bytes > self._most and len(self._values) > 1:
                self._bytes -= self._values.popitem(last=False)[1][1]
        return value


_columns: Final = _Weighed(_MOST_BYTES)


@dataclass(frozen=True, slots=True)
class Keys:
    """Of a run's rows: event time, position, whether accepted (None: all), and the positions of their bits.

    `chunks` are those in which the run has rows, ascending; the bit of row i is number `bit[i]` of their bitmaps, one after
    the other. `ordered`: rows are in order of time. `from_bit`: rows have consecutive bits from that one on.
    """

    at: Ints
    position: Ints
    accepted: np.ndarray | None
    chunks: Ints
    bit: Ints
    ordered: bool
    from_bit: int | None

    @property
    def bytes(self) -> int:
        """Their size in memory."""
        return self.at.nbytes + self.position.nbytes + self.bit.nbytes

    def within(self, begin: Instant, end: Instant) -> slice | Ints:
        """The rows with begin <= time <= end."""
        if self.ordered:
            low, high = np.searchsorted(self.at, begin), np.searchsorted(self.at, end, side="right")
            return slice(int(low), int(high))
        rows: Ints = np.flatnonzero((self.at >= begin) & (self.at <= end))
        return rows


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """One run of a stream's archive."""

    store: Store
    piece: Piece
    stream: StreamDefinition

    @property
    def keys(self) -> Keys:
        """The columns that windows and bitmaps need."""
        keys: Keys = _columns.get(self._key(f"{_OWN}keys"), self._make_keys)
        return keys

    def column(self, name: str) -> pa.Array:
        """One of the stream's columns."""
        return _columns.get(self._key(name), lambda: self._made(name))

    def _key(self, name: str) -> tuple[str, str, str]:
        first = "" if self.piece.groups is None else f"{self.piece.groups[:1]}"
        return str(self.store.root), self.piece.file, f"{first}{name}"

    def _made(self, name: str) -> tuple[pa.Array, int]:
        column = flat(self._read([name]).column(name))
        return column, column.nbytes

    def _read(self, names: list[str]) -> pa.Table:
        return self._file.read(names, self.piece.groups)

    @property
    def _file(self) -> RunFile:
        return RunFile.of(self.store.map(self.piece.file), self.piece.file)

    def _make_keys(self) -> tuple[Keys, int]:
        file = self._file
        time = file.time_column(self.stream.time)
        table = file.read(list(dict.fromkeys([time, runs.POSITION, runs.FATE])), self.piece.groups)
        at, position = as_int64(flat(table.column(time))), ints(table, runs.POSITION)
        accepted = ints(table, runs.FATE) == runs.ACCEPTED
        chunks, index = np.unique(position >> CHUNK_BITS, return_inverse=True)
        bit = index * CHUNK + (position & (CHUNK - 1))
        dense = len(bit) > 0 and bool((np.diff(bit) == 1).all())
        keys = Keys(
            at,
            position,
            None if accepted.all() else accepted,
            chunks,
            bit,
            not (np.diff(at) < 0).any(),
            int(bit[0]) if dense else None,
        )
        return keys, keys.bytes


@dataclass(slots=True)
class ArchiveList:
    """The archive list of one stream as read by this process: index i is entry `first + i`."""

    first: int
    opening: object
    """Of the home that it was read from."""
    entries: list[ArchiveEntry] = field(default_factory=list)
    before: list[Instant] = field(default_factory=list)
    max_event_times: list[Instant] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    """Number of rows accepted in the entries up to and including this one."""
    listed: RadixList = field(default_factory=RadixList)
    """The newest value of the list that was read."""
    leaves: dict[int, str] = field(default_factory=dict)
    """Its sealed files with entries, by the first of them."""

    def extend(self, entries: Iterator[tuple[int, Any]]) -> None:
        """Append the next entries."""
        for _, value in entries:
            entry = ArchiveEntry.from_json(value)
            self.entries.append(entry)
            self.before.append(entry.before)
            self.max_event_times.append(entry.greatest)
            previous = self.accepted[-1] if self.accepted else 0
            self.accepted.append(previous + entry.rows - entry.late)

    def follow(self, listed: RadixList, read: Read) -> None:
        """Take over the entries whose runs were joined since, and append the next ones. Files of an older value may be deleted."""
        stop = self.first + len(self.entries)
        if listed.levels != self.listed.levels:
            leaves = dict(listed.leaves(read))
            changed = [(first, name) for first, name in leaves.items() if self.leaves.get(first) != name]
            for first, name in changed:
                for index, value in enumerate(leaf_entries(read, name), first) if first < stop else ():
                    if self.first <= index < stop:
                        self.entries[index - self.first] = ArchiveEntry.from_json(value)
            self.leaves = leaves
        self.extend(listed.iterate(read, stop))
        self.listed = listed

    def since(self, first: int) -> ArchiveList:
        """A copy without the entries before `first`; readers of this list are not affected."""
        dropped = first - self.first
        return ArchiveList(
            first,
            self.opening,
            self.entries[dropped:],
            self.before[dropped:],
            self.max_event_times[dropped:],
            self.accepted[dropped:],
            self.listed,
            self.leaves,
        )

    def between(self, begin: Instant, end: Instant, start: int, stop: int) -> list[tuple[int, ArchiveEntry]]:
        """(index, entry) of the entries [start, stop) that may have accepted rows with begin <= time <= end."""
        low, high = max(start - self.first, 0), max(stop - self.first, 0)
        before, greatest = np.array(self.before[low:high]), np.array(self.max_event_times[low:high])
        indices = np.flatnonzero((greatest >= begin) & (before <= end)) + low
        return [(self.first + index, self.entries[index]) for index in indices.tolist()]

    def complete_since(self, start: int) -> Instant:
        """The instant since which no accepted row is missing without the entries before `start`."""
        index = start - self.first
        return BEGINNING if start == 0 or index >= len(self.entries) else self.before[index]

    def rows(self, start: int, stop: int) -> int:
        """Number of rows accepted in entries [start, stop)."""
        low, high = max(start - self.first, 0), max(stop - self.first, 0)
        if high <= low:
            return 0
        earlier = self.accepted[low] - self.entries[low].rows + self.entries[low].late
        return self.accepted[high - 1] - earlier


_lists: Final[OrderedDict[tuple[str, str, int], ArchiveList]] = OrderedDict()
_lock: Final = threading.Lock()
_MOST_LISTS: Final = 64
_FEW: Final = 1024
"""Up to this many entries that have expired are kept, to save a copy of the others."""


def archive_list_of(home: Home, manifest: Manifest, stream: str) -> ArchiveList:
    """The archive list of a stream as of a manifest, or a later one that this process has seen."""
    listed = home.list_of(manifest, f"archive:{stream}")
    key = str(home.store.root), stream, home.born(stream)
    with _lock:
        archive = _lists.get(key)
        if archive is None or archive.opening is not home.opening:
            archive = _lists[key] = ArchiveList(listed.start, home.opening)
        _lists.move_to_end(key)
        while len(_lists) > _MOST_LISTS:
            _lists.popitem(last=False)
        end = archive.first + len(archive.entries)
        if listed.length > end and listed.start > end:  # the entries between have expired unread
            archive = _lists[key] = ArchiveList(listed.start, home.opening)
        if listed.length > archive.listed.length or (
            listed.length == archive.listed.length and listed.levels != archive.listed.levels
        ):
            archive.follow(listed, home.store.read)
        if listed.start - archive.first > max(len(archive.entries) // 2, _FEW):
            archive = _lists[key] = archive.since(listed.start)
    return archive
