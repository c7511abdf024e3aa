"""The value of k in use for a constraint, from observed distances: lowered after a window of arrivals, given up at once.

`k` is what the executor uses, infinite while the constraint is not used. Rows that it discards are kept as shadows up to `seen_to`,
so that an increase is noticed; a share of them longer.
Source: Babu (2005), sections 6.6.2, 6.7.2 and 6.8.2.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass

Ints: TypeAlias = npt.NDArray[np.int64]
UNUSED: Final = float("inf")


@dataclass(slots=True)
class KEstimate:
    """The k of one constraint. `window`: the arrivals that are measured before it is lowered; `reach`: how far beyond k, as a
    factor, distances are surely seen; `sample`: the share of discarded rows that are watched as long as their window has them.

    Distances are bounded by the age of the stream, so the first k is not trusted before it is older than the window and k (the
    thesis has no such rule). With `fixed` k is declared: it stays, and larger distances are violations.
    """

    window: int = 1000
    reach: float = 1.2
    sample: float = 0.01
    fixed: int | None = None
    k: float = field(init=False)
    violations: int = 0
    changes: int = 0
    _arrived: int = 0
    _newest: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.k = UNUSED if self.fixed is None else self.fixed
        self._newest = np.empty(0, np.int64)

    @property
    def is_used(self) -> bool:
        """Whether the executor may rely on the constraint."""
        return self.k != UNUSED

    @property
    def seen_to(self) -> float:
        """The largest distance that is surely observed."""
        return max(self.k, self.reach * self.k) if self.is_used else UNUSED

    def observe(self, distances: Ints) -> None:
        """The distances of a batch of arrivals, in order; k changes once, at the end of the batch."""
        self._arrived += len(distances)
        beyond = np.flatnonzero(distances > self.k)
        self.violations += len(beyond)
        if self.fixed is not None:
            return
        if len(beyond):
            self._set(UNUSED)
            self._newest = distances[beyond[-1] :][-self.window :]
        else:
            self._newest = np.concatenate([self._newest, distances])[-self.window :]
        if len(self._newest) < self.window:
            return
        largest = int(self._newest.max())
        if largest < self.k and self._arrived >= self.window + largest:
            self._set(largest)

    def _set(self, k: float) -> None:
        self.changes += k != self.k
        self.k = k
