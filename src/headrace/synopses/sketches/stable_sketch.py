"""Approximate norms (L2, or L_p with p from 1 to 2) of the counts of values, one sketch per cell: sums of pseudo-random
draws that depend on the hash of each value.

Each register adds, for every row, a number from a p-stable distribution, drawn by the hash of the row's value; the sum is then
distributed as the L_p norm times one draw. The estimate is the median of the registers' sizes over the median of one draw's.
Merging adds registers.
Source: Indyk, "Stable distributions, pseudorandom generators, embeddings and data stream computation" (2000); Datar, Gionis, Indyk,
Motwani (2001), section 5. Read with the repaired bracket: for p = 2 a window of buckets is within a constant factor alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.synopses.arrays import Ints
from headrace.synopses.sketches.sketch_kind import Blobs, empty

Doubles: TypeAlias = npt.NDArray[np.float64]
_SPREAD: Final = {2.0: 3.5, 1.0: 4.75}
"""Three standard errors of the median of the draws, times the root of their number: 3 * 1.166 of Gauss's, 3 * pi / 2 of Cauchy's."""
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StableSketch:
    """`registers` sums; `p` from 1 to 2 is the norm, `seed` that of the noise."""

    registers: int
    p: float = 2.0
    seed: int = 0

    @property
    def full_bytes(self) -> int:
        """Eight bytes per register."""
        return 8 * self.registers

    @staticmethod
    def within(error: Fraction) -> StableSketch:
        """The number of registers with three standard errors within `error`, for p = 2."""
        return StableSketch(math.ceil((_SPREAD[2.0] / float(error)) ** 2))

    def made(
        self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None, cells: Ints, count: int
    ) -> Blobs:
        """Sums over rows, values as hashes; a row weighs 1, or its weight of either sign."""
        order = np.lexsort((values, cells))
        owner, hashes = cells[order], values[order]
        new = np.r_[
            np.ones(min(len(owner), 1), bool), (owner[1:] != owner[:-1]) | (hashes[1:] != hashes[:-1])
        ]
        point = np.cumsum(new) - 1
        times = np.bincount(point, None if weights is None else weights[order], int(new.sum())).astype(float)
        return self._summed(owner[new], hashes[new], times, count)

    def _summed(self, owner: Ints, hashes: Ints, times: Doubles, count: int) -> Blobs:
        sums = np.zeros((count, self.registers))
        step = max(1, _CHUNK // self.registers)
        for start in range(0, len(owner), step):
            part = slice(start, start + step)
            np.add.at(sums, owner[part], self.draws(hashes[part]) * times[part, None])
        blobs, raw = empty(count), sums.astype("<f8").tobytes()
        for cell in np.unique(owner).tolist():
            blobs[cell] = raw[8 * self.registers * cell : 8 * self.registers * (cell + 1)]
        return blobs

    def draws(self, hashes: Ints) -> Doubles:
        """A draw for each hash and register, always the same (Chambers, Mallows, Stuck 1976)."""
        register = _mix(np.arange(2 * self.registers, dtype=np.uint64) + np.uint64(self.seed << 32))
        bits = _mix(hashes.view(np.uint64)[:, None] ^ register)
        uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        angle = np.pi * (uniform[:, : self.registers] - 0.5)
        wait = -np.log(uniform[:, self.registers :])
        p = self.p
        if p == 1.0:
            return np.tan(angle)
        first = np.sin(p * angle) / np.cos(angle) ** (1 / p)
        return first * (np.cos((1 - p) * angle) / wait) ** ((1 - p) / p)

    def merged(self, blobs: Blobs, codes: Ints, count: int) -> Blobs:
        """The sums of registers, in the order of the blobs."""
        there = np.flatnonzero(blobs != b"")
        sums = np.zeros((count, self.registers))
        np.add.at(sums, codes[there], self._numbers(blobs[there]))
        merged, raw, size = empty(count), sums.astype("<f8").tobytes(), 8 * self.registers
        for cell in np.unique(codes[there]).tolist():
            merged[cell] = raw[size * cell : size * (cell + 1)]
        return merged

    def _numbers(self, blobs: Sequence[bytes] | Blobs) -> Doubles:
        return np.frombuffer(b"".join(blobs), "<f8").reshape(-1, self.registers)

    def estimates(self, blobs: Blobs) -> tuple[Doubles, Doubles]:
        """Norms, and three standard errors of each; 0 for the empty synopsis."""
        values = np.zeros(len(blobs))
        there = np.flatnonzero(blobs != b"")
        if len(there):
            values[there] = np.median(np.abs(self._numbers(blobs[there])), axis=1) / one_draw(self.p)
        return values, values * (_SPREAD.get(self.p, _SPREAD[1.0]) / math.sqrt(self.registers))


@lru_cache
def one_draw(p: float) -> float:
    """The median size of one draw: 1 for Cauchy's, 0.6745 times the root of 2 for Gauss's in this form; else by many draws."""
    if p == 1.0:
        return 1.0
    if p == 2.0:
        return 0.6744897501960817 * math.sqrt(2.0)
    many = StableSketch(1, p, seed=1).draws(np.arange(400_000, dtype=np.int64))
    return float(np.median(np.abs(many)))


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        value = value + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))
