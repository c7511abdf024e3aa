"""A sketch of ranks, one per cell: how the summaries of `rank_summary` (quantiles and the weight below a value, with an
error bound) are made of rows, merged, and stored as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.synopses.arrays import Ints
from headrace.synopses.sketches.rank_summary import Ranks
from headrace.synopses.sketches.sketch_kind import Blobs, empty


@dataclass(frozen=True, slots=True)
class Ranking:
    """Weights (1 without any) by value; the weight up to a value has an error of at most `error` of the total, up or down."""

    error: Fraction

    @property
    def full_bytes(self) -> int:
        """About three points of 24 bytes for each part of the error."""
        return 72 * self.fewest

    @property
    def kept_bytes(self) -> int:
        """The points that are never thinned."""
        return 8 + 24 * self.fewest

    def coarser(self, doubled: int) -> Ranking:
        """Half of the points has twice the error."""
        return Ranking(self.error * 2**doubled)

    def made(
        self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None, cells: Ints, count: int
    ) -> Blobs:
        """Exact while points are few."""
        if weights is not None:
            some = np.flatnonzero(weights)
            values, weights, cells = values[some], weights[some], cells[some]
        return encode(Ranks.of(cells, values, weights, count).thinned(self.error, self.fewest))

    def merged(self, blobs: Blobs, codes: Ints, count: int) -> Blobs:
        """Within the same error, for any order of merging."""
        return encode(decode(blobs).merged(codes, count).thinned(self.error, self.fewest))

    def fitted(self, blobs: Blobs) -> Blobs:
        """Without the points that the error allows to drop."""
        return encode(decode(blobs).thinned(self.error, self.fewest))

    @property
    def fewest(self) -> int:
        """The number of points below which nothing is thinned: an exact answer in the same memory."""
        return -(-self.error.denominator // self.error.numerator)


def encode(ranks: Ranks) -> Blobs:
    """One string of doubles per key: the total, then three numbers per point."""
    table = np.stack([ranks.values, ranks.most_below, ranks.least_upto], axis=1).astype("<f8")
    raw, blobs = table.tobytes(), empty(ranks.keys)
    ends = (24 * ranks.offsets).tolist()
    totals = ranks.totals.astype("<f8").tobytes()
    for key in np.flatnonzero(np.diff(ranks.offsets)).tolist():
        blobs[key] = totals[8 * key : 8 * key + 8] + raw[ends[key] : ends[key + 1]]
    return blobs


def decode(blobs: Sequence[bytes] | Blobs) -> Ranks:
    """The summaries of many cells."""
    sizes = np.fromiter(map(len, blobs), np.int64, len(blobs)) // 8
    numbers = np.frombuffer(b"".join(blobs), "<f8")
    there = np.flatnonzero(sizes)
    heads = (np.cumsum(sizes) - sizes)[there]
    totals = np.zeros(len(sizes))
    totals[there] = numbers[heads]
    points = np.delete(numbers, heads).reshape(-1, 3)
    offsets = np.r_[0, np.cumsum(np.maximum(sizes - 1, 0) // 3)]
    return Ranks(totals, offsets, *(np.ascontiguousarray(points[:, part]) for part in range(3)))
