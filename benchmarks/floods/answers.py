"""Answers of a flood compared with those of all rows: what is left of each query's changes, and the intervals of its estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.floods.flood_source import Ints, Source
from benchmarks.floods.flooded_queries import QUERIES
from headrace.runtime.hub.hub import Hub

ENOUGH: Final = 30
"""Rows read of a group, from which on intervals of a normal distribution are not rough."""


@dataclass(frozen=True, slots=True)
class Compared:
    """`answers` that the changes of all queries leave, `wrong` or missing ones of them; estimates with an interval, and how many `held` the truth."""

    answers: int = 0
    wrong: int = 0
    intervals: int = 0
    held: int = 0

    def plus(self, other: Compared) -> Compared:
        """Both together."""
        return Compared(
            self.answers + other.answers,
            self.wrong + other.wrong,
            self.intervals + other.intervals,
            self.held + other.held,
        )

    @property
    def honest(self) -> float:
        """The part of the intervals that held the truth."""
        return self.held / self.intervals if self.intervals else 0.0


def compared(hub: Hub, source: Source) -> Compared:
    """Of all queries, up to the last window of any."""
    changes = {name: hub.query(name).history() for name in QUERIES}
    last = max(int(_ends(each).max()) for each in changes.values())
    total = Compared()
    for name, query in QUERIES.items():
        total = total.plus(of_changes(changes[name], source, query.groups, last))
    return total


def _ends(changes: pa.Table) -> Ints:
    """Ends of windows, in seconds."""
    ends: Ints = changes["window_end"].cast(pa.int64()).to_numpy() // 1_000_000
    return ends


def of_changes(changes: pa.Table, source: Source, groups: int, last: int) -> Compared:
    """Of one query: whether its changes add up to the answers of all rows, each once, to the window that ends at a second; and its intervals."""
    ends, first = _ends(changes), source.first_end
    n, total, error, kept, change = (
        changes[name].cast(pa.float64()).to_numpy() for name in ("n", "total", "n_error", "kept", "__change")
    )
    group = changes["g"].cast(pa.int64()).to_numpy()
    truths = source.answers(first, last, groups)
    count, summed = truths[ends - first, :, group].T
    is_estimate = (error > 0) & (change > 0) & (kept * n >= ENOUGH)
    holds = np.abs(n - count) <= error + 1e-6
    is_exact = (error == 0) & (n == count) & (total == summed)
    place = (ends - first) * groups + group
    expected = truths[:, 0].ravel() > 0
    left, others = (
        np.bincount(place, np.where(chosen, change, 0), len(expected)) for chosen in (is_exact, ~is_exact)
    )
    wrong = int(np.count_nonzero((left != expected) | (others != 0)))
    return Compared(
        int(np.count_nonzero(expected)), wrong, int(is_estimate.sum()), int((holds & is_estimate).sum())
    )
