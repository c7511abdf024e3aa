"""The rows of a batch by key, with running sums and extremes of each key, for all keys at once.

A running sum adds one row after the other to the key's earlier sum, so neither the split into batches nor the
other keys change its last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.synopses.arrays import Ints

Doubles: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

_AT_A_TIME: Final = 1 << 16
"""The number of rows that are searched for a change at a time, over all keys, with at least `_LEAST` of each."""
_LEAST: Final = 16


class TakesRows(ABC):
    """A synopsis that takes rows of many keys, and returns a key's answer after each of its rows."""

    __slots__ = ()

    def add(self, keys: Ints, x: Doubles, y: Doubles) -> None:
        """Add rows, those of a key in order."""
        self._take(keys, x, y, None)

    def follow(self, keys: Ints, x: Doubles, y: Doubles) -> Doubles:
        """Add rows; returns their key's answer after each."""
        answers = np.empty(len(x))
        self._take(keys, x, y, answers)
        return answers

    @abstractmethod
    def _take(self, keys: Ints, x: Doubles, y: Doubles, answers: Doubles | None) -> None:
        """Add rows; `answers`, if given, gets their key's answer after each."""


@dataclass(frozen=True, slots=True)
class RowsByKey:
    """A batch sorted by key: the rows of `present[i]` are `order[offsets[i]:offsets[i + 1]]`, in order of arrival."""

    order: Ints
    present: Ints
    offsets: Ints

    @staticmethod
    def of(keys: Ints) -> RowsByKey:
        """The rows of a batch, by their keys from 0 on."""
        number = len(keys)
        bits = max(number - 1, 1).bit_length()
        packed = np.sort((keys.astype(np.int64) << bits) | np.arange(number))
        ordered = packed >> bits
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][:number])
        return RowsByKey(packed & ((1 << bits) - 1), ordered[starts], np.r_[starts, number])

    @property
    def sizes(self) -> Ints:
        """Rows of each present key."""
        return np.diff(self.offsets)

    def owners(self) -> Ints:
        """The key of each row, in this order."""
        return np.repeat(self.present, self.sizes)

    def numbers(self) -> Ints:
        """The index of each row among those of its key, from 0 on."""
        indices: Ints = np.arange(len(self.order)) - np.repeat(self.offsets[:-1], self.sizes)
        return indices


def running(step: np.ufunc, values: Doubles, offsets: Ints, seeds: Doubles) -> Doubles:
    """`step` along each part `offsets[i]:offsets[i + 1]` of values, none of them empty, beginning with `seeds[i]`."""
    results, sizes = np.empty_like(values), np.diff(offsets)
    classes = np.frexp(np.maximum(sizes - 1, 0).astype(np.float64))[
        1
    ]  # equal for sizes up to the same power of 2
    for size_class in np.unique(classes):
        which = np.flatnonzero(classes == size_class)
        across = np.arange(int(sizes[which].max()))
        places = offsets[which][:, None] + across
        block = np.empty((len(which), len(across) + 1, *values.shape[1:]))
        block[:, 0] = seeds[which]
        block[:, 1:] = values[np.minimum(places, len(values) - 1)]
        inside = across < sizes[which][:, None]
        results[places[inside]] = step.accumulate(block, axis=1)[:, 1:][inside]
    return results


def ranges(starts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """All of `starts[i], starts[i] + 1, ...`, `sizes[i]` of them, one after the other, and the beginning of each i."""
    begins = np.r_[0, np.cumsum(sizes)]
    return np.arange(begins[-1]) - np.repeat(begins[:-1] - starts, sizes), begins


Fits: TypeAlias = Callable[[Ints, Ints], Flags]
"""Whether the present histogram of each key fits a row."""
Lays: TypeAlias = Callable[[Ints, Ints], None]
"""Replace the histograms of keys, each for its row."""
Counts: TypeAlias = Callable[[Ints, Ints, Ints], None]
"""Count the rows of keys: the keys, the rows, and the beginning of each key's rows."""


def advance(rows: RowsByKey, fits: Fits, replace: Lays, count: Counts) -> None:
    """Advance each key separately: count as many rows as its histogram fits, then replace it for the next row.

    A histogram that was laid out for a row counts that row, whether or not it fits. Rows are indices in the order of `rows`.
    """
    at, stop, keys = rows.offsets[:-1].copy(), rows.offsets[1:], rows.present
    while len(at):
        unfit = ~fits(keys, at)
        if unfit.any():
            replace(keys[unfit], at[unfit])
        ahead = np.minimum(stop - at, max(_AT_A_TIME // len(at), _LEAST))
        places, begins = ranges(at, ahead)
        good = fits(np.repeat(keys, ahead), places)
        good[begins[:-1]] = True
        numbers = np.arange(len(places)) - np.repeat(begins[:-1], ahead)
        stays = np.minimum.reduceat(np.where(good, np.repeat(ahead, ahead), numbers), begins[:-1])
        leaving = numbers < np.repeat(stays, ahead)
        count(keys, places[leaving], np.r_[0, np.cumsum(stays)])
        at = at + stays
        left = at < stop
        at, stop, keys = at[left], stop[left], keys[left]
