"""The order in which queries lose rows, or are answered from sketches: always the step that loses the least utility for a second of
processing saved; and its undoing in the reverse order.

A step takes a part of the rows of one interval of importance from one query, or nearly all rows of a query that would be
worthless; or it is all rows of a query, which are sketched from then on, or half of the sketched rows; or it doubles the error of its synopses. Utility falls ever faster along a graph of loss, so that the cheapest next step is part of the cheapest set. Among the
intervals of a query, those of the least importance lose
first: that is semantic shedding, by shares instead of a filter, so that every interval still has a sample and an unbiased estimate.
Source: Aurora (Carney et al. 2002), greedy shedding by the slope of graphs; divided by the time saved, as in load shedding road maps.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf, log2
from typing import Final

from headrace.algebra.quality_of_service import QualityOfService
from headrace.dataclass import dataclass

FINE: Final = 32
COARSE: Final = 8
MANY: Final = 64
"""A step is 1/32 of the rows, or 1/8 where more than so many queries may lose rows: steps are recorded with each epoch."""
LEAST_SHARE: Final = 1 / 32
"""A smaller sample shows little of its interval."""
_NEARLY: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Sheddable:
    """A query that may lose rows: what it costs in a second if it sees all, and how its rows divide into intervals.

    One with sketches has one share, of the rows that are counted exactly, and where it allows loss a second one, of those that are seen.
    `remaining` is the part of a row's cost that remains if it is sketched.
    `sizes` are, of synopses that may get coarser, the bytes with the error doubled 0, 1, … times: its share is 1, 1/2, …
    """

    quality: QualityOfService
    seconds: float
    frequencies: tuple[float, ...] = (1.0,)
    shares: tuple[float, ...] = (1.0,)
    remaining: float = 0.0
    sizes: tuple[float, ...] = ()

    @property
    def doubled(self) -> int:
        """How often the error of its synopses is doubled."""
        return round(-log2(self.shares[0])) if self.sizes else 0

    @property
    def lost(self) -> float:
        """The share of its rows that is lost, weighted by importance."""
        return self.quality.lost(self.shares, self.frequencies)

    @property
    def utility(self) -> float:
        """What answers in time are worth."""
        return self.quality.utility(0.0, 0.0 if self.sizes else self.lost, self.doubled)

    @property
    def saved(self) -> float:
        """Seconds in a second, or bytes, that its present shares save."""
        if self.sizes:
            return self.sizes[0] - self.sizes[self.doubled]
        if self.quality.sketches is not None:
            exactly, *seen = self.shares
            per_row = 1.0 if exactly == 1 else self.remaining
            return self.seconds * (1 - per_row * min(seen, default=1.0))
        parts = zip(self.frequencies, self.shares, strict=True)
        return self.seconds * sum(frequency * (1 - share) for frequency, share in parts)

    def at(self, interval: int, share: float) -> Sheddable:
        """With another share of an interval."""
        return replace(self, shares=(*self.shares[:interval], share, *self.shares[interval + 1 :]))


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the share of an interval of a query; of one with sketches, of the rows that are counted exactly: from 1 to 0, or (its
    interval 1) of the rows that are seen; of synopses, of their accuracy: half is twice the error.
    """

    query: str
    interval: int
    before: float
    after: float

    def as_json(self) -> list[object]:
        """JSON values; the constructor takes them back."""
        return [self.query, self.interval, self.before, self.after]


def shed(queries: Mapping[str, Sheddable], need: float) -> list[Step]:
    """The steps that save `need` seconds in a second at the least loss of utility; all that there are if these save less.

    The better of two ways: with and without giving up queries as a whole, which may save more than is needed.
    """
    first, second = (_greedy(queries, need, gives_up=gives_up) for gives_up in (False, True))
    return second.steps if second.is_better_than(first, need) else first.steps


@dataclass(slots=True)
class _Way:
    """A way to save time: its steps, the seconds that they save in a second, and the utility that they lose."""

    steps: list[Step] = field(default_factory=list)
    saved: float = 0.0
    lost: float = 0.0

    def is_better_than(self, other: _Way, need: float) -> bool:
        """Whether it saves more of what is needed, or as much of it and loses less."""
        enough, also = min(self.saved, need), min(other.saved, need)
        return enough > also + _NEARLY or (enough > also - _NEARLY and self.lost < other.lost - _NEARLY)


