"""Contenders of correlated aggregates by key: many keys at once, one key after the other, and a window that keeps all its values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from benchmarks.baselines.correlated.correlated import AboveMean, NearMinimum
from benchmarks.baselines.correlated.sliding_correlated import SlidingAboveMean, SlidingNearMinimum
from benchmarks.baselines.rows.rows_by_key import Doubles, RowsByKey
from benchmarks.baselines.snapshot import held_bytes
from benchmarks.one_key.landmark import OneAboveMean, OneNearMinimum
from benchmarks.one_key.sliding import OneSlidingAboveMean, OneSlidingNearMinimum
from headrace.synopses.arrays import Ints

_SCALE: Final = 3.0
_LEAST_WINDOW: Final = 20
_ONE_IN: Final = 50
"""One key at a time: every fiftieth key."""

Makes = Callable[[int, int], Any]
"""A synopsis of so many keys over windows of so many rows a key."""

WAYS: Final[dict[str, tuple[Makes, Callable[[int], Any]]]] = {
    "near MIN": (lambda keys, _: NearMinimum.empty(keys, _SCALE), lambda _: OneNearMinimum(_SCALE)),
    "above AVG": (lambda keys, _: AboveMean.empty(keys), lambda _: OneAboveMean()),
    "near MIN, sliding": (
        lambda keys, window: SlidingNearMinimum.empty(keys, _SCALE, window),
        lambda window: OneSlidingNearMinimum(_SCALE, window),
    ),
    "above AVG, sliding": (SlidingAboveMean.empty, OneSlidingAboveMean),
}


class Draws(Protocol):
    """x of a batch, drawn before anything is timed."""

    def __call__(self, batch: int, rows: int) -> Doubles: ...


def drawn(batches: int, rows: int) -> Draws:
    """Lognormal values."""
    values = np.random.default_rng(11).lognormal(3.0, 1.0, (batches, rows))
    return lambda batch, many: values[batch, :many]


@dataclass
class AtOnce:
    """One object for all keys."""

    synopsis: Any
    draws: Draws

    def add(self, keys: Ints, batch: int) -> None:
        self.synopsis.add(keys, self.draws(batch, len(keys)), np.ones(len(keys)))

    @property
    def nbytes(self) -> int:
        return int(self.synopsis.nbytes)


@dataclass
class OneAtATime:
    """An object for each key that has come, each given its rows of the batch; the keys are mapped to `among` of them."""

    make: Callable[[], Any]
    draws: Draws
    among: int
    held: dict[int, Any] = field(default_factory=dict)

    def add(self, keys: Ints, batch: int) -> None:
        rows, x = RowsByKey.of(keys % self.among), self.draws(batch, len(keys))
        x = x[rows.order]
        for index, key in enumerate(rows.present.tolist()):
            mine = x[rows.offsets[index] : rows.offsets[index + 1]]
            if key not in self.held:
                self.held[key] = self.make()
            self.held[key].add(mine, np.ones(len(mine)))

    @property
    def nbytes(self) -> int:
        """Of numbers alone, by those of the first hundred keys; Python's objects take several times as much."""
        some = [held_bytes(histogram) for _, histogram in zip(range(100), self.held.values(), strict=False)]
        return int(np.mean(some) * len(self.held))


@dataclass
class ExactValues:
    """The keys and values of the last `batches` batches, and of each key how many there are and their sum."""

    keys: int
    batches: int
    draws: Draws
    held: deque[tuple[Ints, Doubles]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.counts, self.sums = np.zeros(self.keys, np.int64), np.zeros(self.keys)

    def add(self, keys: Ints, batch: int) -> None:
        self.held.append((keys.copy(), self.draws(batch, len(keys)).copy()))
        self._count(self.held[-1], 1)
        if len(self.held) > self.batches:
            self._count(self.held.popleft(), -1)

    def _count(self, rows: tuple[Ints, Doubles], sign: int) -> None:
        self.counts += sign * np.bincount(rows[0], minlength=self.keys)
        self.sums += sign * np.bincount(rows[0], rows[1], minlength=self.keys)

    @property
    def nbytes(self) -> int:
        rows = sum(keys.nbytes + x.nbytes for keys, x in self.held)
        return self.counts.nbytes + self.sums.nbytes + rows


def correlated_contenders(keys: int, batches: int, rows: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """What to make, and how many rows of a batch it is given; one key at a time as many a key, but of few keys."""
    draws = drawn(2 * batches, rows)
    among = max(keys // _ONE_IN, 1)
    window = max(batches * rows // keys, _LEAST_WINDOW)
    contenders: dict[str, tuple[Callable[[], Any], int]] = {
        "exact window of values": (lambda: ExactValues(keys, batches, draws), rows)
    }
    for name, (many, one) in WAYS.items():
        contenders[name] = (lambda many=many: AtOnce(many(keys, window), draws), rows)
        contenders[f"{name}, one key at a time"] = (
            lambda one=one: OneAtATime(lambda: one(window), draws, among),
            rows * among // keys,
        )
    return contenders
