"""A symmetric hash join with a cleaner: two hash tables, of which one that is filled beyond a threshold loses its oldest rows.

Its memory is bounded without windows, and rows that were removed find no later partners: `complete_since` states from which row on
none is missing. Headrace bounds a join by windows, or by a sample of keys whose counts can be scaled (`OPTIONS (maxJoinRows 'n')`).
Source: Madden and Franklin, Fjording the stream (2002), section 3.1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Table:
    """The rows of one input by key, and in order of arrival."""

    by_key: dict[int, deque[int]] = field(default_factory=dict)
    arrived: deque[tuple[int, int]] = field(default_factory=deque)
    """(row, key)."""

    def insert(self, row: int, key: int) -> None:
        self.by_key.setdefault(key, deque()).append(row)
        self.arrived.append((row, key))

    def remove_oldest(self) -> int:
        row, key = self.arrived.popleft()
        of_key = self.by_key[key]
        of_key.popleft()
        if not of_key:
            del self.by_key[key]
        return row


@dataclass(slots=True)
class CleanedJoin:
    """The join of two inputs by key. A table with more than `most` rows is cleaned down to `kept`.

    Rows are numbers that ascend with their arrival. `complete_since`: all pairs of rows from there on were, and will be found, until more
    rows are removed.
    """

    most: int
    kept: int
    complete_since: int = 0
    cleanings: int = 0
    _tables: tuple[_Table, _Table] = field(default_factory=lambda: (_Table(), _Table()))

    def arrive(self, side: int, row: int, key: int) -> list[tuple[int, int]]:
        """The pairs of a new row, that of side 0 first."""
        own, other = self._tables[side], self._tables[1 - side]
        own.insert(row, key)
        partners = other.by_key.get(key, ())
        pairs = [(row, partner) if side == 0 else (partner, row) for partner in partners]
        if len(own.arrived) > self.most:
            self.cleanings += 1
            while len(own.arrived) > self.kept:
                self.complete_since = max(self.complete_since, own.remove_oldest() + 1)
        return pairs

    @property
    def rows(self) -> tuple[int, int]:
        """The rows in both tables."""
        first, second = (len(table.arrived) for table in self._tables)
        return first, second
