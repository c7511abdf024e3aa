"""EXPLAIN ADAPTIVE of one join as text: by side the order in which its new rows probe the others, with what is dropped there, and the
orders before it with the reason for each change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from headrace.adaptive.filters.order_cost import Order
from headrace.dataclass import dataclass
from headrace.observation import ProbeObservation
from headrace.planner.explain.plan_graph import percent_of, rows_of

_SHOWN = 8
"""Orders of a side that are listed: the newest."""

History = Sequence[tuple[int, ProbeObservation]]
"""What was observed of a side by epoch, oldest first."""


@dataclass(frozen=True, slots=True)
class _Period:
    """Successive epochs with one order of a side, and the sums of what was observed in them; `others` are the names of the other sides.

    `newest` was observed in the last epoch with a sample, after which another order may have been chosen.
    """

    first: int
    last: int
    seen: ProbeObservation
    newest: ProbeObservation
    others: Sequence[str]

    @property
    def epochs(self) -> str:
        """`epochs 3 to 7`."""
        return f"epoch {self.first}" if self.first == self.last else f"epochs {self.first} to {self.last}"

    def measured(self) -> str:
        """`1.1 probes and 3.4 rows made for each of 2,000 rows`."""
        rows = self.seen.rows
        probes, rows_made = sum(self.seen.probed) / rows, self.seen.made / rows
        return f"{probes:.3g} probes and {rows_made:.3g} rows made for each of {rows_of(rows)} rows"

    def reason(self, order: Order) -> str:
        """Why another order was chosen: the first side that differs, and what both orders take, by the newest sample."""
        chosen, instead = next(
            (new, old) for new, old in zip(order, self.seen.order, strict=True) if new != old
        )
        why = (
            f"{self.others[chosen]} {_figures(self.newest, chosen)}, before {self.others[instead]}, which"
            f" {_figures(self.newest, instead)}"
        )
        if not self.newest.sampled:
            return why
        believed = [_believed(self.newest, candidate) for candidate in (order, self.seen.order)]
        return f"{why}: {believed[0]:.3g} probes a row instead of {believed[1]:.3g}, by the sample"


def _figures(seen: ProbeObservation, side: int) -> str:
    """`drops 48 %`: of the sampled rows, whatever the order."""
    return f"drops {percent_of(seen.drop_rate(side)) if seen.sampled else 'an unknown share'}"


def _believed(seen: ProbeObservation, order: Order) -> float:
    """The probes of a new row that an order takes, by the sample."""
    alive, probes = seen.sampled, 0
    for position in range(len(order)):
        probes += alive
        before = sum(1 << side for side in order[: position + 1])
        alive = seen.sampled - sum(rows for bits, rows in seen.patterns.items() if bits & before)
    return probes / seen.sampled


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
    last = past[-1]
    sampled = next((period.seen for period in reversed(past) if period.seen.sampled), last.seen)
    yield f"  {name}: " + ", ".join(f"{others[side]} {_figures(sampled, side)}" for side in next_order)
    if last.seen.order != next_order:
        yield f"    from the next epoch on: {_shown(next_order, others)}; {last.reason(next_order)}"
    changes = list(zip([None, *past[:-1]], past, strict=True))
    for before, period in reversed(changes[-_SHOWN:]):
        why = "the side with fewest rows first" if before is None else before.reason(period.seen.order)
        yield f"    {period.epochs}: {_shown(period.seen.order, others)}; {period.measured()}; {why}"


def _periods(history: History, others: Sequence[str]) -> list[_Period]:
    """The observations of epochs by successive equal orders."""
    result = []
    for _, run in groupby(history, key=lambda entry: entry[1].order):
        (first, seen), *more = run
        last, newest = first, seen
        for epoch, later in more:
            last, seen, newest = epoch, seen.plus(later), later if later.sampled else newest
        result.append(_Period(first, last, seen, newest, others))
    return result


def _shown(order: Order, others: Sequence[str]) -> str:
    return "order " + ", ".join(others[side] for side in order)
