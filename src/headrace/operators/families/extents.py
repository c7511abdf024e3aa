"""Extents of the windows of a cohort's queries: ranges and counts are data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.operators.base.group_codes import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Extents:
    """By query, in the order of `numbers`: the extent of its window, and the slot of its rows without a key.

    An extent is a length of time in microseconds, or a number of rows; 0 where windows have none.
    """

    numbers: Ints
    values: Ints
    slots: np.ndarray

    def of(self, numbers: Ints) -> Ints:
        """The extent of the query of each of these numbers."""
        return self.values[np.searchsorted(self.numbers, numbers)]

    def slots_of(self, numbers: Ints) -> np.ndarray:
        """The slot of the query of each of these numbers."""
        slots: np.ndarray = self.slots[np.searchsorted(self.numbers, numbers)]
        return slots
