"""How is a stream of ones counted batch by batch, so that a row costs little more than adding it up?

Rows wait in a buffer until there are a few for each bucket; then all are put into the histograms at once. A query adds the
waiting rows, which are exact, to the histograms' estimate. Source: as `exponential_histogram`, "batched insertion".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headrace.synopses.histograms.exponential_histogram import Histograms
from headrace.synopses.rows.arrays import Ints

_ROWS_A_BUCKET: Final = 2
"""So many rows wait for each bucket: they take up to four times the bytes of the histograms, and settling a few times the time of adding up."""
_LEAST: Final = 512


@dataclass(slots=True)
class Counting:
    """Counts of many keys over windows of any size up to `length` instants: what stays below `length` is forgotten."""

    histograms: Histograms
    length: int
    waiting: list[tuple[Ints, Ints, Ints | None]] = field(default_factory=list)
    rows: int = 0

    def add(self, keys: Ints, times: Ints, counts: Ints | None = None) -> None:
        """Take in a batch in the order of times; none may be older than one that came before."""
        self.waiting.append((keys, times, counts))
        self.rows += len(keys)
        if self.rows > max(_ROWS_A_BUCKET * len(self.histograms.times), _LEAST) or self._spans_a_window():
            self.settle()

    def _spans_a_window(self) -> bool:
        """True when waiting rows are as many as an exact window would keep."""
        began = next((int(times[0]) for _, times, _ in self.waiting if len(times)), None)
        newest = next((int(times[-1]) for _, times, _ in reversed(self.waiting) if len(times)), None)
        return began is not None and newest is not None and newest - began >= self.length

    def add_ones(self, keys: Ints, times: Ints) -> None:
        """Take in a batch of ones whose times repeat much, as the panes of windows do: one count for each time and key."""
        many = len(self.histograms.totals)
        bins = (int(times[-1] - times[0]) + 1) * many if len(times) else 0
        if bins > len(keys):
            self.add(keys, times)
            return
        found = np.bincount((times - times[0]) * many + keys, minlength=bins)
        places = np.flatnonzero(found)
        self.add(places % many, places // many + times[0], found[places])

    def settle(self) -> None:
        """Put waiting rows into the histograms, and forget what no window up to `length` holds."""
        if not self.rows:
            return
        keys, times, _ = self.waiting[0]
        if len(self.waiting) > 1:
            keys, times = (np.concatenate([batch[place] for batch in self.waiting]) for place in (0, 1))
        ones = all(counts is None for _, _, counts in self.waiting)
        counts = None if ones else np.concatenate([_counts(batch) for batch in self.waiting])
        start = int(times[-1]) - self.length + 1
        self.histograms = self.histograms.since(start).absorb(keys, times, counts).since(start)
        self.waiting, self.rows = [], 0

    def estimate(self, start: int) -> tuple[Ints, Ints]:
        """Per key the estimated number of ones at or after `start`, and how far that may be from the truth."""
        estimates, slack = self.histograms.estimate(start)
        for batch in self.waiting:
            keys, times, counts = batch
            live = np.searchsorted(times, start)
            more = np.zeros(len(estimates), np.int64)
            np.add.at(more, keys[live:], 1 if counts is None else counts[live:])
            estimates = estimates + more
        return estimates, slack

    @property
    def nbytes(self) -> int:
        """Bytes in memory, waiting rows included."""
        parts = [part for batch in self.waiting for part in batch if part is not None]
        return self.histograms.nbytes + sum(part.nbytes for part in parts)


def _counts(batch: tuple[Ints, Ints, Ints | None]) -> Ints:
    keys, _, counts = batch
    return np.ones(len(keys), np.int64) if counts is None else counts
