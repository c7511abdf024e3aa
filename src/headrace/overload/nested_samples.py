"""Samples of one batch at many rates: the rows of each are looked for among those of a larger one, since a sample is part of
every sample of a greater rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from math import log2
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.overload.shedding import is_sampled

Rows: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]
_FINEST: Final = 16
"""Samples are retained at the rates 1, 1/2, 1/4, … 2^-16, of those that were needed."""


@dataclass(slots=True)
class NestedSamples:
    """The samples of a batch whose rows have hashes of 64 bits, which `hashes_of` gives when they are first needed."""

    hashes_of: Callable[[], Hashes]
    _known: dict[int, tuple[Rows, Hashes]] = field(default_factory=dict)

    def rows(self, rate: float) -> Rows:
        """The numbers of the rows in the sample of a rate, 0 < rate <= 1, ascending.

        >>> samples = NestedSamples(lambda: np.array([0, 2**61, 2**63, 2**62], np.uint64))
        >>> [samples.rows(rate).tolist() for rate in (1.0, 0.3, 0.1)]
        [[0, 1, 2, 3], [0, 1, 3], [0]]
        """
        rows, hashes = self.around(rate)
        return rows[is_sampled(hashes, rate)]

    def around(self, rate: float) -> tuple[Rows, Hashes]:
        """The rows of a sample that holds the one of a rate and is at most twice as large; and their hashes."""
        return self._at(min(_FINEST, int(-log2(rate))) if rate < 1 else 0)

    def _at(self, level: int) -> tuple[Rows, Hashes]:
        if 0 not in self._known:
            hashes = self.hashes_of()
            self._known[0] = np.arange(len(hashes)), hashes
        if level not in self._known:
            rows, hashes = self._known[max(known for known in self._known if known < level)]
            held = np.flatnonzero(is_sampled(hashes, 2.0**-level))
            self._known[level] = rows[held], hashes[held]
        return self._known[level]