def _greedy(queries: Mapping[str, Sheddable], need: float, *, gives_up: bool) -> _Way:
    """The cheapest steps one after the other."""
    state, way = dict(queries), _Way()
    size = 1 / (FINE if len(queries) <= MANY else COARSE)
    waiting = [step for name in state for step in _next(name, state[name], size, gives_up=gives_up)]
    heapq.heapify(waiting)
    while waiting and way.saved < need - _NEARLY:
        _, _, name, shares = heapq.heappop(waiting)
        before = state[name]
        state[name] = after = replace(before, shares=shares)
        way.saved += after.saved - before.saved
        way.lost += before.utility - after.utility
        for interval, (old, new) in enumerate(zip(before.shares, shares, strict=True)):
            if new < old:
                _append(way.steps, Step(name, interval, old, new))
        for step in _next(name, after, size, gives_up=gives_up):
            heapq.heappush(waiting, step)
    return way


def _next(
    name: str, query: Sheddable, size: float, *, gives_up: bool
) -> Iterator[tuple[float, float, str, tuple[float, ...]]]:
    """The cheapest next step of a query, if it may lose more: utility, and important rows, lost for a second; the shares then.

    That is a part of the rows of one interval, or all rows where more loss takes no more utility: what is worthless is not computed.
    """
    loss = query.quality.loss
    if query.sizes:
        if query.doubled < min(len(query.sizes) - 1, query.quality.coarsest):
            then = query.at(0, query.shares[0] / 2)
            if (saved := then.saved - query.saved) > _NEARLY * query.seconds:
                yield (query.utility - then.utility) / saved, 1 / saved, name, then.shares
        return
    if query.quality.sketches is not None:
        yield from _next_alternative(name, query)
        return
    if loss is None:
        return
    ends_at_0 = loss.points[-1][1] == 0
    parts = [
        query.at(interval, max(LEAST_SHARE, share - size)) for interval, share in enumerate(query.shares)
    ]
    if ends_at_0 and (gives_up or query.utility == 0):
        parts.append(replace(query, shares=tuple(min(LEAST_SHARE, share) for share in query.shares)))
    steps = []
    for then in parts:
        seconds, lost = then.saved - query.saved, then.lost
        if seconds > _NEARLY * query.seconds and (lost <= loss.last + _NEARLY or ends_at_0):
            costs = (query.utility - then.utility) / seconds, (lost - query.lost) / seconds
            steps.append((*costs, name, then.shares))
    if steps:
        yield min(steps)


def _next_alternative(name: str, query: Sheddable) -> Iterator[tuple[float, float, str, tuple[float, ...]]]:
    """The cheapest of all further steps of a query with sketches: all of its rows, then half of those that are seen, time after time.

    Where sketches save nothing by themselves, the cheapest one may be a sample of sketched rows. Weights of rows are powers of two.
    """
    loss, least = query.quality.loss, inf
    then, nearest = query.at(0, 0.0), None
    while True:
        seconds, seen = then.saved - query.saved, min(then.shares[1:], default=1.0)
        if loss is not None and 1 - seen > loss.last + _NEARLY and loss.points[-1][1] > 0:
            break
        if seconds > _NEARLY * query.seconds and (query.utility - then.utility) / seconds < least - _NEARLY:
            least = (query.utility - then.utility) / seconds
            nearest = least, 1 - seen, name, then.shares
        if loss is None or seen <= LEAST_SHARE:
            break
        then = then.at(1, seen / 2)
    if nearest is not None:
        yield nearest


def _append(steps: list[Step], step: Step) -> None:
    """Add a step, to the last one if that is of the same interval."""
    last = steps[-1] if steps else None
    if last is not None and (last.query, last.interval) == (step.query, step.interval):
        steps[-1] = replace(last, after=step.after)
    else:
        steps.append(step)


def undo(
    steps: Sequence[Step], queries: Mapping[str, Sheddable], spare: float
) -> tuple[list[Step], dict[str, Sheddable]]:
    """The steps that remain when the last ones are undone within `spare` seconds in a second; the queries then.

    The last of them may be undone in part. Steps of queries that are no more are dropped.
    """
    remaining = [step for step in steps if step.query in queries]
    state, size = dict(queries), 1 / FINE
    while remaining:
        step = remaining[-1]
        query = state[step.query]
        halves = bool(query.sizes) or query.quality.sketches is not None
        returned = step.after * 2 if halves else step.after + size
        share = min(step.before, returned) if step.after else step.before
        then = query.at(step.interval, share)
        spare -= query.saved - then.saved
        if spare < -_NEARLY:
            break
        state[step.query] = then
        if step.before - share <= _NEARLY:
            remaining.pop()
        else:
            remaining[-1] = replace(step, after=share)
    return remaining, state
