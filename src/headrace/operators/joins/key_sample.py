"""The sample of keys that a join with a limit of stored rows joins, and what it has not found, estimated with its error.

A key is in the sample of a share if its hash is below that share of all hashes: the same keys on all sides and in all tasks, and
the sample of a smaller share is a part of it. So each combination of a sampled key is found, and none of another. With y(k) combinations of
key k, the number of all is estimated by sum y(k)/share over the sample, and the variance of that by sum (1 - share) (y(k)/share)^2
(Horvitz, Thompson 1952, keys as clusters).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.operators.base.group_codes import Ints

_HASHES: Final = 2.0**64


class KeySampleCounts(NamedTuple):
    """How many stored rows of a limited join may still be joined; and of the combinations that a step did not find, because their
    keys are not in the sample, an estimate of their number and its variance.
    """

    joinable: int
    missing: float = 0.0
    variance: float = 0.0


def in_sample(hashes: Ints, share: float) -> npt.NDArray[np.bool_]:
    """Which keys are in the sample of a share (0 < share <= 1), by their hashes.

    >>> in_sample(np.array([0, 2**62, -(2**63), -1]), 0.5).tolist()
    [True, True, False, False]
    """
    if share >= 1:
        return np.ones(len(hashes), bool)
    return hashes.view(np.uint64) < np.uint64(int(share * _HASHES))


def sample_counts(joinable: int, key_hashes: Sequence[Ints], share: float) -> KeySampleCounts:
    """The counts of a step: rows that may still be joined, and by the key hashes of the combinations that it found, what it did not."""
    if share >= 1 or not key_hashes:
        return KeySampleCounts(joinable)
    combinations = np.unique(np.concatenate(key_hashes), return_counts=True)[1].astype(np.float64)
    missing = float(combinations.sum()) * (1 / share - 1)
    variance = (1 - share) * float(np.square(combinations / share).sum())
    return KeySampleCounts(joinable, missing, variance)
