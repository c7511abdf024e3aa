"""EXPLAIN ADAPTIVE of one join as text: by side the order in which its new rows probe the others, with what is dropped there, and the
orders before it with the reason for each change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from headrace.adaptive.filters.order_cost import Order
from headrace.observation import ProbeObservation
from headrace.planner.explain.plan_graph import percent_of, rows_of

_SHOWN = 8
"""Orders of a side that are listed: the newest."""

History = Sequence[tuple[int, ProbeObservation]]
"""What was observed of a side by epoch, oldest first."""


@dataclass(frozen=True, slots=True)
class _Period:
    """Successive epochs with one order of a side, and the sums of what was observed in them; `others` are the names of the other sides."""

    first: int
    last: int
    seen: ProbeObservation
    others: Sequence[str]

    @property
    def epochs(self) -> str:
        """`epochs 3 to 7`."""
        return f"epoch {self.first}" if self.first == self.last else f"epochs {self.first} to {self.last}"

    def figures(self, place: int) -> str:
        """`drops 48 %`: of the sampled rows, whatever the order."""
        return f"drops {percent_of(self.seen.drop_rate(place)) if self.seen.sampled else 'an unknown share'}"

    def measured(self) -> str:
        """`1.1 probes and 3.4 rows made for each of 2,000 rows`."""
        rows = self.seen.rows
        probes, made = sum(self.seen.probed) / rows, self.seen.made / rows
        return f"{probes:.3g} probes and {made:.3g} rows made for each of {rows_of(rows)} rows"

    def believed(self, order: Order) -> float:
        """The probes of a new row that an order takes, by the sample."""
        alive, probes = self.seen.sampled, 0
        for position in range(len(order)):
            probes += alive
            before = sum(1 << place for place in order[: position + 1])
            alive = self.seen.sampled - sum(n for bits, n in self.seen.patterns.items() if bits & before)
        return probes / self.seen.sampled


def probe_order_lines(
    join: str, sides: Sequence[str], histories: Mapping[int, History], orders: Mapping[int, Order]
) -> Iterator[str]:
    """The orders of each side; `orders` are those for the next epoch."""
    yield f"join {join} of {len(sides)} sides, whose new rows probe the others in orders that adapt (A-Greedy):"
    for side, name in enumerate(sides):
        others = [*sides[:side], *sides[side + 1 :]]
        yield from _side_lines(name, others, histories.get(side, ()), orders.get(side))


def _side_lines(
    name: str, others: Sequence[str], history: History, next_order: Order | None
) -> Iterator[str]:
    past = _periods(history, others)
    if not past or next_order is None:
        yield f"  {name}: nothing was observed yet: the side with fewest rows first"
        return
    newest = past[-1]
    sampled = next((period for period in reversed(past) if period.seen.sampled), newest)
    figures = ", ".join(f"{others[place]} {sampled.figures(place)}" for place in next_order)
    yield f"  {name}: {figures}"
    if newest.seen.order != next_order:
        yield f"    from the next epoch on: {_shown(next_order, others)}; {_reason(newest, next_order)}"
    changes = list(zip([None, *past[:-1]], past, strict=True))
    for before, period in reversed(changes[-_SHOWN:]):
        why = "the side with fewest rows first" if before is None else _reason(before, period.seen.order)
        yield f"    {period.epochs}: {_shown(period.seen.order, others)}; {period.measured()}; {why}"


def _periods(history: History, others: Sequence[str]) -> list[_Period]:
    """The observations of epochs by successive equal orders."""
    result = []
    for _, run in groupby(history, key=lambda entry: entry[1].order):
        (first, seen), *more = run
        last = first
        for epoch, later in more:
            last, seen = epoch, seen.plus(later)
        result.append(_Period(first, last, seen, others))
    return result


def _shown(order: Order, others: Sequence[str]) -> str:
    return "order " + ", ".join(others[place] for place in order)


def _reason(before: _Period, order: Order) -> str:
    """The first position at which an order differs from that of a period, with the figures then."""
    chosen, instead = next(
        (new, old) for new, old in zip(order, before.seen.order, strict=True) if new != old
    )
    names = before.others
    why = (
        f"{names[chosen]} {before.figures(chosen)}, before {names[instead]}, which {before.figures(instead)}"
    )
    if not before.seen.sampled:
        return why
    instead_of = (
        f"{before.believed(order):.3g} probes a row instead of {before.believed(before.seen.order):.3g}"
    )
    return f"{why}: {instead_of}, by the sample"
