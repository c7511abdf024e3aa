"""Random samples: of each key's rows, or of keys with all of their rows.

A row's priority is a hash of the seed and its name: its position for a sample of rows, its key for a sample of keys. The sample is the
rows of the `size` least priorities (keys: the rows of the `size` least keys). So it does not depend on the split into batches or the
order of merges, every row has the same probability, and the same seed gives the same sample. Source: reservoirs as in Vitter (1985), by
priorities; keys as in Gibbons, "Distinct sampling" (2001).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headrace.synopses.arrays import Ints

Priorities = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Reservoir:
    """Up to `size` rows of each key, by position: those of key k are `rows[offsets[k]:offsets[k + 1]]`, least priority first."""

    size: int
    seed: int
    seen: Ints
    offsets: Ints
    rows: Ints

    @staticmethod
    def empty(size: int, seed: int, keys: int) -> Reservoir:
        """No rows."""
        return Reservoir(
            size, seed, np.zeros(keys, np.int64), np.zeros(keys + 1, np.int64), np.empty(0, np.int64)
        )

    def absorb(self, keys: Ints, rows: Ints) -> Reservoir:
        """The sample with more rows, by their positions, in any order."""
        owner = np.repeat(np.arange(len(self.seen)), np.diff(self.offsets))
        seen = self.seen + np.bincount(keys, minlength=len(self.seen))
        return self._least(np.r_[owner, keys], np.r_[self.rows, rows], seen)

    def merged(self, other: Reservoir) -> Reservoir:
        """The sample of both streams together; sizes and seeds are the same."""
        assert (self.size, self.seed) == (other.size, other.seed)
        owner = np.repeat(np.arange(len(other.seen)), np.diff(other.offsets))
        return replace(self.absorb(owner, other.rows), seen=self.seen + other.seen)

    def _least(self, owner: Ints, rows: Ints, seen: Ints) -> Reservoir:
        order = np.lexsort((rows, priorities(rows, self.seed), owner))
        owner, rows = owner[order], rows[order]
        rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
        sampled = rank < self.size
        offsets = np.searchsorted(owner[sampled], np.arange(len(seen) + 1))
        return Reservoir(self.size, self.seed, seen, offsets, rows[sampled])


@dataclass(frozen=True, slots=True)
class KeySample:
    """All rows of up to `size` keys: `keys` are their hashes, ascending by priority; a key of greater priority never returns."""

    size: int
    seed: int
    keys: Ints

    @staticmethod
    def empty(size: int, seed: int) -> KeySample:
        """No keys."""
        return KeySample(size, seed, np.empty(0, np.int64))

    def absorb(self, hashes: Ints) -> KeySample:
        """The sample with more rows, by the hashes of their keys."""
        hashed = np.unique(np.r_[self.keys, hashes])
        order = np.argsort(priorities(hashed, self.seed), kind="stable")
        return KeySample(self.size, self.seed, hashed[order[: self.size]])

    def holds(self, hashes: Ints) -> npt.NDArray[np.bool_]:
        """Which rows are of a key in the sample."""
        return np.isin(hashes, self.keys)

    def number(self) -> float:
        """The estimated number of keys, all equally likely in the sample (k minimum values)."""
        if len(self.keys) < self.size:
            return float(len(self.keys))
        return (self.size - 1) / (float(priorities(self.keys[-1:], self.seed)[0]) / 2.0**64)


def priorities(names: Ints, seed: int) -> Priorities:
    """A pseudo-random number from 0 to 2^64 for each name."""
    with np.errstate(over="ignore"):
        value = names.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15 * (seed + 1) % 2**64)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))
