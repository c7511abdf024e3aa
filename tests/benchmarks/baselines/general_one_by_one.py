"""General histograms by inserting one row after the other and scanning from the newest bucket, as in the paper's text."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.baselines.histograms.general_histogram import Doubles, Measure


@dataclass(slots=True)
class GeneralOneByOne:
    """Buckets (oldest, newest, summary), the newest first. `always_leaves_out` is the text's rule for the oldest bucket."""

    measure: Measure
    k: int
    always_leaves_out: bool = False
    buckets: list[tuple[int, int, Doubles]] = field(default_factory=list)

    def size(self, summary: Doubles) -> float:
        return float(self.measure.sizes(summary[None, :])[0])

    def insert(self, time: int, summary: Doubles) -> None:
        self.buckets.insert(0, (time, time, summary))
        newer, index = 0.0, 0
        while index + 1 < len(self.buckets):
            one, other = self.buckets[index], self.buckets[index + 1]
            if self.k * (self.size(one[2]) + self.size(other[2])) <= newer:
                joined = self.measure.joined(one[2][None, :], other[2][None, :])[0]
                self.buckets[index : index + 2] = [(other[0], one[1], joined)]
            else:
                newer += self.size(one[2])
                index += 1

    def expire(self, start: int) -> None:
        while self.buckets and self.buckets[-1][1] < start:
            self.buckets.pop()

    def answer(self, start: int) -> float:
        live = [bucket for bucket in self.buckets if bucket[1] >= start]
        if live and (self.always_leaves_out or live[-1][0] < start):
            live = live[:-1]
        return self.size(np.sum([summary for _, _, summary in live], axis=0)) if live else 0.0
