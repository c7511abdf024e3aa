"""Measurement of the delays between the rows of a join's combinations, by two sides: of every combination, or of a sample; and counts
of the rows that the join stores, with what was measured of their keys (`key_monitor`).

`delays` is by (side, other side): the largest time by which the other's row was after the side's own, in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import permutations
from typing import Final

import numpy as np

from headrace.dataclass import dataclass
from headrace.observation import NO_DELAY, DelayObservation, KeyTimes
from headrace.operators.joins.probing.stems import Combinations, Stem
from headrace.time import BEGINNING, Instant

SAMPLED: Final = 256
"""Combinations of which a sample measures the delays, of those that are made together."""


@dataclass(slots=True)
class DelayMonitor:
    """The delays of one join in one task and epoch. `every`: of all combinations, since rows are dropped by what is found. It `sees_delays`, and
    compares rows by key if it `sees_keys`, in some epochs.
    """

    sides: int
    every: bool = False
    sees_delays: bool = True
    sees_keys: bool = False
    pairs: int = 0
    latest: Instant = BEGINNING
    left_out: int = 0
    left_out_sampled: int = 0
    from_spill: int = 0
    _delays: dict[tuple[int, int], int] = field(default_factory=dict)
    _rows: list[int] = field(default_factory=list)
    _stored: list[int] = field(default_factory=list)
    _punctuations: tuple[Instant, ...] = ()
    _bounds: tuple[int | None, ...] = ()
    _keys: dict[int, KeyTimes] = field(default_factory=dict)

    def see(self, combinations: Combinations, stems: Mapping[int, Stem]) -> None:
        """Measure some combinations that were made together."""
        if not (combinations.count and self.sees_delays):
            return
        step = 1 if self.every else -(-combinations.count // SAMPLED)
        times = {side: stems[side].times(numbers[::step]) for side, numbers in combinations.rows.items()}
        self.pairs += -(-combinations.count // step)
        self.latest = max(self.latest, int(combinations.at[::step].max()))
        for side, other in permutations(times, 2):
            largest = int(np.max(times[other] - times[side]))
            self._delays[side, other] = max(largest, self._delays.get((side, other), NO_DELAY))

    def see_keys(self, side: int, times: KeyTimes) -> None:
        """Take in new rows of a side."""
        self._keys[side] = self._keys[side].plus(times) if side in self._keys else times

    def advanced(
        self,
        rows: Sequence[int],
        stored: Sequence[int],
        punctuations: tuple[Instant, ...],
        bounds: tuple[int | None, ...],
    ) -> None:
        """Take in the new and the stored rows of each side, and the bounds by which the join advanced."""
        self._rows = [sum(both) for both in zip(self._rows or [0] * self.sides, rows, strict=True)]
        self._stored, self._punctuations, self._bounds = list(stored), punctuations, bounds

    def leave_out(self, count: int, sampled: int) -> None:
        """Count combinations beyond a bound, and those among them of sampled keys, which are always noticed."""
        self.left_out += count
        self.left_out_sampled += sampled

    def observation(self) -> DelayObservation:
        """What was measured."""
        sides = range(self.sides)
        delays = tuple(self._delays.get((side, other), NO_DELAY) for side in sides for other in sides)
        return DelayObservation(
            self.pairs,
            delays,
            self.latest,
            tuple(self._rows),
            tuple(self._stored),
            self._punctuations,
            self._bounds,
            self.left_out,
            self.left_out_sampled,
            self.every,
            tuple(self._keys.get(side, KeyTimes()) for side in sides) if self._keys else (),
            self.from_spill,
        )
