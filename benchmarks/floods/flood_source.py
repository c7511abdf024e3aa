"""Rows that are pushed on schedule, whatever the hub does, and what is remembered of them: when they arrived, counts and sums by second
and group, and a checksum that does not depend on their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.floods.flooded_queries import GROUPS, VALUES
from headrace.archive.blocks import hashes_of

EVERY: Final = 0.25
"""Seconds from push to push."""
Ints: TypeAlias = npt.NDArray[np.int64]


class Pushed(Protocol):
    """What takes rows."""

    def push(self, stream: str, rows: pa.Table) -> object:
        """Take in a batch of a stream."""


@dataclass(slots=True)
class Checksum:
    """The number of rows, and the sum of their hashes: equal for the same rows in any order, whatever the cuts."""

    rows: int = 0
    total: int = 0

    def add(self, at: Ints, k: Ints, v: Ints) -> None:
        """Add rows: event times in microseconds, and their two columns."""
        mixed = hashes_of(hashes_of(hashes_of(at, 1).view(np.int64) ^ k, 2).view(np.int64) ^ v, 3)
        self.rows += len(at)
        self.total = (self.total + int(np.add.reduce(mixed))) & (2**64 - 1)


@dataclass(slots=True)
class Source:
    """Pushes rows: batches with the time at which they were due, and the truth about all of them."""

    hub: Pushed
    checksum: Checksum = field(default_factory=Checksum)
    due: list[tuple[float, int]] = field(default_factory=list)
    """Of each batch when it was due, by the clock of `time.perf_counter`, and its rows."""
    upto: int = 0
    """Event times ascend: no row is late."""
    _truth: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict)
    _random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(17))

    def push(self, rows: int, due: float) -> None:
        """A batch whose rows are of the time since the last one."""
        now = max(int(time.time() * 1e6), self.upto + rows)
        begin = max(self.upto, now - int(EVERY * 1e6))
        at = begin + (np.arange(rows) * ((now - begin) / rows)).astype(np.int64)
        self.upto = now
        k, v = self._random.integers(0, GROUPS, rows), self._random.integers(0, VALUES, rows)
        times = pa.array(at).cast(pa.timestamp("us", tz="UTC"))
        columns = {"at": times, "k": pa.array(k.astype(np.int32)), "v": pa.array(v.astype(np.int32))}
        self.hub.push("s", pa.table(columns))
        self.remember(at, k, v)
        self.due.append((due, rows))

    def remember(self, at: Ints, k: Ints, v: Ints) -> None:
        """Add rows, whose event times ascend, to the truth."""
        self.checksum.add(at, k, v)
        seconds = at // 1_000_000
        for second in range(int(seconds[0]), int(seconds[-1]) + 1):
            first, after = np.searchsorted(seconds, [second, second + 1])
            part_k, part_v = k[first:after], v[first:after]
            sums = self._truth.setdefault(second, np.zeros((2, GROUPS)))
            sums += [np.bincount(part_k, minlength=GROUPS), np.bincount(part_k, part_v, minlength=GROUPS)]

    def pour(
        self, rate: float, seconds: float, done: Callable[[], bool] = lambda: False, every: float = EVERY
    ) -> None:
        """So many rows a second, until it is done; a push that takes long does not delay the next ones."""
        began, number = time.perf_counter(), 0
        while number * every < seconds and not done():
            due = began + number * every
            time.sleep(max(0.0, due - time.perf_counter()))
            self.push(max(1, round(rate * every)), due)
            number += 1

    @property
    def first_end(self) -> int:
        """The end of the first window with a row, in seconds."""
        return min(self._truth) + 1

    def answers(self, first: int, last: int, groups: int) -> npt.NDArray[np.float64]:
        """Counts and sums of the windows of a second that end from `first` to `last`, by group of a query: [window, 2, group]."""
        none = np.zeros((2, GROUPS))
        by_k = np.stack([self._truth.get(end - 1, none) for end in range(first, last + 1)])
        return np.stack([by_k[:, :, group::groups].sum(axis=2) for group in range(groups)], axis=2)
