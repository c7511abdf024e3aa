"""Load shedding: which rows are in the sample of a rate, by hashes that the caller computes, and how many rows each
sampled row represents.

A row is sampled when its hash is below the sample rate. The hash is of the row's position and the stream alone: the same
rows are sampled whatever the cuts, the tasks and the queries, and a sample at a quarter is part of one at a half.
Each sampled row represents 1 / rate rows (Horvitz and Thompson 1952). Source: OSCAR, randomised blocks read to a part.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_HASHES: Final = 2.0**64


def is_sampled(hashes: npt.NDArray[np.uint64], sample_rate: float) -> npt.NDArray[np.bool_]:
    """Which rows are in the sample of a rate (0 < rate <= 1), by their hashes of 64 bits.

    >>> is_sampled(np.array([0, 2**62, 2**63, 2**64 - 1], np.uint64), 0.5).tolist()
    [True, True, False, False]
    """
    if sample_rate >= 1:
        return np.ones(len(hashes), bool)
    return hashes < np.uint64(int(sample_rate * _HASHES))


def weight_of(sample_rate: float) -> float:
    """How many rows a sampled row represents."""
    return 1.0 / sample_rate
