"""What is f of the last N rows, for any f that can be composed? Buckets that grow with their age, as in exponential histograms.

f takes a bag of rows to a number from 0 on, f(A + B) >= f(A) + f(B), and f(A + B) <= C (f(A) + f(B)). Two neighbours are merged when
together they are at most 1/k of what is newer (Invariant 4), and so no bucket of several rows is more than C/k of it (Invariant 3).
The answer composes all buckets that are in the window whole: `answer <= truth <= (C + C^2 / k) * answer`.
Source: Datar, Gionis, Indyk, Motwani (2001), section 5. Repaired: a bucket knows its oldest row too, and is left out only when it
lies across the edge of the window; one row never does, however heavy. The text's "C^2 / k + C - 1" is no small error for C = 2; read
as the factor above, it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

S = TypeVar("S")


class Measure(Protocol[S]):
    """f over composable summaries."""

    @property
    def factor(self) -> float:
        """C: how much more than the sum of its parts f may be."""
        ...

    def joined(self, one: S, other: S) -> S:
        """The summary of both bags together."""
        ...

    def size(self, summary: S) -> float:
        """The number f of the bag."""
        ...


@dataclass(frozen=True, slots=True)
class Bucket(Generic[S]):
    """Rows from `oldest` to `newest`, in instants."""

    oldest: int
    newest: int
    summary: S
    size: float


@dataclass(slots=True)
class GeneralHistogram(Generic[S]):
    """Windows of up to `length` instants, with accuracy k; the newest bucket first."""

    measure: Measure[S]
    k: int
    length: int
    buckets: list[Bucket[S]] = field(default_factory=list)

    def add(self, time: int, summaries: Sequence[S]) -> None:
        """Take in rows of one instant, none older than one that came before, each as its summary."""
        while self.buckets and self.buckets[-1].newest <= time - self.length:
            self.buckets.pop()
        fresh = [Bucket(time, time, each, self.measure.size(each)) for each in reversed(summaries)]
        self.buckets[:0] = fresh
        self._merge()

    def _merge(self) -> None:
        newer, place = 0.0, 0
        while place < len(self.buckets) - 1:
            one, other = self.buckets[place], self.buckets[place + 1]
            if self.k * (one.size + other.size) <= newer:
                summary = self.measure.joined(one.summary, other.summary)
                size = self.measure.size(summary)
                self.buckets[place : place + 2] = [Bucket(other.oldest, one.newest, summary, size)]
            else:
                newer += one.size
                place += 1

    def within(self, start: int) -> S | None:
        """The composition of all buckets of which every row is at or after `start`; None when there is none."""
        found: S | None = None
        for bucket in self.buckets:
            if bucket.oldest < start:
                break
            found = bucket.summary if found is None else self.measure.joined(found, bucket.summary)
        return found

    def answer(self, start: int) -> tuple[float, float]:
        """The least and the most that f since `start` may be."""
        found = self.within(start)
        straddles = any(bucket.oldest < start <= bucket.newest for bucket in self.buckets)
        value = 0.0 if found is None else self.measure.size(found)
        most = (self.measure.factor + self.measure.factor**2 / self.k) * value if straddles else value
        return value, most
