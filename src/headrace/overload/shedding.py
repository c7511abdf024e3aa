"""Which rows of a stream may a query be spared, and what does each one it is shown stand for?

A row is kept when its hash lies below the fraction that is in force. The hash is of the row's position and the stream
alone: the same rows are kept whatever the cuts, the tasks and the queries, and what is kept at a quarter is kept at a half.
Each kept row stands for 1 / fraction rows (Horvitz and Thompson 1952). Source: OSCAR, randomised blocks read to a part.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_HASHES: Final = 2.0**64


def is_sampled(hashes: npt.NDArray[np.uint64], sample_rate: float) -> npt.NDArray[np.bool_]:
    """Which rows are shown at a fraction `keep` (0 < keep <= 1), by their hashes of 64 bits.

    >>> kept(np.array([0, 2**62, 2**63, 2**64 - 1], np.uint64), 0.5).tolist()
    [True, True, False, False]
    """
    if sample_rate >= 1:
        return np.ones(len(hashes), bool)
    return hashes < np.uint64(int(sample_rate * _HASHES))


def weight_of(sample_rate: float) -> float:
    """How many rows each row that is kept stands for."""
    return 1.0 / sample_rate
