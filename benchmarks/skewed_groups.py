"""Streams whose groups are of very different size: the five data sets on which adaptive window aggregation was shown.

Small groups have 1 row, medium ones 15 on average, large ones 300; a fifth of the rows is in medium groups, 1, 3, 5, 7 or 9
percent in small ones. Source: Li, Window Queries over Data Streams (2008), section 6.4 (the experiment of figure 6-19).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
SMALL_SHARES = (0.01, 0.03, 0.05, 0.07, 0.09)
_MEDIUM_SHARE, _MEDIUM, _LARGE = 0.2, 15, 300


@dataclass(frozen=True, slots=True)
class Skewed:
    """Rows of one period: the group of each; and how many groups of each size there are."""

    group: Numbers
    small: int
    medium: int
    large: int

    @property
    def groups(self) -> int:
        return self.small + self.medium + self.large


def skewed(rows: int, small_share: float, seed: int) -> Skewed:
    """About `rows` rows, in random order."""
    rng = np.random.default_rng(seed)
    small = round(rows * small_share)
    medium = max(1, round(rows * _MEDIUM_SHARE / _MEDIUM))
    large = max(1, round(rows * (1 - _MEDIUM_SHARE - small_share) / _LARGE))
    sizes = np.concatenate([np.ones(small, np.int64), rng.integers(8, 23, medium), np.full(large, _LARGE)])
    names = rng.permutation(len(sizes))
    return Skewed(rng.permutation(np.repeat(names, sizes)), small, medium, large)
