"""The turns of streams under overload: which of them the next epoch takes rows of, and how many, by what the answers of their queries
lose for each second of processing while these rows wait.

The queue that can be ordered is that of rows before an epoch: within an epoch, all queries are answered by one transaction. Source: Aurora
(Carney et al. 2002, 2361-2363), priorities of outputs: state-based, by the utility lost if they are deferred, and feedback-based, raised
while their answers are late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from headrace.algebra.quality_of_service import QualityOfService
from headrace.dataclass import dataclass

LEAST: Final = 1 / 8
"""The part of an epoch for the stream whose rows have waited longest, whatever they are worth: so all of them are read in the end."""
MOST_RAISED: Final = 8.0
RAISE: Final = 1.5
"""The factor by which a priority is raised after an epoch with late answers, and lowered after one without."""
_PARTS: Final = (1 / 8, 3 / 8, 5 / 8, 7 / 8)
"""Places in a queue at which utility is taken."""
Answered: TypeAlias = tuple[QualityOfService, float]
"""What the answers of a query are worth, and the share of its rows that are lost."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The rows of a stream that wait: how many, the seconds since the first of them arrived, and the seconds that a row takes."""

    rows: float
    oldest: float
    seconds_per_row: float
    queries: Sequence[Answered] = ()
    raised: float = 1.0

    @property
    def seconds(self) -> float:
        """What all of them take."""
        return self.rows * self.seconds_per_row

    def deferred(self, seconds: float) -> float:
        """The utility that is lost if all rows wait for so many seconds more; a query's is 1 for each second of arrival.

        A row in the queue is answered when those before it are.

        >>> from headrace.algebra.quality_of_service import UtilityGraph
        >>> falls_from_2_to_4 = QualityOfService(UtilityGraph(((2.0, 1.0), (4.0, 0.0))))
        >>> [Queue(0, age, 1e-6, [(falls_from_2_to_4, 0.0)]).deferred(1.0) for age in (1.0, 3.0, 60.0)]
        [0.0, 0.75, 0.0]
        """
        lost = 0.0
        for part in _PARTS:
            delay = self.oldest * (1 - part) + self.seconds * part
            for quality, share in self.queries:
                lost += quality.utility(delay, share) - quality.utility(delay + seconds, share)
        return self.oldest * lost / len(_PARTS)

    def priority(self, seconds: float) -> float:
        """The utility that is lost for each second of processing if an epoch of so many seconds is one of other rows."""
        return self.raised * self.deferred(seconds) / self.seconds

    @property
    def slack(self) -> float:
        """Seconds until the first answer is worth less."""
        ends = [quality.delay.good_until for quality, _ in self.queries if quality.delay is not None]
        return min(ends, default=float("inf")) - self.oldest


def turns(queues: Mapping[str, Queue], seconds: float) -> dict[str, int]:
    """The rows that an epoch of so many seconds takes of each stream; none where it has time for all.

    By priority; of equal ones those first whose answers are the next to be worth less. The stream whose rows have waited longest gets a
    part of the epoch in any case.

    >>> turns({"s": Queue(100, 9.0, 0.1), "t": Queue(100, 5.0, 0.1)}, 8.0)
    {'s': 80, 't': 0}
    """
    waiting = {name: queue for name, queue in queues.items() if queue.seconds > 0}
    if len(waiting) < 2 or sum(queue.seconds for queue in waiting.values()) <= seconds:
        return {}
    granted, remaining = dict.fromkeys(queues, 0.0), seconds
    first = max(waiting, key=lambda name: waiting[name].oldest)
    granted[first] = min(waiting[first].seconds, LEAST * seconds)
    remaining -= granted[first]
    for name in sorted(waiting, key=lambda name: (-waiting[name].priority(seconds), waiting[name].slack)):
        more = min(waiting[name].seconds - granted[name], remaining)
        granted[name] += more
        remaining -= more
    return {
        name: _rows(time, queues[name].seconds_per_row) if time > 0 else 0 for name, time in granted.items()
    }


def _rows(seconds: float, seconds_per_row: float) -> int:
    return max(1, int(seconds / seconds_per_row + 1e-9))


def raised(before: Mapping[str, float], late: Mapping[str, bool]) -> dict[str, float]:
    """The factors of streams after an epoch: raised where answers were late, lowered to 1 where they were in time.

    >>> raised({"s": 1.0, "t": 2.0}, {"s": True, "t": False})
    {'s': 1.5, 't': 1.3333333333333333}
    """
    factors = {
        name: before.get(name, 1.0) * RAISE if is_late else before.get(name, 1.0) / RAISE
        for name, is_late in late.items()
    }
    return {name: min(MOST_RAISED, max(1.0, factor)) for name, factor in factors.items() if factor > 1}
