"""Measurement of how the new rows of one side of a join follow those before them by key: of a sample of the keys, the time between
rows of one key, and how far rows are behind larger keys.

Keys are whole numbers, which their hashes hold. The larger keys are those of *shadows*: a sample of the keys whose rows a join stores
for their whole window, whatever constraints let it drop. What they finish is what is measured, so one outlier among the others does no harm.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.adaptive.constraints.key_times import NONE, from_first, from_larger
from headrace.dataclass import dataclass
from headrace.observation import KeyTimes
from headrace.operators.base.group_codes import Ints, numbers_of_hashes
from headrace.operators.joins.key_sample import in_sample
from headrace.operators.joins.probing.stems import Stem
from headrace.operators.rows.sorted_rows import Sorted

SHADOWS: Final = 1 / 512
"""The share of keys whose rows are stored whatever constraints were found: the thesis' p."""


def shadows(hashes: Ints) -> npt.NDArray[np.bool_]:
    """Which rows are of keys in that share."""
    return in_sample(hashes, SHADOWS)


@dataclass(frozen=True, slots=True)
class KeyDistances:
    """Of new rows of a side their times and key hashes, and how far each is from the row that finishes its key: the first `repeated` one,
    or a larger one (`inverted`); below 0 without one. `has_larger`: whether there was a shadow to compare with.
    """

    at: Ints
    hashes: Ints
    repeated: Ints
    inverted: Ints
    is_compared: npt.NDArray[np.bool_]
    """Whether rows of its key were searched."""
    has_larger: bool

    @property
    def times(self) -> KeyTimes:
        """What they show of their side."""
        return KeyTimes(
            int(self.is_compared.sum()),
            int(self.repeated.max(initial=NONE)),
            len(self.at) if self.has_larger else 0,
            int(self.inverted.max(initial=NONE)),
            int(self.at.max(initial=NONE)),
        )


def key_distances(new: Sorted, stem: Stem, share: float, *, every: bool) -> KeyDistances:
    """The distances of new rows whose keys are in the sample of a share, from stored rows and each other; with `every` those of all rows
    from larger keys.
    """
    is_compared = in_sample(new.hash, share)
    if not every:
        chosen = np.flatnonzero(is_compared)
        hashes, at, is_compared = new.hash[chosen], new.at[chosen], np.ones(len(chosen), bool)
    else:
        hashes, at = new.hash, new.at
    repeated = np.full(len(at), NONE)
    if is_compared.any():
        before = [(piece.hash, piece.at) for piece in stem.pieces]
        repeated[is_compared] = from_first(hashes[is_compared], at[is_compared], before)
    of_shadows = [_shadows_of(piece) for piece in (*stem.pieces, new)]
    seen_hashes, seen_at = (np.concatenate(parts) for parts in zip(*of_shadows, strict=True))
    seen = numbers_of_hashes(seen_hashes), seen_at
    inverted = from_larger(numbers_of_hashes(hashes), at, seen) if len(seen_at) else np.full(len(at), NONE)
    return KeyDistances(at, hashes, repeated, inverted, is_compared, bool(len(seen_at)))


def _shadows_of(piece: Sorted) -> tuple[Ints, Ints]:
    """The key hashes and times of a piece's shadows. Up to half of the keys they are neighbours in the order of hashes."""
    if SHADOWS > 0.5:
        chosen = shadows(piece.hash)
        return piece.hash[chosen], piece.at[chosen]
    low, high = piece.hash.searchsorted(np.array([0, int(SHADOWS * 2.0**64)]))
    return piece.hash[low:high], piece.at[low:high]
