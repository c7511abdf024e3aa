"""The choice of keys of a join whose rows are divided between tasks, from what each task did and which keys had much of it.

One key is in one task, so a key with a share s of the work of T tasks makes its task do 1 + s (T - 1) times the mean, if the other keys are
even. Divided into T parts, by the positions of the rows of one side, its pairs are even too; the rows of its other side are in every part. So the
side with most rows is divided, and a key with few combinations and rows to divide, compared with the rows of all other sides, which are copied, stays in one place.
Measurements are averaged over epochs, each counting for half of what all later ones do, so that one burst alone decides little.
Source: the skewed keys of parallel hash joins (DeWitt, Naughton, Schneider, Seshadri 1992: subset-replicate), for windows, with keys that change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from headrace.dataclass import dataclass
from headrace.observation import HeavyKey

MOST_KEYS: Final = 16
"""Keys of a join that are divided at a time."""
UNEVEN: Final = 1.25
"""The work of the largest task to the mean, beyond which keys are divided."""
_EPOCHS: Final = 2
"""Epochs that are measured before a key is divided."""
_HOT: Final = 0.5
"""The work of a key that is divided, as a part of what a task has on average."""
_COLD: Final = 0.125
"""The part below which its rows are in one place again."""
_COPIED: Final = 2
"""The rows and pairs that are divided are at least so many times the rows that are copied."""
_TURNED: Final = 2
"""Another side is divided once it has so many times the rows."""


class Division(NamedTuple):
    """The rows of side `spread` are in `parts` parts, those of the others in each; 1: all in one place."""

    spread: int
    parts: int


UNDIVIDED: Final = Division(0, 1)


@dataclass(slots=True)
class _Average:
    """The rows of a key by side, and its pairs, in an epoch on average."""

    rows: list[float]
    compared: float = 0.0

    @property
    def work(self) -> float:
        """Rows and pairs."""
        return sum(self.rows) + self.compared

    @property
    def spread(self) -> int:
        """The side with most rows; of equals the first."""
        return self.rows.index(max(self.rows))

    @property
    def is_worth_it(self) -> bool:
        """Whether much is divided for what is copied."""
        divided = max(self.rows)
        return divided + self.compared >= _COPIED * (sum(self.rows) - divided)

    def take(self, seen: HeavyKey) -> None:
        """Half of the average becomes that of another epoch."""
        self.rows = [(old + new) / 2 for old, new in zip(self.rows, seen.rows, strict=True)]
        self.compared = (self.compared + seen.compared) / 2


@dataclass(slots=True)
class HotKeys:
    """The averages of one join, in the driver: by task its work, and by key."""

    _loads: list[float] = field(default_factory=list)
    _epochs: int = 0
    _keys: dict[int, _Average] = field(default_factory=dict)

    def take(self, loads: Sequence[int], seen: Iterable[HeavyKey]) -> None:
        """Take in an epoch: the rows and comparisons of each task, and of the keys with much of them, each once."""
        if len(loads) != len(self._loads):
            self._loads, self._epochs, self._keys = [0.0] * len(loads), 0, {}
        self._epochs += 1
        self._loads = [(old + new) / 2 for old, new in zip(self._loads, loads, strict=True)]
        by_key = {key.key: key for key in seen}
        for key in by_key.keys() - self._keys.keys():
            self._keys[key] = _Average([0.0] * len(by_key[key].rows))
        for key, average in self._keys.items():
            average.take(by_key.get(key, HeavyKey(key, (0,) * len(average.rows), 0)))
        self._keys = {key: average for key, average in self._keys.items() if average.work >= 1}

    def wanted(self, in_force: Mapping[int, Division], waiting: Collection[int] = ()) -> dict[int, Division]:
        """By key, what should change; `in_force` are the keys that are divided. Those `waiting` have changed lately, and do not now."""
        tasks, total = len(self._loads), sum(self._loads)
        if tasks < 2 or self._epochs < _EPOCHS or not total:
            return {}
        fair = total / tasks
        changes = {
            key: wanted
            for key, division in in_force.items()
            if key not in waiting and (wanted := self._of_divided(key, division, fair)) != division
        }
        if max(self._loads) <= UNEVEN * fair:
            return changes
        hot = sorted(
            (-average.work, key)
            for key, average in self._keys.items()
            if key not in in_force
            and key not in waiting
            and average.work >= _HOT * fair
            and average.is_worth_it
        )
        room = max(0, MOST_KEYS - len(in_force))
        return changes | {key: Division(self._keys[key].spread, tasks) for _, key in hot[:room]}

    def _of_divided(self, key: int, division: Division, fair: float) -> Division:
        """What a divided key should be."""
        average, tasks = self._keys.get(key), len(self._loads)
        if average is None or average.work < _COLD * fair:
            return UNDIVIDED
        spread = division.spread
        if average.rows[average.spread] > _TURNED * average.rows[spread]:
            spread = average.spread
        grows = division.parts < tasks and average.work / division.parts >= _HOT * fair
        return Division(spread, tasks if grows else division.parts)
