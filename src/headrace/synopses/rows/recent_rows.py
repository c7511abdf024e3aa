"""What were the last w rows of each key? Rings that grow with their keys, so that many keys of few rows take little.

A ring is as long as the next doubling of its rows, up to w; what rings have outgrown is at most twice as much again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.synopses.rows.arrays import Ints
from headrace.synopses.rows.rows_by_key import Doubles, RowsByKey, ranges

_LEAST_ROOM = 4


@dataclass(slots=True)
class RecentRows:
    """Row number n of key k, counted from 0 on, is at `starts[k] + n % rooms[k]` while it is among the last `window`."""

    window: int
    values: Doubles
    """x and y of each place."""
    starts: Ints
    rooms: Ints
    seen: Ints

    @staticmethod
    def empty(keys: int, window: int) -> RecentRows:
        """No rows."""
        starts, rooms, seen = (np.zeros(keys, np.int64) for _ in range(3))
        return RecentRows(window, np.zeros((0, 2)), starts, rooms, seen)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.values.nbytes + self.starts.nbytes + self.rooms.nbytes + self.seen.nbytes

    def keep(self, rows: RowsByKey, values: Doubles) -> None:
        """Take in a batch, in the order of `rows`."""
        keys, sizes = rows.present, rows.sizes
        self._grow(keys, np.minimum(self.seen[keys] + sizes, self.window))
        last = np.minimum(sizes, self.window)
        places, _ = ranges(rows.offsets[1:] - last, last)
        owners = np.repeat(keys, last)
        numbers = self.seen[owners] + places - np.repeat(rows.offsets[:-1], last)
        self.values[self.starts[owners] + numbers % self.rooms[owners]] = values[places]
        self.seen[keys] += sizes

    def _grow(self, keys: Ints, needed: Ints) -> None:
        short = self.rooms[keys] < needed
        keys, needed = keys[short], needed[short]
        if not len(keys):
            return
        rooms = np.minimum(np.maximum(np.maximum(needed, 2 * self.rooms[keys]), _LEAST_ROOM), self.window)
        starts = len(self.values) + np.r_[0, np.cumsum(rooms)]
        held = np.minimum(self.seen[keys], self.rooms[keys])
        numbers, _ = ranges(self.seen[keys] - held, held)
        owners, fresh = np.repeat(keys, held), np.repeat(starts[:-1], held)
        old = self.values[self.starts[owners] + numbers % self.rooms[owners]]
        self.values = np.concatenate([self.values, np.zeros((int(rooms.sum()), 2))])
        self.values[fresh + numbers % np.repeat(rooms, held)] = old
        self.starts[keys], self.rooms[keys] = starts[:-1], rooms


@dataclass(frozen=True, slots=True)
class Passing:
    """The rows that are kept and, after them, a batch that is not yet: what one sees at each row of it."""

    retained: RecentRows
    rows: RowsByKey
    values: Doubles
    """x and y, in the order of `rows`."""

    def serials(self) -> Ints:
        """How many rows of its key have come with each row, itself too."""
        found: Ints = self.retained.seen[self.rows.owners()] + self.rows.numbers() + 1
        return found

    def leaving(self) -> Doubles:
        """For each row x and y of the one of its key that leaves the window as it comes; 0 where none does."""
        numbers = self.serials() - 1 - self.retained.window
        leaves = numbers >= 0
        found = np.zeros((len(numbers), 2))
        found[leaves] = self._looked_up(self.rows.owners()[leaves], numbers[leaves])
        return found

    def windows(self, keys: Ints, serials: Ints) -> tuple[Doubles, Ints]:
        """The last rows of keys, x and y, once so many had come, and where each key's begin."""
        many = np.minimum(serials, self.retained.window)
        numbers, begins = ranges(serials - many, many)
        return self._looked_up(np.repeat(keys, many), numbers), begins

    def _looked_up(self, keys: Ints, numbers: Ints) -> Doubles:
        kept, found = self.retained, np.empty((len(keys), 2))
        old = numbers < kept.seen[keys]
        earlier, later = keys[old], keys[~old]
        found[old] = kept.values[kept.starts[earlier] + numbers[old] % kept.rooms[earlier]]
        begins = self.rows.offsets[np.searchsorted(self.rows.present, later)]
        found[~old] = self.values[begins + numbers[~old] - kept.seen[later]]
        return found
