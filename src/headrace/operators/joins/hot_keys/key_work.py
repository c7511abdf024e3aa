"""Keys with much of a join's work in a task and epoch: new rows, and the stored rows that they are compared with.

New rows come in order of their keys. In equal steps of work through them, a key that is met twice in a row has the work of at least
one step; one with the work of two steps is always met twice. So the cost is that of a sum, whatever the number of keys.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, NamedTuple

import numpy as np

from headrace.dataclass import dataclass
from headrace.observation import HeavyKey
from headrace.operators.base.group_codes import Ints

STEPS: Final = 64
"""Keys with a thirty-second of a task's work are found."""
FEWEST: Final = 4096
"""Rows and comparisons of a task and epoch of which keys are counted, while none is divided: of fewer they are not worth it."""


class _Part(NamedTuple):
    """New rows that were searched together, in order of their keys; the work of all rows up to each."""

    side: int
    hashes: Ints
    work: Ints


@dataclass(slots=True)
class KeyWork:
    """The work of one join with so many sides, by key; with less than the `fewest` rows and comparisons none is heavy."""

    sides: int
    fewest: int = FEWEST
    _parts: list[_Part] = field(default_factory=list)

    def see(self, side: int, hashes: Ints, compared: Ints) -> None:
        """Take in new rows of a side, in order of their hashes, and with how many rows each is compared."""
        self._parts.append(_Part(side, hashes, np.cumsum(compared + 1)))

    def heavy(self) -> tuple[HeavyKey, ...]:
        """The keys with at least a step of the work, in order of their hashes."""
        total = sum(int(part.work[-1]) for part in self._parts if len(part.work))
        if total < self.fewest:
            return ()
        step = -(-total // STEPS)
        met = [_met_twice(part, step) for part in self._parts]
        keys = np.unique(np.concatenate(met)) if met else np.empty(0, np.int64)
        rows, compared = np.zeros((self.sides, len(keys)), np.int64), np.zeros(len(keys), np.int64)
        for part in self._parts:
            low, high = (part.hashes.searchsorted(keys, side) for side in ("left", "right"))
            until = np.concatenate([[0], part.work])
            rows[part.side] += high - low
            compared += until[high] - until[low] - (high - low)
        by_side = rows.T.tolist()
        return tuple(
            HeavyKey(key, tuple(of_key), pairs)
            for key, of_key, pairs in zip(keys.tolist(), by_side, compared.tolist(), strict=True)
        )


def _met_twice(part: _Part, step: int) -> Ints:
    """The keys at two steps in a row."""
    places = part.work.searchsorted(np.arange(step, int(part.work[-1]) + 1, step))
    met: Ints = part.hashes[places]
    return np.unique(met[1:][met[1:] == met[:-1]])
