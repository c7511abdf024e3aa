"""A hub on a simulated clock: rows arrive at a rate, epochs take what waits and last as long as their rows cost, and a policy
chooses the shares of rows that queries see; the total utility of its answers.

The policies: none (rows wait, which is what backpressure leaves), shares by the control of overload, and the same control with
equal shares of all queries that may lose rows, which is dropping rows at random.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from headrace.algebra.quality_of_service import QualityOfService
from headrace.overload.controller import Control, Observed, QueryWork, Stated
from headrace.overload.road_map import LEAST_SHARE, Step

STREAM: Final = "s"
_SLICE: Final = 0.25
"""Seconds of arrivals that wait together."""
_LONGEST: Final = 20.0
"""Seconds of work that an epoch takes at most, at full shares: the limit of admission by itself."""


@dataclass(frozen=True, slots=True)
class SimulatedQuery:
    """A query: its graphs, the seconds that a row costs, and how its rows divide into intervals of importance."""

    quality: QualityOfService
    seconds_per_row: float
    frequencies: tuple[float, ...] = (1.0,)


class NoControl(Control):
    """Rows wait, and none is dropped."""

    __slots__ = ()

    def after(self, seen: Observed, queries: Mapping[str, Stated]) -> Control:
        """As it is."""
        del seen, queries
        return self


class EqualShares(Control):
    """The same detection of overload, and all queries that may lose rows lose the same share, whatever it is worth."""

    __slots__ = ()

    def dropping(self, queries: Mapping[str, Stated], need: float) -> tuple[Step, ...]:
        """One step of every interval of every query, again and again."""
        state, steps = self.sheddable(queries), list[Step]()
        while need > 1e-9 and any(share > LEAST_SHARE for query in state.values() for share in query.shares):
            for name, query in state.items():
                for interval, share in enumerate(query.shares):
                    lower = max(LEAST_SHARE, share - 1 / 32)
                    then = state[name].at(interval, lower)
                    need -= then.saved - state[name].saved
                    state[name] = then
                    steps.append(Step(name, interval, share, lower))
        return tuple(steps)


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """An epoch of a run: when it began and ended, rows, the delay of the oldest, the total utility, and changes of shares so far."""

    began: float
    ended: float
    rows: float
    delay: float
    utility: float
    changes: int


@dataclass(slots=True)
class SimulatedHub:
    """A hub with queries over one stream; `others` are seconds a row for all that is not dropped: reading, archiving, exact queries."""

    queries: Mapping[str, SimulatedQuery]
    others: float
    control: Control = field(default_factory=lambda: Control(at=1e-9))
    fixed: float = 0.01
    """Seconds that an epoch takes without rows."""
    noise: float = 0.0
    """By how much of it an epoch takes longer or shorter at random."""
    counts_from: float = 0.0
    """The time of arrival of the first rows whose answers count."""
    points: list[EpochPoint] = field(default_factory=list)
    utility: float = 0.0
    """Sum over seconds of arrival of the total utility of the answers that their rows are in."""
    _waiting: deque[tuple[float, float]] = field(default_factory=deque)
    _random: random.Random = field(default_factory=lambda: random.Random(1))
    _arrived_to: float = 0.0

    @property
    def stated(self) -> dict[str, Stated]:
        """The queries as the control sees them."""
        return {name: Stated(query.quality, (STREAM,)) for name, query in self.queries.items()}

    @property
    def per_row(self) -> float:
        """Seconds that a row costs where none is dropped."""
        return self.others + sum(query.seconds_per_row for query in self.queries.values())

    def run(self, rate: Callable[[float], float], until: float) -> SimulatedHub:
        """Epochs until a time, one after the other; at most so many seconds of rows arrive."""
        now = 0.0
        while now < until:
            self._arrive(rate, now)
            began = now
            now = max(self._epoch(rate, now), began + _SLICE)
        return self

    def drain(self) -> SimulatedHub:
        """Epochs until no row waits, while none arrives."""
        now = self.points[-1].ended
        while self._waiting:
            now = self._epoch(lambda _: 0.0, now)
        return self

    def _arrive(self, rate: Callable[[float], float], to: float) -> None:
        while self._arrived_to + _SLICE <= to:
            self._waiting.append((self._arrived_to, rate(self._arrived_to) * _SLICE))
            self._arrived_to += _SLICE

    def _taken(self) -> Iterator[tuple[float, float]]:
        most = min(_LONGEST / self.per_row, self.control.epoch_rows(self.stated))
        while self._waiting and most > 0:
            arrived, rows = self._waiting.popleft()
            most -= rows
            yield arrived, rows

    def _epoch(self, rate: Callable[[float], float], began: float) -> float:
        slices = list(self._taken())
        rows = sum(count for _, count in slices)
        stated = self.stated
        shares = self.control.shares(stated)
        work = {name: _work(query, rows, shares[name]) for name, query in self.queries.items()}
        busy = self.fixed + rows * self.others + sum(query_work.seconds for query_work in work.values())
        busy *= 1 + self._random.uniform(-self.noise, self.noise)
        ended = began + busy
        self._arrive(rate, ended)
        lost = {
            name: query.quality.lost(shares[name], query.frequencies) for name, query in self.queries.items()
        }
        for arrived, _ in slices:
            if arrived < self.counts_from:
                continue
            self.utility += _SLICE * sum(
                query.quality.utility(ended - arrived, lost[name]) for name, query in self.queries.items()
            )
        delay = ended - slices[0][0] if slices else 0.0
        waiting = sum(count for _, count in self._waiting)
        seen = Observed(ended, busy, {STREAM: rows}, {STREAM: waiting}, {STREAM: delay}, work)
        total = sum(query.quality.utility(delay, lost[name]) for name, query in self.queries.items())
        self.control = self.control.after(seen, stated)
        self.points.append(EpochPoint(began, ended, rows, delay, total, self.control.changes))
        return ended


def _work(query: SimulatedQuery, rows: float, shares: tuple[float, ...]) -> QueryWork:
    parts = zip(query.frequencies, shares, strict=True)
    used = rows * sum(frequency * share for frequency, share in parts)
    arrived = tuple(round(rows * frequency) for frequency in query.frequencies)
    return QueryWork(used, used * query.seconds_per_row, arrived)


def without_importance(query: SimulatedQuery) -> SimulatedQuery:
    """The query as one whose rows all count the same: random dropping within it."""
    return replace(query, quality=replace(query.quality, importance=None), frequencies=(1.0,))


def most_in_a_minute(points: Sequence[EpochPoint]) -> int:
    """How often shares changed in the minute in which they did so most."""
    times = [after.ended for before, after in pairwise(points) if after.changes > before.changes]
    return max((sum(1 for other in times if 0 <= other - at < 60) for at in times), default=0)
