"""Quality of service of a query: its utility by the delay of its answers, by the share of rows lost, from sketches, and by the error of
its synopses; the importance of rows by the value of a column; piecewise linear graphs, and what makes one invalid.

A graph of delay, loss or error starts at utility 1, never rises, and falls ever faster, so that the cheapest next loss can be chosen
step by step. Source: Aurora (Carney et al. 2002), quality-of-service graphs; there the values of a graph of importance are those of
answers, here those of the rows that they are computed from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log2
from typing import TypeAlias

from headrace.dataclass import dataclass

Point: TypeAlias = tuple[float, float]
"""A delay in seconds, a share of rows lost, or how many times the error that is allowed; and the utility there, from 0 to 1."""
_ROUNDING = 1e-9
_MOST_DOUBLED = 6
"""Up to 64 times the error."""


@dataclass(frozen=True, slots=True)
class UtilityGraph:
    """Utility that falls along its points, linear between two of them; before the first it is 1, after the last as there."""

    points: tuple[Point, ...]

    def at(self, value: float) -> float:
        """The utility at a delay, or a loss.

        >>> UtilityGraph(((2.0, 1.0), (10.0, 0.0))).at(4.0)
        0.75
        """
        after = bisect_right(self.points, value, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (low, high_utility), (high, low_utility) = self.points[after - 1], self.points[after]
        return high_utility + (low_utility - high_utility) * (value - low) / (high - low)

    @property
    def good_until(self) -> float:
        """The end of the good zone: the greatest place with the utility 1."""
        return max(value for value, utility in self.points if utility == 1)

    @property
    def last(self) -> float:
        """The place of the last point."""
        return self.points[-1][0]


def faults(points: Sequence[Point]) -> Iterator[tuple[int, str, str]]:
    """What is wrong with the points of a graph of delay, loss or error: the number of the point, the reason, and a remedy."""
    for number, (_, utility) in enumerate(points):
        if not 0 <= utility <= 1:
            yield number, f"the utility {utility:g} is not between 0 and 1", "1 is the best, 0 is worthless."
    if points[0][1] != 1:
        yield (
            0,
            f"the graph begins with the utility {points[0][1]:g}",
            "Begin with the point up to which it is 1.",
        )
    for number, ((before, higher), (value, lower)) in enumerate(pairwise(points), 1):
        if value <= before:
            yield number, "the points are not in ascending order", "Sort them, and give each place once."
        elif lower > higher:
            yield (
                number,
                f"the utility rises from {higher:g} to {lower:g}",
                "Nothing gets better by waiting, losing rows or larger errors.",
            )
    for number, (first, second, third) in enumerate(zip(points, points[1:], points[2:], strict=False), 2):
        steps = second[0] - first[0], third[0] - second[0]
        if (
            min(steps) > 0
            and (first[1] - second[1]) / steps[0] > (second[1] - third[1]) / steps[1] + _ROUNDING
        ):
            yield (
                number,
                "the utility falls more slowly after this point than before it",
                "It has to fall ever faster: leave a point in between out, or give it a higher utility.",
            )


@dataclass(frozen=True, slots=True)
class Importance:
    """How much rows count by the value of a numeric column: `levels[i]` below `bounds[i]`, the last one for all others and NULL.

    `answers` is the output column by which that was stated, "" if it was the column itself; if its values fall where those of the column
    rise, NULL and NaN are in the first interval.
    """

    column: str
    bounds: tuple[float, ...]
    levels: tuple[float, ...]
    answers: str = ""
    missing_is_first: bool = False

    def __post_init__(self) -> None:
        assert len(self.levels) == len(self.bounds) + 1

    @property
    def intervals(self) -> tuple[str, ...]:
        """The intervals, for people: `price < 100`."""
        less, other = ("<=", ">") if self.missing_is_first else ("<", ">=")
        below = [f"{self.column} {less} {bound:g}" for bound in self.bounds]
        return (*below, f"{self.column} {other} {self.bounds[-1]:g}")


@dataclass(frozen=True, slots=True)
class QualityOfService:
    """`WITH QOS (…)`: the graphs of a query. Without `loss` no row of it is dropped to save time.

    `sketches` is the utility of answers from sketches, within the bounds that the query allows; without it they are answered as always.
    With both, rows are sketched before any of them is lost: such a query has two shares, of the rows that are counted exactly (1 or 0)
    and of those that are seen at all.
    `error` is a graph over how many times the error of WITHIN its synopses have; without it they never get coarser.
    """

    delay: UtilityGraph | None = None
    loss: UtilityGraph | None = None
    importance: Importance | None = None
    sketches: float | None = None
    error: UtilityGraph | None = None

    @property
    def coarsest(self) -> int:
        """How often the error of its synopses may be doubled."""
        return 0 if self.error is None else min(_MOST_DOUBLED, int(log2(self.error.last)))

    @property
    def has_own_state(self) -> bool:
        """Whether what the query stores depends on its quality of service, so that it shares panes with no other."""
        return self.loss is not None or self.error is not None

    @property
    def is_flexible(self) -> bool:
        """Whether the query may be answered from fewer rows, or from sketches."""
        return self.loss is not None or self.sketches is not None

    def utility(self, delay: float, loss: float, doubled: int = 0) -> float:
        """The utility of answers with a delay in seconds, from rows of which a share is lost, weighted by importance, or sketched
        (`lost`); and from synopses whose error was doubled so often.

        >>> QualityOfService(sketches=0.75).utility(0.0, 1.0)
        0.75
        >>> QualityOfService(loss=UtilityGraph(((0.0, 1.0), (1.0, 0.0))), sketches=0.75).utility(0.0, 1.5)
        0.375
        >>> QualityOfService(error=UtilityGraph(((1.0, 1.0), (9.0, 0.5)))).utility(0.0, 0.0, doubled=2)
        0.8125
        """
        of_delay = 1.0 if self.delay is None else self.delay.at(delay)
        if self.error is not None:
            of_delay *= self.error.at(2.0**doubled)
        if self.sketches is not None:
            of_delay *= 1 - (1 - self.sketches) * min(loss, 1.0)
        return of_delay * (1.0 if self.loss is None else self.loss.at(self.rows_lost(loss)))

    def rows_lost(self, loss: float) -> float:
        """Of what is `lost`, the share of rows that are not seen: sketched ones are."""
        if self.loss is None:
            return 0.0
        return loss if self.sketches is None else max(0.0, loss - 1)

    def lost(self, shares: Sequence[float], frequencies: Sequence[float]) -> float:
        """The share of rows that is lost, weighted by importance, where `shares` of the rows of each interval are used.

        Of a query with sketches the share of rows that are not counted exactly, and, added to that, the share of those not seen.

        >>> QualityOfService(loss=UtilityGraph(((0.0, 1.0),)), sketches=0.75).lost((0.0, 0.25), ())
        1.75
        >>> rows = Importance("price", (100.0,), (0.5, 1.0))
        >>> QualityOfService(importance=rows).lost((0.0, 1.0), (0.5, 0.5))
        0.3333333333333333
        """
        if self.sketches is not None:
            return sum(1 - share for share in shares)
        levels = (1.0,) * len(shares) if self.importance is None else self.importance.levels
        total = sum(level * frequency for level, frequency in zip(levels, frequencies, strict=True))
        if not total:
            return 0.0
        parts = zip(levels, frequencies, shares, strict=True)
        return sum(level * frequency * (1 - share) for level, frequency, share in parts) / total

    @property
    def intervals(self) -> int:
        """The number of shares: one for each interval of importance, or two where rows are sketched first and then lost."""
        if self.sketches is not None:
            return 1 if self.loss is None else 2
        return 1 if self.importance is None else len(self.importance.levels)
