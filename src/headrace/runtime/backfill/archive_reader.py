"""Rows of the archive at hand: the past of a stream in columns, decoded once and kept while they are asked for.

An archive run is never rewritten, so what was decoded of it is good for ever; the least recently asked for goes first when
the columns kept weigh too much. The list of runs of a stream only grows, so a process reads each entry of it once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.archive import runs
from headrace.catalog.definitions import StreamDefinition
from headrace.operators.base.group_codes import Ints, as_int64, flat, ints
from headrace.operators.on_demand.row_bitmaps import CHUNK, CHUNK_BITS
from headrace.runtime.backfill.operator_progress import ArchiveEntry
from headrace.runtime.home.home import Home
from headrace.store.files.filesystem import Store
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant

_MOST_BYTES: Final = 256 << 20
_OWN: Final = "@"
"""Before the name of what we made of a run, which no column can be called."""


class _Weighed:
    """Decoded columns, up to so many bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._kept: OrderedDict[tuple[str, str, str], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str, str], make: Callable[[], tuple[Any, int]]) -> Any:
        """What is kept under a key, made when it is not; `make` also says how many bytes it is."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        made, size = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made, size
                self._bytes += size
            while self._bytes > self._most and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return made


_columns: Final = _Weighed(_MOST_BYTES)


@dataclass(frozen=True, slots=True)
class Keys:
    """Of a run's rows: event time, position, whether accepted (None: all), and where their bits are.

    `chunks` are those that the run has rows of, ascending; the bit of row i is number `bit[i]` of their bitmaps, one after
    the other. `ordered`: rows stand in order of time. `from_bit`: rows follow each other without a gap from that bit on.
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
        """What it weighs."""
        return self.at.nbytes + self.position.nbytes + self.bit.nbytes

    def within(self, begin: Instant, end: Instant) -> slice | Ints:
        """The rows with begin <= time <= end."""
        if self.ordered:
            low, high = np.searchsorted(self.at, begin), np.searchsorted(self.at, end, side="right")
            return slice(int(low), int(high))
        found: Ints = np.flatnonzero((self.at >= begin) & (self.at <= end))
        return found


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """One run of a stream's archive."""

    store: Store
    name: str
    stream: StreamDefinition

    @property
    def keys(self) -> Keys:
        """What the window and the bitmaps need."""
        keys: Keys = _columns.get(self._key(f"{_OWN}keys"), self._make_keys)
        return keys

    def column(self, name: str) -> pa.Array:
        """One of the stream's columns."""
        return _columns.get(self._key(name), lambda: self._made(name))

    def _key(self, what: str) -> tuple[str, str, str]:
        return str(self.store.root), self.name, what

    def _made(self, name: str) -> tuple[pa.Array, int]:
        column = flat(self._read([name]).column(name))
        return column, column.nbytes

    def _read(self, names: list[str]) -> pa.Table:
        return pq.ParquetFile(pa.BufferReader(self.store.map(self.name))).read(names, use_threads=False)

    def _make_keys(self) -> tuple[Keys, int]:
        file = pq.ParquetFile(pa.BufferReader(self.store.map(self.name)))
        time = self.stream.time
        if time is None or not runs.has_own_time(file.schema_arrow, time):
            time = runs.AT
        table = file.read(list(dict.fromkeys([time, runs.POSITION, runs.FATE])), use_threads=False)
        at, position = as_int64(flat(table.column(time))), ints(table, runs.POSITION)
        accepted = ints(table, runs.FATE) == runs.ACCEPTED
        chunks, place = np.unique(position >> CHUNK_BITS, return_inverse=True)
        bit = place * CHUNK + (position & (CHUNK - 1))
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
    """The archive list of one stream as far as this process has read it: index i is entry `first + i`."""

    first: int
    entries: list[ArchiveEntry] = field(default_factory=list)
    before: list[Instant] = field(default_factory=list)
    max_event_times: list[Instant] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    """How many rows were accepted in the entries up to and with this one."""

    def extend(self, entries: Iterator[tuple[int, Any]]) -> None:
        """Read on."""
        for _, value in entries:
            entry = ArchiveEntry.from_json(value)
            self.entries.append(entry)
            self.before.append(entry.before)
            self.max_event_times.append(entry.greatest)
            known = self.accepted[-1] if self.accepted else 0
            self.accepted.append(known + entry.rows - entry.late)

    def since(self, first: int) -> ArchiveList:
        """Without the entries before `first`; who looks at this one meanwhile goes on doing so."""
        gone = first - self.first
        return ArchiveList(
            first, self.entries[gone:], self.before[gone:], self.max_event_times[gone:], self.accepted[gone:]
        )

    def between(self, begin: Instant, end: Instant, start: int, stop: int) -> list[tuple[int, ArchiveEntry]]:
        """(index, entry) of the entries [start, stop) that may have accepted rows with begin <= time <= end."""
        low, high = max(start - self.first, 0), max(stop - self.first, 0)
        before, greatest = np.array(self.before[low:high]), np.array(self.max_event_times[low:high])
        found = np.flatnonzero((greatest >= begin) & (before <= end)) + low
        return [(self.first + place, self.entries[place]) for place in found.tolist()]

    def complete_since(self, start: int) -> Instant:
        """From which instant on no accepted row is missing, when entries before `start` are: those after it promised."""
        place = start - self.first
        return BEGINNING if start == 0 or place >= len(self.entries) else self.before[place]

    def rows(self, start: int, stop: int) -> int:
        """How many rows were accepted in entries [start, stop)."""
        low, high = max(start - self.first, 0), max(stop - self.first, 0)
        if high <= low:
            return 0
        earlier = self.accepted[low] - self.entries[low].rows + self.entries[low].late
        return self.accepted[high - 1] - earlier


_pasts: Final[OrderedDict[tuple[str, str, int], ArchiveList]] = OrderedDict()
_lock: Final = threading.Lock()
_MOST_PASTS: Final = 64
_FEW: Final = 1024
"""Entries that the archive has forgotten and we still know: not worth a copy of the others."""


def archive_list_of(home: Home, manifest: Manifest, stream: str) -> ArchiveList:
    """The archive list of a stream as of a manifest, or a later one that this process has seen."""
    listed = home.list_of(manifest, f"archive:{stream}")
    key = str(home.store.root), stream, home.born(stream)
    with _lock:
        past = _pasts.get(key)
        if past is None:
            past = _pasts[key] = ArchiveList(listed.start)
        _pasts.move_to_end(key)
        while len(_pasts) > _MOST_PASTS:
            _pasts.popitem(last=False)
        known = past.first + len(past.entries)
        if listed.length > known:
            if listed.start > known:  # what lies between was forgotten unseen
                past = _pasts[key] = ArchiveList(listed.start)
                known = listed.start
            past.extend(listed.iterate(home.store.read, known))
        if listed.start - past.first > max(len(past.entries) // 2, _FEW):
            past = _pasts[key] = past.since(listed.start)
    return past
