"""Distinct counts: HyperLogLog of Apache DataSketches, one sketch per cell.

Its input is 64-bit hashes of values, each once per batch. The bound is three standard errors: three of a thousand
hash functions would exceed it. Up to a sixteenth of its registers it stores all values, and is exact but for a collision.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import datasketches
import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.synopses.arrays import Ints
from headrace.synopses.sketches.sketch_kind import Blobs, empty, gathered

_FORM: Final = datasketches.tgt_hll_type.HLL_4
_DEVIATIONS: Final = 3
_STANDARD_ERROR: Final = 1.04
_FEWEST: Final = 4
"""The least logarithm of registers."""
_LOG_REGISTERS_AT: Final = 3
"""The byte of a stored sketch that has it."""


@dataclass(frozen=True, slots=True)
class DistinctSketch:
    """2^log_registers registers of half a byte."""

    log_registers: int

    @property
    def full_bytes(self) -> int:
        """Half a byte per register."""
        return (1 << self.log_registers) // 2 + 64

    @property
    def kept_bytes(self) -> int:
        """That of all registers."""
        return self.full_bytes

    @staticmethod
    def within(error: Fraction) -> DistinctSketch:
        """The fewest registers with this error; errors below 0.22 percent get the maximum."""
        registers = (_DEVIATIONS * _STANDARD_ERROR / float(error)) ** 2
        return DistinctSketch(min(max(_FEWEST, math.ceil(math.log2(registers))), 21))

    def coarser(self, doubled: int) -> DistinctSketch:
        """A quarter of the registers has twice the error."""
        return DistinctSketch(max(_FEWEST, self.log_registers - 2 * doubled))

    def made(
        self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None, cells: Ints, count: int
    ) -> Blobs:
        """Sketches of hashes."""
        del weights
        order = np.lexsort((values, cells))
        owner, hashes = cells[order], values[order]
        new = np.r_[
            np.ones(min(len(owner), 1), bool), (owner[1:] != owner[:-1]) | (hashes[1:] != hashes[:-1])
        ]
        owner, hashes, blobs = owner[new], hashes[new], empty(count)
        ends = np.searchsorted(owner, np.arange(count + 1))
        for cell in np.flatnonzero(np.diff(ends)).tolist():
            sketch = datasketches.hll_sketch(self.log_registers, _FORM)
            for value in hashes[ends[cell] : ends[cell + 1]].tolist():
                sketch.update(value)
            blobs[cell] = bytes(sketch.serialize_compact())
        return blobs

    def merged(self, blobs: Blobs, codes: Ints, count: int) -> Blobs:
        """The maxima of registers, of as few as the one with the fewest has."""
        combined, several = gathered(blobs, codes, count)
        for code, parts in enumerate(several):
            if parts:
                fewest = min(self.log_registers, *(part[_LOG_REGISTERS_AT] for part in parts))
                union = datasketches.hll_union(fewest)
                for part in parts:
                    union.update(datasketches.hll_sketch.deserialize(_with_at_most(fewest, part)))
                combined[code] = bytes(union.get_result(_FORM).serialize_compact())
        return combined

    def fitted(self, blobs: Blobs) -> Blobs:
        """With at most as many registers as the kind has: the maxima of several."""
        made = blobs.copy()
        for index in np.flatnonzero(blobs != b"").tolist():
            made[index] = _with_at_most(self.log_registers, blobs[index])
        return made

    def estimates(self, blobs: Blobs) -> tuple[Ints, Ints]:
        """The estimated numbers of values, and their maximum errors."""
        values, bounds = np.zeros(len(blobs), np.int64), np.zeros(len(blobs), np.int64)
        for index, blob in enumerate(blobs):
            if blob:
                sketch = datasketches.hll_sketch.deserialize(blob)
                value = round(sketch.get_estimate())
                high, low = sketch.get_upper_bound(_DEVIATIONS), sketch.get_lower_bound(_DEVIATIONS)
                values[index] = value
                bounds[index] = math.floor(max(high - value, value - low, 0.0) + 1e-3)
        return values, bounds


def _with_at_most(log_registers: int, blob: bytes) -> bytes:
    """A sketch with so many registers at most. Each alone: a union that has reduced one sketch drops it when a second one is larger."""
    if blob[_LOG_REGISTERS_AT] <= log_registers:
        return blob
    union = datasketches.hll_union(log_registers)
    union.update(datasketches.hll_sketch.deserialize(blob))
    return bytes(union.get_result(_FORM).serialize_compact())
