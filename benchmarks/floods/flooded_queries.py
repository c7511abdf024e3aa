"""Twelve queries for a flood, and what their answers are worth.

They count and add by groups where a regular expression holds, which makes a row cost more than its generation does: four alerts,
worthless at half of the rows; five dashboards, which hardly suffer; three reports, costliest, which lose with every row, most with
those of large values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.algebra.quality_of_service import Importance, QualityOfService, UtilityGraph

VALUES: Final = 100_000
GROUPS: Final = 1000
STREAM: Final = "CREATE STREAM s (at TIMESTAMP, k INT, v INT) USING push TIMESTAMP BY at"
_STRICT: Final = UtilityGraph(((0.0, 1.0), (0.1, 0.9), (0.5, 0.0)))
_TOLERANT: Final = UtilityGraph(((0.0, 1.0), (0.75, 0.9), (0.95, 0.8)))
_LINEAR: Final = UtilityGraph(((0.0, 1.0), (1.0, 0.0)))
ALERTS_USELESS_AFTER: Final = 10.0
"""Seconds after which alerts are worthless."""
USELESS_AFTER: Final = 40.0
"""Seconds after which no answer has any utility: the flood's rows that are not answered by then are worth nothing."""
_QUICK: Final = UtilityGraph(((3.0, 1.0), (ALERTS_USELESS_AFTER, 0.0)))
_PATIENT: Final = UtilityGraph(((6.0, 1.0), (USELESS_AFTER, 0.0)))
_LARGE: Final = Importance("v", (0.6 * VALUES, 0.9 * VALUES), (0.1, 0.4, 1.0))
"""Six of ten rows have a value of the first interval, three of the second."""


@dataclass(frozen=True, slots=True)
class FloodedQuery:
    """A query: its kind, its groups, how many patterns a row is tested with, and what its answers are worth."""

    kind: str
    groups: int
    patterns: int
    quality: QualityOfService

    @property
    def frequencies(self) -> tuple[float, ...]:
        """How its rows divide into intervals of importance."""
        return (1.0,) if self.quality.importance is None else (0.6, 0.3, 0.1)

    @property
    def worthless_after(self) -> float:
        """The delay in seconds from which on its answers are worth nothing."""
        assert self.quality.delay is not None
        return self.quality.delay.last

    def shares(self, used: Sequence[float]) -> tuple[float, ...]:
        """The shares of its intervals, where those that were used may be one for all."""
        return tuple(used) * (len(self.frequencies) // len(used))

    def kept(self, used: Sequence[float]) -> float:
        """The share of all rows that its answers are from."""
        return sum(part * share for part, share in zip(self.frequencies, self.shares(used), strict=True))

    def utility(self, delay: float, used: Sequence[float]) -> float:
        """What answers of so many seconds' delay are worth, from such shares of the rows."""
        return self.quality.utility(delay, self.quality.lost(self.shares(used), self.frequencies))

    @property
    def text(self) -> str:
        """The query without what it is worth; its patterns are of four digits in the last number, which has three."""
        tests = " AND ".join(
            f"NOT regexp_like(concat('row ', CAST(v AS STRING), ' of ', CAST(k AS STRING)), '^(a|b|row) .*{n}{n}{n}{n}[0-9]+$')"
            for n in range(self.patterns)
        )
        return (
            f"SELECT window_end, k % {self.groups} AS g, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE TUMBLING 1 SECOND] "
            f"WHERE {tests} GROUP BY k % {self.groups}"
        )

    @property
    def stated(self) -> str:
        """The clauses about its answers."""
        delay, loss = self.quality.delay, self.quality.loss
        assert delay is not None
        assert loss is not None
        late = ", ".join(f"{utility} AT {at} SECONDS" for at, utility in delay.points)
        lost = ", ".join(f"{utility} AT {100 * share} PERCENT" for share, utility in loss.points)
        value = self.quality.importance
        levels = ""
        if value is not None:
            below = (
                f"{level} BELOW {bound:g}" for level, bound in zip(value.levels, value.bounds, strict=False)
            )
            levels = f", value {value.column} ({', '.join(below)}, {value.levels[-1]} OTHERWISE)"
        return f"WITH SHEDDING (repair) WITH QOS (delay ({late}), loss ({lost}){levels})"


QUERIES: Final[Mapping[str, FloodedQuery]] = {
    **{f"alert{n}": FloodedQuery("alerts", 5 + n, 1, QualityOfService(_QUICK, _STRICT)) for n in range(4)},
    **{
        f"dashboard{n}": FloodedQuery("dashboards", 20 + n, 8, QualityOfService(_PATIENT, _TOLERANT))
        for n in range(5)
    },
    **{
        f"report{n}": FloodedQuery("reports", 50 + n, 16, QualityOfService(_PATIENT, _LINEAR, _LARGE))
        for n in range(3)
    },
}
KINDS: Final = tuple(dict.fromkeys(query.kind for query in QUERIES.values()))
