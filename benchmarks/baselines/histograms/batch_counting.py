"""Counting of ones in batches, at little more than the cost of a sum.

Rows wait in a buffer until there are a few for each bucket; then all are inserted into the histograms at once. A query adds the
waiting rows, which are exact, to the histograms' estimate. Source: as `exponential_histogram`, "batched insertion".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headrace.synopses.arrays import Ints
from headrace.synopses.histograms.exponential_histogram import Histograms

_ROWS_A_BUCKET: Final = 2
"""Waiting rows per bucket: up to four times the histograms' bytes; inserting them takes a few times as long as a sum."""
_LEAST: Final = 512


@dataclass(slots=True)
class Counting:
    """Counts of many keys over windows of up to `length` instants; older ones expire."""

    histograms: Histograms
    length: int
    waiting: list[tuple[Ints, Ints, Ints | None]] = field(default_factory=list)
    rows: int = 0

    def add(self, keys: Ints, times: Ints, counts: Ints | None = None) -> None:
        """Add a batch in the order of times; none may be older than an earlier one."""
        self.waiting.append((keys, times, counts))
        self.rows += len(keys)
        if self.rows > max(_ROWS_A_BUCKET * len(self.histograms.times), _LEAST) or self._spans_a_window():
            self.settle()

    def _spans_a_window(self) -> bool:
        """True when the waiting rows are as many as an exact window would store."""
        began = next((int(times[0]) for _, times, _ in self.waiting if len(times)), None)
        newest = next((int(times[-1]) for _, times, _ in reversed(self.waiting) if len(times)), None)
        return began is not None and newest is not None and newest - began >= self.length

    def add_ones(self, keys: Ints, times: Ints) -> None:
        """Add a batch of ones with many equal times, such as panes: one count for each time and key."""
        many = len(self.histograms.totals)
        bins = (int(times[-1] - times[0]) + 1) * many if len(times) else 0
        if bins > len(keys):
            self.add(keys, times)
            return
        counts = np.bincount((times - times[0]) * many + keys, minlength=bins)
        places = np.flatnonzero(counts)
        self.add(places % many, places // many + times[0], counts[places])

    def settle(self) -> None:
        """Insert waiting rows into the histograms, and expire those in no window of up to `length`."""
        if not self.rows:
            return
        keys, times, _ = self.waiting[0]
        if len(self.waiting) > 1:
            keys, times = (np.concatenate([batch[column] for batch in self.waiting]) for column in (0, 1))
        ones = all(counts is None for _, _, counts in self.waiting)
        counts = None if ones else np.concatenate([_counts(batch) for batch in self.waiting])
        start = int(times[-1]) - self.length + 1
        self.histograms = self.histograms.since(start).absorb(keys, times, counts).since(start)
        self.waiting, self.rows = [], 0

    def estimate(self, start: int) -> tuple[Ints, Ints]:
        """Per key the estimated number of ones at or after `start`, and its maximum error."""
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
