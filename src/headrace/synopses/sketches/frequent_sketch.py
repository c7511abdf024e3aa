"""The most frequent values and their counts: Frequent Items of Apache DataSketches, one sketch per cell.

A value that is left out is at most as frequent as the bound, and a count is at least the true one, by at most the bound.
Source: Misra, Gries (1982), in the form of Anderson et al., "A high-performance algorithm for identifying frequent items" (2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import datasketches
import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.synopses.arrays import Ints
from headrace.synopses.sketches.sketch_kind import Blobs, empty, gathered

_A_PRIORI: Final = 3.5
_FEWEST: Final = 3
"""The least logarithm of the size."""
_LOG_SIZE_AT: Final = 3
"""The byte of a stored sketch that has it."""
_ALL: Final = datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES


@dataclass(frozen=True, slots=True)
class FrequentSketch:
    """Up to three quarters of 2^log_size values with a count each."""

    log_size: int

    @property
    def full_bytes(self) -> int:
        """Values of about a dozen letters, with a count each."""
        return 24 * (3 << self.log_size) // 4

    @property
    def kept_bytes(self) -> int:
        """Of values of a letter or two."""
        return self.full_bytes * 14 // 24

    @staticmethod
    def within(error: Fraction) -> FrequentSketch:
        """The least size whose counts have an error of at most `error` of all rows."""
        return FrequentSketch(min(max(_FEWEST, math.ceil(math.log2(_A_PRIORI / float(error)))), 24))

    def coarser(self, doubled: int) -> FrequentSketch:
        """Half of the values has twice the error."""
        return FrequentSketch(max(_FEWEST, self.log_size - doubled))

    def made(
        self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None, cells: Ints, count: int
    ) -> Blobs:
        """Sketches of texts."""
        del weights
        from pandas import factorize  # noqa: PLC0415 - takes long to import

        codes, texts = factorize(values, sort=True)
        pairs, times = np.unique(cells * max(len(texts), 1) + codes, return_counts=True)
        owner, index = np.divmod(pairs, max(len(texts), 1))
        blobs, ends = empty(count), np.searchsorted(owner, np.arange(count + 1))
        for cell in np.flatnonzero(np.diff(ends)).tolist():
            sketch = datasketches.frequent_strings_sketch(self.log_size)
            part = slice(ends[cell], ends[cell + 1])
            for text, number in zip(texts[index[part]].tolist(), times[part].tolist(), strict=True):
                sketch.update(text, number)
            blobs[cell] = bytes(sketch.serialize())
        return blobs

    def merged(self, blobs: Blobs, codes: Ints, count: int) -> Blobs:
        """The counts added, the least of them dropped."""
        combined, several = gathered(blobs, codes, count)
        for code, parts in enumerate(several):
            if parts:
                combined[code] = self._one(parts)
        return combined

    def _one(self, parts: Sequence[bytes]) -> bytes:
        """Several as one, of at most the kind's size."""
        if parts[0][_LOG_SIZE_AT] > self.log_size:
            union = datasketches.frequent_strings_sketch(self.log_size)
        else:
            union, parts = datasketches.frequent_strings_sketch.deserialize(parts[0]), parts[1:]
        for part in parts:
            union.merge(datasketches.frequent_strings_sketch.deserialize(part))
        return bytes(union.serialize())

    def fitted(self, blobs: Blobs) -> Blobs:
        """With at most as many values as the kind has, the most frequent ones."""
        made = blobs.copy()
        for index in np.flatnonzero(blobs != b"").tolist():
            if blobs[index][_LOG_SIZE_AT] > self.log_size:
                made[index] = self._one([blobs[index]])
        return made

    def most(self, blobs: Blobs, number: int) -> tuple[list[list[tuple[str, int]]], Ints]:
        """The most frequent values of each cell with their counts, and the maximum excess of a count."""
        ranked_values: list[list[tuple[str, int]]] = []
        bounds = np.zeros(len(blobs), np.int64)
        for index, blob in enumerate(blobs):
            if not blob:
                ranked_values.append([])
                continue
            sketch = datasketches.frequent_strings_sketch.deserialize(blob)
            items = sketch.get_frequent_items(_ALL, 0)
            ranked = sorted((-count, text) for text, count, _, _ in items)[:number]
            ranked_values.append([(text, -count) for count, text in ranked])
            bounds[index] = max((high - low for _, _, low, high in items), default=0)
        return ranked_values, bounds
