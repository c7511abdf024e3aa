"""What runs, who shares it and what it costs, as one value: EXPLAIN's texts and pictures are made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from headrace.observation import OperatorObservation, WorkObservation
from headrace.planner.explain.cost_attribution import NOTHING, Measured, attributed
from headrace.planner.explain.work_sharing import Sharing, Work

FEW: Final = 3
"""So many names stand for any number of them."""


@dataclass(frozen=True, slots=True)
class QueryCost:
    """A query: `nanoseconds` attributed to it in an epoch, and what was measured of it in all epochs together."""

    name: str
    nanoseconds: float
    seen: OperatorObservation
    state_rows: int


@dataclass(frozen=True)
class Explained:
    """`seen` is None before anything was measured. `owners`: each operator's query, by name.

    `makers`: the operator whose results a stream is, by the stream's name; other streams come from outside.
    """

    sharing: Sharing
    seen: Measured | None
    owners: Mapping[str, str]
    makers: Mapping[str, str]

    def queries_of(self, users: Sequence[str]) -> list[str]:
        """The queries of operators, in their order."""
        return list(dict.fromkeys(self.owners[user] for user in users))

    def shared_with(self, users: Sequence[str]) -> str:
        """`3 queries: a, b, c`, however many there are."""
        names = self.queries_of(users)
        more = f" and {len(names) - FEW:,} more" if len(names) > FEW else ""
        return f"{count(len(names), 'query', 'queries')}: {', '.join(names[:FEW])}{more}"

    @cached_property
    def costs(self) -> list[QueryCost]:
        """All queries, the costliest first; as they were registered while nothing is measured."""
        spent = attributed(self.sharing, self.seen) if self.seen is not None else {}
        found: dict[str, list[str]] = {}
        for operator, name in self.owners.items():
            found.setdefault(name, []).append(operator)
        costs = [self._cost(name, operators, spent) for name, operators in found.items()]
        return sorted(costs, key=lambda each: -each.nanoseconds)

    def _cost(self, name: str, operators: Sequence[str], spent: Mapping[str, float]) -> QueryCost:
        if self.seen is None:
            return QueryCost(name, 0.0, NOTHING, 0)
        total = sum(spent.get(operator, 0.0) for operator in operators)
        every = NOTHING
        for operator in operators:
            every = every.plus(self.seen.operators.get(operator, NOTHING))
        rows = sum(self.seen.state_rows.get(operator, 0) for operator in operators)
        return QueryCost(name, total / max(1, self.seen.epochs), every, rows)

    def measured(self, place: int) -> WorkObservation | None:
        """What was measured of a piece of work in all epochs together; its state as it is now."""
        if self.seen is None:
            return None
        found = self.seen.works[place]
        return WorkObservation(found.rows_in, found.rows_out, found.nanoseconds, self.seen.state_bytes[place])

    def share(self, place: int) -> float:
        """The work's part of all time that was measured."""
        if self.seen is None or not self.seen.nanoseconds:
            return 0.0
        return self.seen.works[place].nanoseconds / self.seen.nanoseconds

    def below(self, place: int) -> list[int]:
        """The work that takes the rows of this one: folds of a stream, states of a fold's operators."""
        work = self.sharing.works[place]
        wanted = {"read": "fold", "fold": "state", "state": ""}[work.kind]
        found = {
            each
            for user in work.users
            for each in self.sharing.places[user]
            if self.sharing.works[each].kind == wanted
        }
        return self.by_weight(found)

    def by_weight(self, places: Iterator[int] | Sequence[int] | set[int]) -> list[int]:
        """Places of work, what takes longest first; then what is shared by most."""
        works = self.sharing.works
        return sorted(places, key=lambda each: (-self.share(each), -len(works[each].users), each))

    def streams(self) -> list[int]:
        """The places where streams are read."""
        return self.by_weight([n for n, each in enumerate(self.sharing.works) if each.kind == "read"])

    def pass_rate(self, work: Work) -> float | None:
        """The share of the rows it was offered that a query of a fold keeps, in the mean."""
        if self.seen is None or work.kind != "fold":
            return None
        own = [self.seen.operators.get(user, NOTHING) for user in work.users]
        offered = sum(each.rows_in for each in own)
        return sum(each.rows_kept for each in own) / offered if offered else None


def count(number: int, one: str, many: str) -> str:
    """`1 query`, `10,000 queries`."""
    return f"{number:,} {one if number == 1 else many}"


def rows_of(number: float) -> str:
    """Rows an epoch in the mean: whole ones, but for a few."""
    return f"{number:.2g}" if 0 < number < 10 else f"{number:,.0f}"


def ratio_of(rows_in: int, rows_out: int) -> str:
    """` (2.5 %)` of the rows that went in come out, ` (12 for each)`; nothing where none went in."""
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
