"""A sketch of ranks of sampled rows, one per cell: values with the number of rows that each one represents, and how far the ranks
of all rows may be from those of the sample.

Source: Hansen and Hurwitz (1943) and Horvitz and Thompson (1952) for the share of rows up to a value as a ratio of weighted sums; Wilson
(1927) for an interval that is not empty where a sample has few rows; Woodruff (1952) for the interval of a quantile from that of its rank.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.synopses.arrays import Ints
from headrace.synopses.sketches.rank_sketch import Ranking, decode
from headrace.synopses.sketches.rank_summary import Doubles
from headrace.synopses.sketches.sketch_kind import Blobs, empty

_Z: Final = 1.959963984540054
"""Half the width of a 95 % interval of the normal distribution, in standard deviations."""
_HEAD: Final = 16


@dataclass(frozen=True, slots=True)
class SampledRanking:
    """A `ranking` of weighted values, whole numbers; before it, two doubles: the sum of w (w - 1) over rows, and the greatest w."""

    ranking: Ranking

    @property
    def full_bytes(self) -> int:
        """Those of the ranking, and two numbers."""
        return _HEAD + self.ranking.full_bytes

    @property
    def kept_bytes(self) -> int:
        """Those of the ranking, and two numbers."""
        return _HEAD + self.ranking.kept_bytes

    def coarser(self, doubled: int) -> SampledRanking:
        """With a coarser ranking."""
        return SampledRanking(self.ranking.coarser(doubled))

    def made(
        self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None, cells: Ints, count: int
    ) -> Blobs:
        """Rows without weights represent themselves."""
        weights = np.ones(len(values)) if weights is None else weights
        spread = np.bincount(cells, weights * (weights - 1), count)
        most = np.zeros(count)
        np.maximum.at(most, cells, weights)
        return _headed(self.ranking.made(values, weights, cells, count), spread.astype(np.float64), most)

    def merged(self, blobs: Blobs, codes: Ints, count: int) -> Blobs:
        """Rankings merged, spreads added."""
        spread_of, most_of = _heads(blobs)
        most = np.zeros(count)
        np.maximum.at(most, codes, most_of)
        merged = self.ranking.merged(_rankings(blobs), codes, count)
        spread = np.bincount(codes, spread_of, count).astype(np.float64)
        return _headed(merged, spread, most)

    def fitted(self, blobs: Blobs) -> Blobs:
        """With rankings that are fitted."""
        return _headed(self.ranking.fitted(_rankings(blobs)), *_heads(blobs))

    def quantile(self, blobs: Blobs, share: float) -> tuple[Doubles, Doubles]:
        """Per cell the value at a rank, and its maximum distance from that of all rows: certain if each row is there, else at 95 %;
        NaN where the sample has too few rows to bound it.
        """
        ranks = decode(_rankings(blobs))
        return ranks.quantile(share, uncertainty(ranks.totals, *_heads(blobs), share))


def uncertainty(totals: Doubles, spread: Doubles, most: Doubles, share: float) -> Doubles:
    """How far, at 95 %, the rank of the value at a share may be from that of the sample, in rows; 0 where no row is missing.

    The share of rows up to the value is a ratio of weighted sums, whose variance is the sum of w (w - 1) (1 - share)^2 over sampled rows
    up to the value and of w (w - 1) share^2 over the others. Which of the spread is on which side is not known: as much as the greatest
    weight allows is on the side where it counts more.
    """
    low, high = (1 - share) ** 2, share**2
    expected = share if low >= high else 1 - share
    dearer = np.minimum(spread, np.maximum(most - 1, 0.0) * expected * totals)
    variance = dearer * max(low, high) + (spread - dearer) * min(low, high)
    wilson = np.where(most > 1, _Z * _Z * most / 2, 0.0)
    return np.asarray(wilson + np.sqrt(wilson**2 + _Z * _Z * variance), np.float64)


def _headed(rankings: Blobs, spread: Doubles, most: Doubles) -> Blobs:
    raw, headed = np.stack([spread, most], axis=1).astype("<f8").tobytes(), empty(len(rankings))
    for cell in np.flatnonzero(rankings != b"").tolist():
        headed[cell] = raw[_HEAD * cell : _HEAD * (cell + 1)] + rankings[cell]
    return headed


def _heads(blobs: Blobs) -> tuple[Doubles, Doubles]:
    """Spreads and greatest weights; 0 of empty cells."""
    heads = np.frombuffer(b"".join(blob[:_HEAD] or bytes(_HEAD) for blob in blobs), "<f8").reshape(-1, 2)
    return np.ascontiguousarray(heads[:, 0]), np.ascontiguousarray(heads[:, 1])


def _rankings(blobs: Blobs) -> Blobs:
    rankings = empty(len(blobs))
    rankings[:] = [blob[_HEAD:] for blob in blobs]
    return rankings
