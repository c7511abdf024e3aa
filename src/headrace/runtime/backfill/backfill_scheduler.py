"""The schedule of backfills: when a slice of the archive is read between live epochs, how large it is, which operators read
together in it, and how many archive entries it takes.

A backfill runs in epochs like any other (decision 5). While the hub runs, live input goes first. Where none waits, a slice of
the archive is read that takes about half as long as a live epoch, so that the next one begins soon; the longer nothing has
arrived, the larger it is. Where live input leaves no time, a slice follows every few live epochs and takes half as long as
they did; and where that was not enough for many epochs, slices follow each of together more rows than it added. While live
input is frequent no slice is a large epoch: standing tasks would end for it, and live epochs grow until they are large, too. For
a caller who waits for everything (`catch_up`, `run_once`) backfills go first, in the largest chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Final, Protocol, TypeAlias, TypeVar

from headrace.dataclass import dataclass

LARGEST: Final = 4_000_000
"""Rows of a chunk when no live input waits."""
SLICE_ROWS: Final = 300_000
"""Rows up to which a slice costs little besides its rows: with its last entry it is still a small epoch, see `standing.pace`."""
_OF_A_LIVE_EPOCH: Final = 0.5  # the share of the time of a live epoch that a slice may take
_OF_THE_SILENCE: Final = 0.5  # the share of the time since the last live epoch that a slice may take
_IN_A_ROW: Final = 4  # live epochs before a slice of the archive, where live input always waits
_FADING: Final = 0.8  # weight of the earlier measurements in the average
_ORIGIN: Final = 0.2  # weight, in slices, of the belief that a slice without rows takes no time
_INITIAL_RATE: Final = 1_000_000.0  # rows a second, before a slice was measured
_FORGETTING: Final = 0.99  # weight of the earlier live epochs in the balance of rows
_MORE: Final = 1.25  # than live epochs have added, where backfills fall behind
_QUIET_SECONDS: Final = (
    0.5  # without live input, before a slice may be so large that standing tasks end for it
)
_MANY: Final = 60.0  # live epochs, by that weight, after which the balance counts

Position: TypeAlias = tuple[int, int]
"""How far an operator has read an archive: the entries, and the slices of the next one."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Size of a chunk of a backfill: about `rows` rows, and at least `entries` entries or `enough` rows."""

    rows: int = LARGEST
    entries: int = 1
    enough: int | None = None


@dataclass(slots=True)
class SliceTimes:
    """How long slices take: a constant and a time for each row, by least squares over the latest ones.

    Slices of equal size show no constant: then all of the time is taken for that of their rows.
    """

    _weight: float = 0.0
    _rows: float = 0.0
    _seconds: float = 0.0
    _squares: float = 0.0
    _products: float = 0.0

    def saw(self, rows: int, seconds: float) -> None:
        """Record a slice."""
        self._weight = _FADING * self._weight + 1
        self._rows = _FADING * self._rows + rows
        self._seconds = _FADING * self._seconds + seconds
        self._squares = _FADING * self._squares + rows * rows
        self._products = _FADING * self._products + rows * seconds

    def rows_in(self, seconds: float) -> int:
        """How many rows a slice may have that is to take so long; 0 where one without rows takes longer."""
        if not self._weight:
            return int(_INITIAL_RATE * seconds)
        weight = self._weight + _ORIGIN
        rows, mean = self._rows / weight, self._seconds / weight
        variance = self._squares / weight - rows * rows
        of_a_row = (self._products / weight - rows * mean) / variance
        of_a_row = min(max(of_a_row, 1e-9), mean / rows)
        return max(0, int((seconds - mean + of_a_row * rows) / of_a_row))


