"""Load shedding: which rows are in the sample of a rate, or of several rates by the value of a column, by hashes that the
caller computes; and how many rows each sampled row represents.

A row is sampled when its hash is below the sample rate. The hash is of the row's position and the stream alone: the same
rows are sampled whatever the cuts, the tasks and the queries, and a sample at a quarter is part of one at a half.
Each sampled row represents 1 / rate rows (Horvitz and Thompson 1952). Source: OSCAR, randomised blocks read to a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.quality_of_service import Importance

_HASHES: Final = 2.0**64


def is_sampled(hashes: npt.NDArray[np.uint64], sample_rate: float) -> npt.NDArray[np.bool_]:
    """Which rows are in the sample of a rate (0 < rate <= 1), by their hashes of 64 bits.

    >>> is_sampled(np.array([0, 2**62, 2**63, 2**64 - 1], np.uint64), 0.5).tolist()
    [True, True, False, False]
    """
    if sample_rate >= 1:
        return np.ones(len(hashes), bool)
    return hashes < np.uint64(int(sample_rate * _HASHES))


def is_sampled_by(
    hashes: npt.NDArray[np.uint64], intervals: npt.NDArray[np.int64], sample_rates: Sequence[float]
) -> npt.NDArray[np.bool_]:
    """Which rows are in the sample of the rate of their interval.

    >>> is_sampled_by(np.array([2**62, 2**62, 2**63], np.uint64), np.array([0, 1, 1]), (1 / 8, 1.0)).tolist()
    [False, True, True]
    """
    below = np.array([int(rate * _HASHES) if rate < 1 else 0 for rate in sample_rates], np.uint64)
    every = np.array([rate >= 1 for rate in sample_rates])
    return every[intervals] | (hashes < below[intervals])


def intervals_of(values: pa.Array, importance: Importance) -> npt.NDArray[np.int64]:
    """The interval that each value is in: the first whose bound it is below; the last one for NULL and NaN too, or the first.

    >>> intervals_of(pa.array([5, 100, None, 99]), Importance("price", (100.0,), (0.1, 1.0))).tolist()
    [0, 1, 1, 0]
    """
    if pa.types.is_integer(values.type) and not values.null_count:
        numbers = values.to_numpy(zero_copy_only=False)  # a few comparisons are faster than a search
        above = [numbers >= bound for bound in importance.bounds]
        return np.asarray(np.sum(above, axis=0, dtype=np.int64))
    numbers = pc.fill_null(pc.cast(values, pa.float64(), safe=False), float("nan"))
    values_of = numbers.to_numpy(zero_copy_only=False)
    below = np.array(importance.bounds).searchsorted(values_of, side="right")
    if importance.missing_is_first:
        below[np.isnan(values_of)] = 0
    return np.asarray(below, np.int64)


def weight_of(sample_rate: float) -> float:
    """How many rows a sampled row represents."""
    return 1.0 / sample_rate
