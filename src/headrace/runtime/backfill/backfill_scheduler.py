"""The schedule of backfills: when a chunk of a backfill runs between live epochs, how large it is, which operators read
together in it, and how many archive entries it takes.

A backfill runs in epochs like any other (decision 5). While the hub runs, live input goes first and backfills get the
remaining time, in chunks so short that a live epoch waits about half as long as it takes itself. Where live input leaves no
time, a chunk still follows each live epoch and is larger than what that epoch added, so that backfills catch up. For a
caller who waits for everything (`catch_up`, `run_once`) backfills go first, in the largest chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

LARGEST: Final = 4_000_000
"""Rows of a chunk when no live input waits."""
_LEAST_SECONDS: Final = 0.1  # of a chunk: a shorter one takes less time than its job takes to start
_OF_A_LIVE_EPOCH: Final = 0.5
_FADING: Final = 0.8  # weight of the earlier measurements in the average


@dataclass(frozen=True, slots=True)
class Chunk:
    """Size of a chunk of a backfill: about `rows` rows, and at least `entries` entries or `enough` rows."""

    rows: int = LARGEST
    entries: int = 1
    enough: int | None = None


@dataclass(slots=True)
class ReplaySchedule:
    """Alternates live epochs and chunks of backfills, by their recent durations."""

    live_is_due: bool = True
    _live_seconds: float = 0.0
    _live_rows: int = 0
    _rate: float = 1_000_000.0  # rows a second of backfills; an initial value, then measured

    def saw(self, *, replay: bool, rows: int, seconds: float) -> None:
        """Record an epoch that has ended."""
        self.live_is_due = replay
        if replay and rows:
            self._rate = _FADING * self._rate + (1 - _FADING) * rows / max(seconds, 1e-6)
        elif rows:
            self._live_rows = rows
            fading = _FADING if self._live_seconds else 0.0
            self._live_seconds = fading * self._live_seconds + (1 - fading) * seconds

    def chunk(self) -> Chunk:
        """The next chunk while live input may arrive: at least twice the entries or the rows of a live epoch."""
        if not self._live_seconds:
            return Chunk()
        seconds = max(_LEAST_SECONDS, _OF_A_LIVE_EPOCH * self._live_seconds)
        return Chunk(min(LARGEST, int(self._rate * seconds)), 2, 2 * self._live_rows)


@dataclass(frozen=True, slots=True)
class Group:
    """Operators of one stream with the same position in its archive; `until` is the next operator's position."""

    stream: str
    start: int
    operators: tuple[str, ...]
    until: int | None


def longest_backfill(positions: Mapping[str, tuple[str, int]]) -> Group:
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