@dataclass(slots=True)
class ReplaySchedule:
    """Alternates live epochs and chunks of backfills, by their recent durations."""

    clock: Callable[[], float] = time.monotonic
    _live_seconds: float = 0.0
    _live_ended: float = 0.0
    _waited: int = 0
    """Live epochs since the last chunk, or since backfills have read more than these added, where they fall behind."""
    _rows_waited: int = 0
    _added: float = 0.0
    """Rows of recent live epochs, rows of the archive that were read in the same time, and the number of these epochs."""
    _read: float = 0.0
    _epochs: float = 0.0
    _times: dict[bool, SliceTimes] = field(default_factory=lambda: {True: SliceTimes(), False: SliceTimes()})
    """Of small chunks, and of others."""

    def saw(self, *, replay: bool, rows: int, seconds: float) -> None:
        """Record an epoch that has ended."""
        if replay and rows:
            self._times[rows <= SLICE_ROWS].saw(rows, seconds)
            self._rows_waited = max(0, self._rows_waited - int(rows / _MORE)) if self._falls_behind else 0
            self._waited = self._waited if self._rows_waited else 0
            self._read += rows
        elif rows:
            self._waited += 1
            self._rows_waited += rows
            self._added, self._read = _FORGETTING * self._added + rows, _FORGETTING * self._read
            self._epochs = _FORGETTING * self._epochs + 1
            fading = _FADING if self._live_seconds else 0.0
            self._live_seconds = fading * self._live_seconds + (1 - fading) * seconds
            self._live_ended = self.clock()

    def turn(self, *, live_waits: bool) -> Chunk | None:
        """The chunk whose turn it is; None when live input goes first."""
        in_a_row = 1 if self._falls_behind else _IN_A_ROW
        if live_waits and self._waited < in_a_row:
            return None
        chunk = self.chunk()
        return replace(chunk, rows=min(chunk.rows, SLICE_ROWS)) if live_waits else chunk

    @property
    def _falls_behind(self) -> bool:
        """Whether backfills have read less than live epochs have added, for many of them."""
        return self._epochs >= _MANY and self._read < self._added

    def nothing_to_read(self) -> None:
        """Count from 0 what live epochs add: no backfill waits for its turn."""
        self._waited = self._rows_waited = 0
        self._added = self._read = self._epochs = 0.0

    def chunk(self) -> Chunk:
        """The next chunk while live input may arrive."""
        if not self._live_seconds:
            return Chunk()
        silence = self.clock() - self._live_ended
        waited = _OF_A_LIVE_EPOCH * self._live_seconds * max(1, self._waited)
        seconds = max(waited, _OF_THE_SILENCE * silence)
        rows = self._times[True].rows_in(seconds)
        if rows > SLICE_ROWS:
            is_quiet = silence > _QUIET_SECONDS
            rows = max(SLICE_ROWS, self._times[False].rows_in(seconds)) if is_quiet else SLICE_ROWS
        if self._falls_behind:
            enough = min(SLICE_ROWS, int(_MORE * self._rows_waited))
            return Chunk(min(LARGEST, rows), 2 * self._waited, enough)
        return Chunk(min(LARGEST, rows))


@dataclass(frozen=True, slots=True)
class Group:
    """Operators of one stream with the same position in its archive; `until` is the next operator's position."""

    stream: str
    start: Position
    operators: tuple[str, ...]
    until: Position | None


def longest_backfill(positions: Mapping[str, tuple[str, Position]]) -> Group:
    """The operators with the most entries left to read, of `positions`: operator → (stream, position).

    They read at most up to the next operator's position; from there on both read together.
    """
    stream, start = min(positions.values(), key=lambda position: position[1])
    others = [position for name, position in positions.values() if name == stream and position > start]
    return Group(
        stream,
        start,
        tuple(name for name, position in positions.items() if position == (stream, start)),
        min(others, default=None),
    )


class Foldable(Protocol):
    """An entry of an archive, or several entries of one epoch."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def relations(self) -> Mapping[str, str]:
        """The versions of relations in force."""
        ...


_Entry = TypeVar("_Entry", bound=Foldable)


def chunk_of(entries: Iterable[_Entry], chunk: Chunk, until: int | None) -> list[_Entry]:
    """The next entries to fold at once: at least one, at most `until` of them, all with the same relations."""
    entries_of_chunk: list[_Entry] = []
    total = 0
    for entry in entries:
        least = len(entries_of_chunk) >= chunk.entries or (chunk.enough is not None and total >= chunk.enough)
        enough = least and total + entry.rows > chunk.rows
        if entries_of_chunk and (
            enough or len(entries_of_chunk) == until or entry.relations != entries_of_chunk[0].relations
        ):
            break
        entries_of_chunk.append(entry)
        total += entry.rows
    return entries_of_chunk
