"""The cache of a subjoin: of each key that it holds, all combinations of the rows of some sides, as references to the rows.

The combinations are pieces in order of (key hash, instant), which are searched as the rows of one more side. `create` adds keys with
all of their combinations, `insert` adds combinations of new rows to keys that are present; combinations that have ended, and those of keys that
were replaced, are dropped when pieces are merged. A cache may drop any key at any time.
Source: Babu (2005), section 5.4 (CacheLookup and CacheUpdate; direct-mapped buckets; references instead of copies), for columns of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.adaptive.caches.key_directory import PAGE, KeyDirectory
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.joins.probing.stems import Combinations, Stem
from headrace.operators.rows.sorted_rows import Sorted
from headrace.time import Duration, Instant

_NO_COLUMNS: Final = pa.table({})
_OF_PAGE: Final = 1 << 14
"""Combinations on a page: one with more is evicted."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Combinations of some sides with the hash of their key, in order of (hash, instant)."""

    hash: Ints
    found: Combinations

    @staticmethod
    def of(hash_: Ints, combinations: Combinations) -> Entries:
        """Combinations in any order."""
        order = np.lexsort((combinations.at, hash_))
        return Entries(hash_, combinations).take(order)

    @staticmethod
    def together(parts: Sequence[Entries], sides: Sequence[int]) -> Entries:
        """All of several, which may be in any order."""
        none = [np.empty(0, np.int64)]
        at, until = (
            np.concatenate([*none, *(getattr(part.found, name) for part in parts)])
            for name in ("at", "until")
        )
        rows = {side: np.concatenate([*none, *(part.found.rows[side] for part in parts)]) for side in sides}
        hash_ = np.concatenate([*none, *(part.hash for part in parts)])
        return Entries.of(hash_, Combinations(at, until, rows))

    def take(self, chosen: Ints | np.ndarray) -> Entries:
        """Some of them, by number or mask."""
        rows = {side: numbers[chosen] for side, numbers in self.found.rows.items()}
        return Entries(self.hash[chosen], Combinations(self.found.at[chosen], self.found.until[chosen], rows))

    @property
    def count(self) -> int:
        """How many."""
        return len(self.hash)

    def searchable(self) -> Sorted:
        """As the rows of a side."""
        return Sorted(_NO_COLUMNS, self.hash, self.found.at, None, self.found.until)


@dataclass(slots=True)
class SubjoinCache:
    """Combinations of `sides` that hold at `floor` or later; none holds longer than `longest`."""

    sides: tuple[int, ...]
    longest: Duration | None
    floor: Instant
    directory: KeyDirectory
    pieces: list[Entries] = field(default_factory=list)
    replaced: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Keys that are not held, of which pieces may still have combinations."""

    @property
    def combinations(self) -> int:
        """The number of combinations in memory."""
        return sum(piece.count for piece in self.pieces)

    @property
    def nbytes(self) -> int:
        """Memory of references, intervals and keys."""
        return 8 * (self.combinations * (3 + len(self.sides)) + len(self.directory.keys))

    def lower_floor(self, floor: Instant) -> None:
        """Begin again, empty, for rows that come at this instant or later."""
        self.directory.clear()
        self.pieces, self.replaced, self.floor = [], self.replaced[:0], floor

    def create(self, keys: Ints, entries: Entries, need_page: Callable[[], bool]) -> int:
        """Add different keys that are absent, with all their combinations; returns how many are held."""
        held, evicted = self.directory.admit(keys, need_page)
        again = keys[held]
        if len(self.replaced) and np.isin(again, self.replaced).any():
            self._merge_all()
        self._forget(evicted)
        self._append(entries.take(np.isin(entries.hash, again)))
        return len(again)

    def insert(self, entries: Entries) -> int:
        """Add combinations of new rows to the keys that are present; returns how many."""
        present = entries.take(self.directory.present(entries.hash))
        self._append(present)
        return present.count

    def _append(self, entries: Entries) -> None:
        if entries.count:
            self.pieces.append(entries)
            self._tidy()
            self._evict_full_pages()

    def give_back_page(self) -> None:
        """Drop the keys of a page."""
        self._forget(self.directory.give_back_page())

    def raise_floor(self, floor: Instant) -> None:
        """Combinations that end before are not needed any more."""
        self.floor = max(self.floor, floor)

    def stem(self) -> Stem:
        """The combinations as the rows of a side."""
        return Stem(tuple(piece.searchable() for piece in self.pieces), self.longest)

    def renumber(self, side: int, start: int, numbers: Ints) -> None:
        """Rows of a side from `start` on have new numbers; those with number -1 are gone."""
        for index, piece in enumerate(self.pieces):
            rows = piece.found.rows[side]
            moved = rows >= start
            if not moved.any():
                continue
            changed = rows.copy()
            changed[moved] = np.where(
                numbers[rows[moved] - start] < 0, -1, numbers[rows[moved] - start] + start
            )
            combinations = Combinations(
                piece.found.at, piece.found.until, {**piece.found.rows, side: changed}
            )
            self.pieces[index] = Entries(piece.hash, combinations).take(changed >= 0)
        self.pieces = [piece for piece in self.pieces if piece.count]

    def _forget(self, keys: Ints) -> None:
        self.replaced = np.union1d(self.replaced, keys)

    def _tidy(self) -> None:
        """Merge the last pieces, of which there is one at least, so that their number follows the logarithm of the combinations."""
        first = len(self.pieces) - 1
        size = self.pieces[first].count
        while first > 0 and self.pieces[first - 1].count <= 2 * size:
            first -= 1
            size += self.pieces[first].count
        if first < len(self.pieces) - 1:
            self._merge(first)

    def _merge(self, first: int) -> None:
        """Make one of the pieces from `first` on, without combinations that do not count."""
        if first == len(self.pieces) - 1:
            merged = self.pieces[first]
        else:
            merged = Entries.together(self.pieces[first:], self.sides)
        counts = self.directory.present(merged.hash) & (merged.found.until >= self.floor)
        if len(self.replaced):
            counts &= ~np.isin(merged.hash, self.replaced)
        self.pieces[first:] = [merged.take(counts)] if counts.any() else []
        if first == 0:
            self.replaced = self.replaced[:0]

    def _merge_all(self) -> None:
        if self.pieces:
            self._merge(0)

    def _evict_full_pages(self) -> None:
        """Drop the keys of pages with too many combinations."""
        if self.combinations <= _OF_PAGE:
            return
        pages = np.concatenate([self.directory.buckets(piece.hash) // PAGE for piece in self.pieces])
        full = np.flatnonzero(np.bincount(pages) > _OF_PAGE)
        for page in full.tolist():
            self._forget(self.directory.evict_page(page))
        if len(full):
            self._merge_all()


def rows_of(pieces: Sequence[Entries], sides: Sequence[int], numbers: Ints) -> dict[int, Ints]:
    """By side, the rows of combinations in pieces, which are numbered one after the other."""
    if len(pieces) == 1:
        return {side: pieces[0].found.rows[side][numbers] for side in sides}
    whole = {side: np.concatenate([piece.found.rows[side] for piece in pieces]) for side in sides}
    return {side: rows[numbers] for side, rows in whole.items()}
