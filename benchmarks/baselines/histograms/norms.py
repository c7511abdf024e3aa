"""Measures of general histograms: L_p norms of vectors with few entries, or hashed into registers.

f is the p-th power of the norm, which grows as the histograms require: C = 2^(p - 1), which is 1 for p = 1 and 2 for p = 2
(the text uses the maximum, 2, for all). Summaries of vectors are added.
Source: Datar, Gionis, Indyk, Motwani (2001), section 5; the registers are those of `stable_sketch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.synopses.arrays import Ints
from headrace.synopses.sketches.stable_sketch import StableSketch, one_draw

Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PowerOfNorm:
    """L_p to the p of vectors of `width` entries, all stored. `p` from 1 to 2, entries from 0 on."""

    p: float
    width: int

    @property
    def factor(self) -> float:
        """2^(p - 1)."""
        return float(2 ** (self.p - 1))

    def joined(self, one: Doubles, other: Doubles) -> Doubles:
        """The sums of vectors."""
        return one + other

    def sizes(self, summaries: Doubles) -> Doubles:
        """Sums of p-th powers."""
        sums: Doubles = (summaries**self.p).sum(axis=1)
        return sums

    def rows(self, places: Ints, amounts: Doubles) -> Doubles:
        """Vectors with one entry each."""
        vectors = np.zeros((len(places), self.width))
        vectors[np.arange(len(places)), places] = amounts
        return vectors


@dataclass(frozen=True, slots=True)
class PowerOfSketchedNorm:
    """The same of vectors with an entry for every possible value, from a sketch's registers, with the sketch's error."""

    sketch: StableSketch

    @property
    def factor(self) -> float:
        """2^(p - 1)."""
        return float(2 ** (self.sketch.p - 1))

    @property
    def width(self) -> int:
        """The registers."""
        return self.sketch.registers

    def joined(self, one: Doubles, other: Doubles) -> Doubles:
        """The sums of registers."""
        return one + other

    def sizes(self, summaries: Doubles) -> Doubles:
        """The estimated norms to the p."""
        if not len(summaries):
            return np.zeros(0)
        norms: Doubles = (np.median(np.abs(summaries), axis=1) / one_draw(self.sketch.p)) ** self.sketch.p
        return norms

    def rows(self, hashes: Ints, amounts: Doubles) -> Doubles:
        """Registers of one row each, by the hash of its value."""
        return self.sketch.draws(hashes) * amounts[:, None]
