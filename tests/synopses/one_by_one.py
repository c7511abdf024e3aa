"""Exponential histograms by inserting one after the other, as in the paper's text, each repair being a switch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class OneByOne:
    """Buckets (time, size), newest first. The defaults are the repaired version; `printed` has the text's."""

    k: int
    merged_keeps_newer: bool = True
    ones_up_to: int | None = None
    others_up_to: int | None = None
    lone_one_in_full: bool = True
    buckets: list[tuple[int, int]] = field(default_factory=list)
    merges: int = 0

    def cap(self, size: int) -> int:
        half = -(-self.k // 2)
        ones = self.k + 1 if self.ones_up_to is None else self.ones_up_to
        others = half + 1 if self.others_up_to is None else self.others_up_to
        return ones if size == 1 else others

    def insert(self, time: int) -> None:
        self.buckets.insert(0, (time, 1))
        size = 1
        while sum(bucket[1] == size for bucket in self.buckets) > self.cap(size):
            older = max(index for index, bucket in enumerate(self.buckets) if bucket[1] == size)
            newer = older - 1
            kept = newer if self.merged_keeps_newer else older
            self.buckets[newer : older + 1] = [(self.buckets[kept][0], 2 * size)]
            self.merges += 1
            size *= 2

    def expire(self, start: int) -> None:
        while self.buckets and self.buckets[-1][0] < start:
            self.buckets.pop()

    def estimate(self, start: int) -> float:
        live = [size for time, size in self.buckets if time >= start]
        if not live:
            return 0.0
        half = 0.0 if live[-1] == 1 and self.lone_one_in_full else live[-1] / 2
        return sum(live) - half
