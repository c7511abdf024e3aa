"""The last w rows of each key, in rings that grow with their keys.

The length of a ring is the number of its rows, rounded up to a power of two, at most w; unused old rings take at most twice that again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.baselines.rows.rows_by_key import Doubles, RowsByKey, ranges
from headrace.synopses.arrays import Ints

_LEAST_ROOM = 4


@dataclass(slots=True)
class RecentRows:
    """Row number n of key k, from 0 on, is at `starts[k] + n % rooms[k]` while it is among the last `window`."""

    window: int
    values: Doubles
    """x and y of each row."""
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
        """Add a batch, in the order of `rows`."""
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
    """The stored rows and, after them, a batch that is not stored yet: the windows at each row of the batch."""

    retained: RecentRows
    rows: RowsByKey
    values: Doubles
    """x and y, in the order of `rows`."""

    def serials(self) -> Ints:
        """The number of each row within its key, from 1 on."""
        numbers: Ints = self.retained.seen[self.rows.owners()] + self.rows.numbers() + 1
        return numbers

    def leaving(self) -> Doubles:
        """For each row x and y of the row of its key that leaves the window; 0 without one."""
        numbers = self.serials() - 1 - self.retained.window
        leaves = numbers >= 0
        values = np.zeros((len(numbers), 2))
        values[leaves] = self._looked_up(self.rows.owners()[leaves], numbers[leaves])
        return values

    def windows(self, keys: Ints, serials: Ints) -> tuple[Doubles, Ints]:
        """The last rows of keys, x and y, at these serial numbers, and the beginning of each key's rows."""
        many = np.minimum(serials, self.retained.window)
        numbers, begins = ranges(serials - many, many)
        return self._looked_up(np.repeat(keys, many), numbers), begins

    def _looked_up(self, keys: Ints, numbers: Ints) -> Doubles:
        retained, values = self.retained, np.empty((len(keys), 2))
        old = numbers < retained.seen[keys]
        earlier, later = keys[old], keys[~old]
        values[old] = retained.values[retained.starts[earlier] + numbers[old] % retained.rooms[earlier]]
        begins = self.rows.offsets[np.searchsorted(self.rows.present, later)]
        values[~old] = self.values[begins + numbers[~old] - retained.seen[later]]
        return values
