"""The running work of all queries with who shares it, its measurements and each query's cost (`Explained`), from
which EXPLAIN's texts and diagrams are made; and the format of numbers in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from headrace.dataclass import dataclass
from headrace.observation import OperatorObservation, WorkObservation
from headrace.planner.explain.cost_attribution import NOTHING, Measured, attributed
from headrace.planner.explain.work_sharing import Sharing, WorkItem

FEW: Final = 3
"""The maximum number of names in a list; further ones are counted."""


@dataclass(frozen=True, slots=True)
class QueryCost:
    """A query: `nanoseconds` attributed to it in an epoch, and its measurements in all epochs together."""

    name: str
    nanoseconds: float
    seen: OperatorObservation
    state_rows: int


@dataclass(frozen=True)
class Explained:
    """`seen` is None before the first measurement. `owners`: each operator's query, by name.

    `makers`: by stream name the operator whose results it is; other streams are external.
    """

    sharing: Sharing
    seen: Measured | None
    owners: Mapping[str, str]
    makers: Mapping[str, str]

    def queries_of(self, users: Sequence[str]) -> list[str]:
        """The queries of operators, in their order."""
        return list(dict.fromkeys(self.owners[user] for user in users))

    def shared_with(self, users: Sequence[str]) -> str:
        """`3 queries: a, b, c`, with a limited number of names."""
        names = self.queries_of(users)
        more = f" and {len(names) - FEW:,} more" if len(names) > FEW else ""
        return f"{count(len(names), 'query', 'queries')}: {', '.join(names[:FEW])}{more}"

    @cached_property
    def costs(self) -> list[QueryCost]:
        """All queries, the costliest first; in order of registration before the first measurement."""
        spent = attributed(self.sharing, self.seen) if self.seen is not None else {}
        operators_of: dict[str, list[str]] = {}
        for operator, name in self.owners.items():
            operators_of.setdefault(name, []).append(operator)
        costs = [self._cost(name, operators, spent) for name, operators in operators_of.items()]
        return sorted(costs, key=lambda cost: -cost.nanoseconds)

    def _cost(self, name: str, operators: Sequence[str], spent: Mapping[str, float]) -> QueryCost:
        if self.seen is None:
            return QueryCost(name, 0.0, NOTHING, 0)
        total = sum(spent.get(operator, 0.0) for operator in operators)
        every = NOTHING
        for operator in operators:
            every = every.plus(self.seen.operators.get(operator, NOTHING))
        rows = sum(self.seen.state_rows.get(operator, 0) for operator in operators)
        return QueryCost(name, total / max(1, self.seen.epochs), every, rows)

    def measured(self, position: int) -> WorkObservation | None:
        """The measurements of a piece of work in all epochs together; its state as of now."""
        if self.seen is None:
            return None
        observed = self.seen.works[position]
        return WorkObservation(
            observed.rows_in, observed.rows_out, observed.nanoseconds, self.seen.state_bytes[position]
        )

    def of_operator(self, operator: str) -> OperatorObservation:
        """The measurements of an operator in all epochs together."""
        return NOTHING if self.seen is None else self.seen.operators.get(operator, NOTHING)

    def share(self, position: int) -> float:
        """The work's share of all measured time."""
        if self.seen is None or not self.seen.nanoseconds:
            return 0.0
        return self.seen.works[position].nanoseconds / self.seen.nanoseconds

    def below(self, position: int) -> list[int]:
        """The work that reads the rows of this one: aggregations of a stream, states of an aggregation's operators."""
        work = self.sharing.works[position]
        kind = {"read": "fold", "fold": "state", "state": ""}[work.kind]
        positions = {
            position
            for user in work.users
            for position in self.sharing.places[user]
            if self.sharing.works[position].kind == kind
        }
        return self.by_weight(positions)

    def by_weight(self, places: Iterator[int] | Sequence[int] | set[int]) -> list[int]:
        """Places of work, the longest first; equal ones by the number of queries that share them."""
        works = self.sharing.works
        return sorted(
            places, key=lambda position: (-self.share(position), -len(works[position].users), position)
        )

    def streams(self) -> list[int]:
        """The places where streams are read."""
        return self.by_weight([n for n, work in enumerate(self.sharing.works) if work.kind == "read"])

    def pass_rate(self, work: WorkItem) -> float | None:
        """The mean share of its input rows that a query of an aggregation keeps."""
        if self.seen is None or work.kind != "fold":
            return None
        observed = [self.seen.operators.get(user, NOTHING) for user in work.users]
        offered = sum(operator.rows_in for operator in observed)
        return sum(operator.rows_kept for operator in observed) / offered if offered else None

    def probes(self, work: WorkItem) -> tuple[int, int]:
        """Of a join: how often a side's rows were looked up, and how many of them were compared."""
        operators = {} if self.seen is None else self.seen.operators
        observed = [operators.get(user, NOTHING) for user in work.users]
        return sum(operator.probes for operator in observed), sum(
            operator.candidates for operator in observed
        )


def count(number: int, one: str, many: str) -> str:
    """`1 query`, `10,000 queries`."""
    return f"{number:,} {one if number == 1 else many}"


def rows_of(number: float) -> str:
    """Mean rows per epoch: whole numbers, except small ones."""
    return f"{number:.2g}" if 0 < number < 10 else f"{number:,.0f}"


def ratio_of(rows_in: int, rows_out: int) -> str:
    """` (2.5 %)`, the rows out as a share of the rows in, ` (12 for each)`; empty without rows in."""
    if not rows_in:
        return ""
    share = rows_out / rows_in
    return f" ({percent_of(share)})" if share <= 1 else f" ({share:,.3g} for each)"


def time_of(nanoseconds: float) -> str:
    """Three digits and a unit: `1.23 ms`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return (
                f"{nanoseconds / size:.3g} {unit}"
                if nanoseconds < 1000 * size
                else f"{nanoseconds / size:,.0f} {unit}"
            )
    return f"{nanoseconds:.0f} ns"


def bytes_of(size: float) -> str:
    """Three digits and a unit: `1.23 MB`."""
    for unit, large in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= large:
            return f"{size / large:.3g} {unit}"
    return f"{size:.0f} bytes"


def percent_of(share: float) -> str:
    """`12 %`, `0.3 %`, `<0.1 %`."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.0f} %" if percent >= 9.95 or percent == 0 else f"{percent:.1f} %"
