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
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.synopses.arrays import Ints
from headrace.synopses.sketches.sketch_kind import Blobs, empty

Doubles: TypeAlias = npt.NDArray[np.float64]
_SPREAD: Final = {2.0: 3.5, 1.0: 4.75}
"""Three standard errors of the median of the draws, times the root of their number: 3 * 1.166 of Gauss's, 3 * pi / 2 of Cauchy's."""
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StableSketch:
    """`registers` sums; `p` from 1 to 2 is the norm, `seed` that of the noise. They are the first ones of `drawn` (None: all)."""

    registers: int
    p: float = 2.0
    seed: int = 0
    drawn: int | None = None

    @property
    def full_bytes(self) -> int:
        """Eight bytes per register."""
        return 8 * self.registers

    @property
    def kept_bytes(self) -> int:
        """That of all registers."""
        return self.full_bytes

    @staticmethod
    def within(error: Fraction) -> StableSketch:
        """The number of registers with three standard errors within `error`, for p = 2."""
        return StableSketch(math.ceil((_SPREAD[2.0] / float(error)) ** 2))

    def coarser(self, doubled: int) -> StableSketch:
        """The first of its registers, of which a quarter has twice the error."""
        return replace(self, registers=-(-self.registers // 4**doubled), drawn=self.drawn or self.registers)

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
        first, drawn = np.arange(self.registers, dtype=np.uint64), self.drawn or self.registers
        register = _mix(np.r_[first, first + np.uint64(drawn)] + np.uint64(self.seed << 32))
        bits = _mix(hashes.view(np.uint64)[:, None] ^ register)
        uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        angle = np.pi * (uniform[:, : self.registers] - 0.5)
        wait = -np.log(uniform[:, self.registers :])
        p = self.p
        if p == 1.0:
            return np.tan(angle)
        of_angle = np.sin(p * angle) / np.cos(angle) ** (1 / p)
        return of_angle * (np.cos((1 - p) * angle) / wait) ** ((1 - p) / p)

    def merged(self, blobs: Blobs, codes: Ints, count: int) -> Blobs:
        """The sums of registers, in the order of the blobs; where some have fewer, of as many as all have."""
        there = np.flatnonzero(blobs != b"")
        sizes = _registers(blobs[there])
        fewest = np.full(count, self.registers)
        np.minimum.at(fewest, codes[there], sizes)
        merged = empty(count)
        for registers in np.unique(fewest[codes[there]]).tolist():
            summed = there[fewest[codes[there]] == registers]
            cells, owner = np.unique(codes[summed], return_inverse=True)
            sums = np.zeros((len(cells), registers))
            np.add.at(sums, owner, _numbers(blobs[summed], registers))
            raw, size = sums.astype("<f8").tobytes(), 8 * registers
            for number, cell in enumerate(cells.tolist()):
                merged[cell] = raw[size * number : size * (number + 1)]
        return merged

    def fitted(self, blobs: Blobs) -> Blobs:
        """The first registers, as many as the kind has."""
        made = blobs.copy()
        for index in np.flatnonzero(_registers(blobs) > self.registers).tolist():
            made[index] = blobs[index][: 8 * self.registers]
        return made

    def estimates(self, blobs: Blobs) -> tuple[Doubles, Doubles]:
        """Norms, and three standard errors of each by its number of registers; 0 for the empty synopsis."""
        values, sizes = np.zeros(len(blobs)), _registers(blobs)
        for registers in np.unique(sizes[sizes > 0]).tolist():
            some = np.flatnonzero(sizes == registers)
            values[some] = np.median(np.abs(_numbers(blobs[some], registers)), axis=1) / one_draw(self.p)
        return values, values * (_SPREAD.get(self.p, _SPREAD[1.0]) / np.sqrt(np.maximum(sizes, 1)))


def _registers(blobs: Sequence[bytes] | Blobs) -> Ints:
    """How many each has."""
    return np.fromiter(map(len, blobs), np.int64, len(blobs)) // 8


def _numbers(blobs: Sequence[bytes] | Blobs, registers: int) -> Doubles:
    """The first registers of each."""
    first = b"".join(blob[: 8 * registers] for blob in blobs)
    return np.frombuffer(first, "<f8").reshape(-1, registers)


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
