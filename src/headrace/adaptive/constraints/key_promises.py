"""Key values of a stream of which no row arrives any more, from promises in event time (UNIQUE, CLUSTERED, ORDERED), declared or found,
and the rows that break such a promise.

A promise about a key is a punctuation for single values: once a value is finished, rows of other streams that wait for it can go.
Rows are columns: `hash` identifies a value, `at` is the event time, `key` is the value where it has an order.
Source: Babu (2005), sections 6.7 to 6.9, with event time in place of arrival counters.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from typing import Literal as Choice

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
LEAST: Final = np.iinfo(np.int64).min
NEVER: Final = np.iinfo(np.int64).max
Kind: TypeAlias = Choice["clustered", "ordered"]
KINDS: Final[tuple[Kind, ...]] = ("clustered", "ordered")
"""What is found of a stream's key."""


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Rows of one stream; `key` is None where the values have no order, or were not stored."""

    hash: Ints
    at: Ints
    key: Ints | None = None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.hash)

    def where(self, keep: Bools) -> KeyRows:
        """Some of them."""
        return KeyRows(self.hash[keep], self.at[keep], None if self.key is None else self.key[keep])

    def first(self, hashes: Ints) -> Ints:
        """The event time of the first row of each value; the end of time without one."""
        order = np.lexsort((self.at, self.hash))
        known, times = self.hash[order], self.at[order]
        if not len(known):
            return np.full(len(hashes), NEVER)
        index = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        return np.where(known[index] == hashes, times[index], NEVER)


@dataclass(frozen=True, slots=True)
class KeyPromise:
    """What the rows of a stream promise of a key, and the clause that declares it.

    "unique": no value appears twice. "clustered": times of rows of a value differ by at most `within`. "ordered": no value is below that
    of a row more than `within` before it.
    """

    kind: Choice["unique", "clustered", "ordered"]
    within: int
    clause: str

    def finished(self, waiting: KeyRows, seen: KeyRows, punctuation: int) -> Bools:
        """The rows of another stream whose value appears in no row from `punctuation` on, as the rows `seen` show.

        More rows seen finish more values, never fewer.
        """
        if self.kind == "ordered":
            if waiting.key is None:
                return np.zeros(waiting.rows, bool)
            below: Bools = waiting.key < self._bound(seen, punctuation)
            return below
        first = seen.first(waiting.hash)
        done: Bools = first != NEVER if self.kind == "unique" else first < punctuation - self.within
        return done

    def _bound(self, seen: KeyRows, punctuation: int) -> int:
        """The value below which no row comes from `punctuation` on."""
        if seen.key is None:
            return LEAST
        return int(seen.key[seen.at < punctuation - self.within].max(initial=LEAST))

    def broken(self, new: KeyRows, first_stored: Ints, stored: KeyRows | None) -> Bools:
        """The new rows that break the promise, if rows before them that show it are known.

        `first_stored` is the time of the first stored row of each new row's value; `stored` are the rows themselves, which only an
        order needs.
        """
        if self.kind == "ordered":
            return self._out_of_order(new, stored)
        first = np.minimum(first_stored, new.first(new.hash))
        if self.kind == "clustered":
            wide: Bools = new.at - np.minimum(first, new.at) > self.within
            return wide
        order = np.lexsort((new.at, new.hash))
        again = np.zeros(new.rows, bool)
        again[order[1:]] = new.hash[order[1:]] == new.hash[order[:-1]]
        again |= first_stored != NEVER
        return again

    def _out_of_order(self, new: KeyRows, stored: KeyRows | None) -> Bools:
        """The new rows with a value below that of a row more than `within` before them."""
        if new.key is None or not new.rows:
            return np.zeros(new.rows, bool)
        least = LEAST if stored is None else self._bound(stored, int(new.at.min()))
        order = np.argsort(new.at, kind="stable")
        maxima = np.append(LEAST, np.maximum.accumulate(new.key[order]))
        before = np.searchsorted(new.at[order], new.at - self.within)
        below: Bools = new.key < np.maximum(maxima[before], least)
        return below


@dataclass(frozen=True, slots=True)
class FoundPromise:
    """A promise that was found: as of `KeyPromise`, but a value is finished only by rows that are no earlier than the row that waits.

    A partner of that row comes at most a window later than it, so at most a window later than such rows; larger distances were never measured, as
    rows are stored no longer.
    """

    kind: Kind
    within: int

    def finished(self, waiting: KeyRows, seen: KeyRows, punctuation: int) -> Bools:
        """The rows of another stream that no row from `punctuation` on is joined with, as the rows `seen` show."""
        shown = seen.where(seen.at < punctuation - self.within)
        if not shown.rows:
            return np.zeros(waiting.rows, bool)
        if self.kind == "clustered":
            order = np.lexsort((shown.at, shown.hash))
            last = np.maximum(np.searchsorted(shown.hash[order], waiting.hash, "right") - 1, 0)
            came: Bools = (shown.hash[order][last] == waiting.hash) & (shown.at[order][last] >= waiting.at)
            return came
        if shown.key is None or waiting.key is None:
            return np.zeros(waiting.rows, bool)
        order = np.argsort(shown.at, kind="stable")
        largest = np.append(np.maximum.accumulate(shown.key[order][::-1])[::-1], LEAST)  # from each row on
        below: Bools = waiting.key < largest[np.searchsorted(shown.at[order], waiting.at)]
        return below
