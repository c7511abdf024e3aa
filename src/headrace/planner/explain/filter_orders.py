"""EXPLAIN ADAPTIVE of one conjunction as text: its terms in their order with what they drop and cost, and the orders before it with
the reason for each change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from headrace.adaptive.filters.order_cost import Order
from headrace.observation import FilterObservation
from headrace.operators.rows.filter_terms import Terms
from headrace.planner.explain.plan_graph import percent_of, rows_of, time_of

LEAST_ROWS = 256
"""Rows from which on the time of a term in a run counts, as for the choice of an order."""


@dataclass(frozen=True, slots=True)
class Period:
    """Successive epochs with one order, and the sums of what was observed in them."""

    first: int
    last: int
    seen: FilterObservation

    def drop_rate(self, term: int) -> float:
        """The share of the sampled rows that a term drops by itself."""
        drops = sum(rows for bits, rows in self.seen.patterns.items() if bits >> term & 1)
        return drops / self.seen.sampled if self.seen.sampled else 0.0

    def figures(self, term: int) -> str:
        """`drops 48 % at 210 ns a row`."""
        cost = self.seen.costs(LEAST_ROWS)[term]
        spent = "an unknown cost" if cost == float("inf") else f"{time_of(cost)} a row"
        share = percent_of(self.drop_rate(term)) if self.seen.sampled else "an unknown share"
        return f"drops {share} at {spent}"


def periods(history: Sequence[tuple[int, FilterObservation]]) -> list[Period]:
    """The observations of epochs, oldest first, by successive equal orders."""
    result = []
    for _, run in groupby(history, key=lambda entry: entry[1].order):
        (first, seen), *others = run
        last = first
        for epoch, later in others:
            last, seen = epoch, seen.plus(later)
        result.append(Period(first, last, seen))
    return result


def order_lines(
    terms: Terms, history: Sequence[tuple[int, FilterObservation]], next_order: Order
) -> Iterator[str]:
    """The terms, then the orders, the newest first."""
    yield f"conjunction {terms.name} of {len(terms.terms)} terms, in an order that adapts (A-Greedy):"
    past = periods(history)
    sampled = next((period for period in reversed(past) if period.seen.sampled), None)
    for rank, index in enumerate(next_order, 1):
        figures = f": {sampled.figures(index)}" if sampled is not None else ""
        yield f"  {rank}. term {index + 1}{figures}: {terms.terms[index].display()}"
    if not past:
        yield "  nothing was observed yet: the order is a guess"
        return
    total, rows = _evaluations(past[-1])
    yield f"  {total / max(1, rows):.3g} terms evaluated a row, since epoch {past[-1].first}"
    if past[-1].seen.order != next_order:
        yield f"  from the next epoch on: {_shown(next_order)}; {_reason(past[-1], next_order)}"
    for before, period in reversed(list(zip([None, *past[:-1]], past, strict=True))):
        epochs = (
            f"epoch {period.first}"
            if period.first == period.last
            else f"epochs {period.first} to {period.last}"
        )
        why = "chosen by the first sample" if before is None else _reason(before, period.seen.order)
        yield f"  {epochs}: {_shown(period.seen.order)}, {rows_of(period.seen.rows)} rows; {why}"


def _evaluations(period: Period) -> tuple[int, int]:
    return sum(period.seen.evaluated), period.seen.rows


def _shown(order: Order) -> str:
    return "order " + ", ".join(str(index + 1) for index in order)


def _reason(before: Period, order: Order) -> str:
    """The first position at which an order differs from that of a period, with both terms' figures then."""
    chosen, instead = next(
        (new, old) for new, old in zip(order, before.seen.order, strict=True) if new != old
    )
    return (
        f"term {chosen + 1} {before.figures(chosen)}, before term {instead + 1}, "
        f"which {before.figures(instead)}"
    )
