"""Which values are the most frequent, and how often is each? Frequent items of Apache DataSketches, a sketch a cell.

No value that is left out is more frequent than the bound, and no count is further from the true one: it is at least that.
Source: Misra, Gries (1982), as Anderson et al., "A high-performance algorithm for identifying frequent items" (2017), have it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import datasketches
import numpy as np
import numpy.typing as npt
import pandas as pd

from headrace.synopses.rows.arrays import Ints
from headrace.synopses.sketches.sketch_kind import Blobs, empty, members

_A_PRIORI: Final = 3.5
_ALL: Final = datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES


@dataclass(frozen=True, slots=True)
class FrequentSketch:
    """Up to three quarters of 2^log_size values with a count each."""

    log_size: int

    @property
    def full_bytes(self) -> int:
        """Values of about a dozen letters, with a count each."""
        return 24 * (3 << self.log_size) // 4

    @staticmethod
    def within(error: Fraction) -> FrequentSketch:
        """The least size whose counts are wrong by at most `error` of all rows."""
        return FrequentSketch(min(max(3, math.ceil(math.log2(_A_PRIORI / float(error)))), 24))

    def made(
        self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None, cells: Ints, count: int
    ) -> Blobs:
        """Sketches of texts."""
        del weights
        codes, texts = pd.factorize(values, sort=True)
        pairs, times = np.unique(cells * max(len(texts), 1) + codes, return_counts=True)
        owner, place = np.divmod(pairs, max(len(texts), 1))
        found, ends = empty(count), np.searchsorted(owner, np.arange(count + 1))
        for cell in np.flatnonzero(np.diff(ends)).tolist():
            sketch = datasketches.frequent_strings_sketch(self.log_size)
            mine = slice(ends[cell], ends[cell + 1])
            for text, number in zip(texts[place[mine]].tolist(), times[mine].tolist(), strict=True):
                sketch.update(text, number)
            found[cell] = bytes(sketch.serialize())
        return found

    def merged(self, blobs: Blobs, codes: Ints, count: int) -> Blobs:
        """Counts added up, the least of them given up."""
        found, several = members(blobs, codes, count)
        for code, parts in enumerate(several):
            if parts:
                whole = datasketches.frequent_strings_sketch.deserialize(parts[0])
                for part in parts[1:]:
                    whole.merge(datasketches.frequent_strings_sketch.deserialize(part))
                found[code] = bytes(whole.serialize())
        return found

    def most(self, blobs: Blobs, number: int) -> tuple[list[list[tuple[str, int]]], Ints]:
        """The most frequent values of each cell with their counts, and how much too high a count may be."""
        found: list[list[tuple[str, int]]] = []
        bounds = np.zeros(len(blobs), np.int64)
        for place, blob in enumerate(blobs):
            if not blob:
                found.append([])
                continue
            sketch = datasketches.frequent_strings_sketch.deserialize(blob)
            items = sketch.get_frequent_items(_ALL, 0)
            ranked = sorted((-count, text) for text, count, _, _ in items)[:number]
            found.append([(text, -count) for count, text in ranked])
            bounds[place] = max((high - low for _, _, low, high in items), default=0)
        return found, bounds
