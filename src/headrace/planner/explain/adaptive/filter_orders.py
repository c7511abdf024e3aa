"""EXPLAIN ADAPTIVE of one conjunction as text: its terms in their order with what they drop and cost, the orders before it with
the reason for each change, and what the best single order would have taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from headrace.adaptive.filters.order_cost import Conditions, Floats, Order
from headrace.adaptive.plan_log.plan_log import PlanLog
from headrace.adaptive.plan_log.saved_by_adapting import LoggedPeriod, saved_by_adapting
from headrace.adaptive.settling.robust_order import (
    FEW,
    MOST_FILTERS,
    DropInterval,
    greatest_regret,
    intervals_of,
)
from headrace.adaptive.settling.settled_order import NO_CHOICE, ChoiceTime
from headrace.dataclass import dataclass
from headrace.observation import FilterObservation
from headrace.operators.rows.filter_terms import Terms
from headrace.planner.explain.plan_graph import percent_of, rows_of, time_of

LEAST_ROWS = 256
"""Rows from which on the time of a term in a run counts, as for the choice of an order."""
_MOST_TERMS: Final = 12
"""Of which the best single order is searched: it takes time by the number of their sets."""
_SOON: Final = 3
"""Epochs within which a change that is undone was for nothing."""


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

    @property
    def is_judged(self) -> bool:
        """Whether enough was observed to compute what another order would have taken."""
        return self.seen.sampled > 0 and max(self.seen.costs(LEAST_ROWS)) < float("inf")

    def logged(self) -> LoggedPeriod:
        """What the terms drop of all rows, as in the sample, and cost in nanoseconds."""
        rows = np.zeros(1 << len(self.seen.order))
        for bits, count in self.seen.patterns.items():
            rows[bits] = count
        rows[0] = self.seen.sampled - rows.sum()
        conditions = Conditions(
            rows * (self.seen.rows / self.seen.sampled), np.asarray(self.seen.costs(LEAST_ROWS))
        )
        return LoggedPeriod(self.seen.order, conditions, float(sum(self.seen.sample_nanoseconds)))

    def statistics(self) -> Floats:
        """By term, the share that it drops; then what it costs."""
        drop_rates = [self.drop_rate(term) for term in range(len(self.seen.order))]
        return np.asarray([*drop_rates, *self.seen.costs(LEAST_ROWS)])

    @property
    def intervals(self) -> tuple[DropInterval, ...]:
        """By term, between which shares of all rows it drops, with 95 % confidence."""
        terms = range(len(self.seen.order))
        tried = self.seen.in_sample or (self.seen.sampled,) * len(terms)
        return intervals_of(tried, np.asarray([self.drop_rate(term) for term in terms]))

    def figures(self, term: int, *, confidence: bool = False) -> str:
        """`drops 48 % at 210 ns a row`, or with 95 % confidence `drops 48 % (45 to 51 %) at 210 ns a row`."""
        cost = self.seen.costs(LEAST_ROWS)[term]
        spent = "an unknown cost" if cost == float("inf") else f"{time_of(cost)} a row"
        share = percent_of(self.drop_rate(term)) if self.seen.sampled else "an unknown share"
        if confidence and self.seen.sampled:
            interval = self.intervals[term]
            share += f" ({percent_of(interval.low).removesuffix(' %')} to {percent_of(interval.high)})"
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
    terms: Terms,
    history: Sequence[tuple[int, FilterObservation]],
    next_order: Order,
    choices: ChoiceTime = NO_CHOICE,
) -> Iterator[str]:
    """The terms, then the time by what it was spent for, then the orders, the newest first. `choices`: what it took to choose them."""
    yield f"conjunction {terms.name} of {len(terms.terms)} terms, in an order that adapts (A-Greedy):"
    past = periods(history)
    sampled = next((period for period in reversed(past) if period.seen.sampled), None)
    for rank, index in enumerate(next_order, 1):
        figures = f": {sampled.figures(index, confidence=True)}" if sampled is not None else ""
        yield f"  {rank}. term {index + 1}{figures}: {terms.terms[index].display()}"
    if not past:
        yield "  nothing was observed yet: the order is a guess"
        return
    if sampled is not None:
        yield from _of_few_rows(sampled, next_order)
    total, rows = _evaluations(past[-1])
    yield f"  {total / max(1, rows):.3g} terms evaluated a row, since epoch {past[-1].first}"
    if past[-1].seen.order != next_order:
        yield f"  from the next epoch on: {_shown(next_order)}; {_reason(past[-1], next_order)}"
    yield from _spent([period.seen for period in past], choices)
    yield from _with_hindsight([period for period in past if period.is_judged])
    for before, period in reversed(list(zip([None, *past[:-1]], past, strict=True))):
        epochs = (
            f"epoch {period.first}"
            if period.first == period.last
            else f"epochs {period.first} to {period.last}"
        )
        why = "chosen by the first sample" if before is None else _reason(before, period.seen.order)
        yield f"  {epochs}: {_shown(period.seen.order)}, {rows_of(period.seen.rows)} rows; {why}"


def _of_few_rows(period: Period, order: Order) -> Iterator[str]:
    """While few rows were sampled, what the order may take of the time of the best one."""
    sampled, costs = period.seen.sampled, np.asarray(period.seen.costs(LEAST_ROWS))
    if sampled <= FEW and len(order) <= MOST_FILTERS and np.isfinite(costs).all():
        worst = 1 + greatest_regret(order, period.intervals, costs)
        rows = "1 row was" if sampled == 1 else f"{sampled} rows were"
        yield f"  {rows} sampled: whatever these shares are in their intervals, the order takes at most {worst:.3g} times as long as the best"


def _spent(past: Sequence[FilterObservation], choices: ChoiceTime) -> Iterator[str]:
    """The shares of evaluation, of profiling, of keeping profile windows, and of optimizing again."""
    parts = {
        "evaluation": sum(sum(seen.nanoseconds) for seen in past),
        "profiling": sum(sum(seen.sample_nanoseconds) for seen in past),
        "profile windows": choices.window,
        "re-optimizing": choices.reoptimizing,
    }
    if whole := sum(parts.values()):
        shares = ", ".join(f"{what} {percent_of(spent / whole)}" for what, spent in parts.items())
        yield f"  time: {time_of(whole)}, of which {shares}"


def _with_hindsight(past: Sequence[Period]) -> Iterator[str]:
    """What the best single order would have taken of the time, and from which statistics the changes of the order follow."""
    if len(past) < 2 or len(past[0].seen.order) > _MOST_TERMS:
        return
    saved = saved_by_adapting([period.logged() for period in past])
    profiling = percent_of(saved.profiling / (saved.followed + saved.profiling))
    yield (
        f"  the best single order for these epochs, {_shown(saved.best).removeprefix('order ')}, "
        f"takes {saved.ratio:.3g} times as long; profiling took {profiling}"
    )
    log = PlanLog(radius=0.0, most=len(past))
    for period in past:
        log.add(period.first, period.statistics(), period.seen.order)
    terms, changes = len(past[0].seen.order), len(past) - 1
    shares = log.importance(_by_rate) * changes
    causes = [
        f"{round(share)} from what term {index % terms + 1} {'drops' if index < terms else 'costs'}"
        for index, share in enumerate(shares)
        if round(share)
    ]
    undone = round(log.undone(_SOON) * changes)
    follow = f": {', '.join(causes)}" if causes else ""
    many = "change" if changes == 1 else "changes"
    yield f"  {changes} {many} of the order{follow}; {undone} undone within {_SOON} epochs"


def _by_rate(statistics: Floats) -> Order:
    """The order of terms by what they drop for their time, as if they were independent."""
    dropped, costs = np.split(statistics, 2)
    return tuple(np.argsort(-dropped / costs, kind="stable").tolist())


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
