"""Whose turn is the next epoch: the live pipeline's, or that of operators that still read the past?

Reading the past is an epoch like any other (decision 5), so the two take turns. While the hub runs, live input goes first
and the past is read in what time it leaves, in chunks so short that a live epoch waits about half as long as it takes
itself. Where live input leaves no time, a chunk still follows each live epoch and is larger than what that epoch added: whoever
is behind catches up. A caller who waits for everything (`catch_up`, `run_once`) has the past read first, in the largest chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

LARGEST: Final = 4_000_000
"""Rows of a chunk when nobody waits for live input."""
_LEAST_SECONDS: Final = 0.1  # of a chunk: shorter ones would only pay for starting a job
_OF_A_LIVE_EPOCH: Final = 0.5
_FADING: Final = 0.8  # what a measurement leaves of those before it


@dataclass(frozen=True, slots=True)
class Chunk:
    """How much of the past to read at once: about `rows` rows, and at least `entries` entries or `enough` rows."""

    rows: int = LARGEST
    entries: int = 1
    enough: int | None = None


@dataclass(slots=True)
class ReplaySchedule:
    """Takes turns between live epochs and chunks of the past, by what these have taken lately."""

    live_is_due: bool = True
    _live_seconds: float = 0.0
    _live_rows: int = 0
    _rate: float = 1_000_000.0  # rows a second of reading the past; a first guess, soon measured

    def saw(self, *, replay: bool, rows: int, seconds: float) -> None:
        """An epoch has ended."""
        self.live_is_due = replay
        if replay and rows:
            self._rate = _FADING * self._rate + (1 - _FADING) * rows / max(seconds, 1e-6)
        elif rows:
            self._live_rows = rows
            fading = _FADING if self._live_seconds else 0.0
            self._live_seconds = fading * self._live_seconds + (1 - fading) * seconds

    def chunk(self) -> Chunk:
        """The next chunk when live input may come meanwhile: twice what a live epoch has added, in entries or in rows, at least."""
        if not self._live_seconds:
            return Chunk()
        seconds = max(_LEAST_SECONDS, _OF_A_LIVE_EPOCH * self._live_seconds)
        return Chunk(min(LARGEST, int(self._rate * seconds)), 2, 2 * self._live_rows)


@dataclass(frozen=True, slots=True)
class Group:
    """Operators of one stream that stand at the same entry; `until` is where the next operator waits to be joined."""

    stream: str
    start: int
    operators: tuple[str, ...]
    until: int | None


def longest_backfill(places: Mapping[str, tuple[str, int]]) -> Group:
    """Of operators, by name their stream and their place, those that have the longest way to go.

    They read no further than to the place of the next: from there on all of them read together.
    """
    stream, start = min(places.values(), key=lambda place: place[1])
    others = [place for name, place in places.values() if name == stream and place > start]
    return Group(
        stream,
        start,
        tuple(name for name, place in places.items() if place == (stream, start)),
        min(others, default=None),
    )


class Foldable(Protocol):
    """An entry of an archive, or entries of several that belong together."""

    @property
    def rows(self) -> int:
        """How many it has."""
        ...

    @property
    def relations(self) -> Mapping[str, str]:
        """The versions of relations in force."""
        ...


_Entry = TypeVar("_Entry", bound=Foldable)


def chunk_of(entries: Iterable[_Entry], chunk: Chunk, until: int | None) -> list[_Entry]:
    """The next entries to fold in one go: at least one, at most `until` of them, all with the same relations."""
    found: list[_Entry] = []
    total = 0
    for entry in entries:
        least = len(found) >= chunk.entries or (chunk.enough is not None and total >= chunk.enough)
        enough = least and total + entry.rows > chunk.rows
        if found and (enough or len(found) == until or entry.relations != found[0].relations):
            break
        found.append(entry)
        total += entry.rows
    return found
