"""Evaluation of the terms of a conjunction in any order, each on the rows that the terms before it have left, and of all terms on
a sample of the rows.

A row leaves as soon as a term is false on it. One on which a term is NULL or fails stays while a later term may be false, or fail:
so the rows that are kept, and those that are rejected, are the same in every order. See docs/semantics.md, "Failing rows".
Source: Babu, Adaptive Query Processing in Data Stream Management Systems (2005), sections 4.1 and 4.2; the selection vector is the
vectorised form of pipelined filters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.adaptive.filters.order_cost import Bools, Order, static_greedy
from headrace.adaptive.filters.ordering import UNSETTLED_SHARE, OrderInForce, drops_elsewhere
from headrace.adaptive.filters.thinned_sample import cheap, thinned
from headrace.adaptive.settling.robust_order import order_of_few
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints
from headrace.operators.rows.filter_profiles import Tally, in_force
from headrace.operators.rows.filter_terms import Term, Terms
from headrace.operators.rows.semijoin import Candidates, truth
from headrace.operators.scalar import Evaluation
from headrace.operators.scalar.values import datum

LEAST_SAMPLE: Final = 64
"""Rows that are sampled together at least, less often where that is more than the share: a call of few costs more for each."""
MOST_SAMPLED: Final = 512
"""Rows that are sampled in a task of an epoch: half of a profile window."""
_TAKEN: Final = 6
"""Nanoseconds for taking one value: a cheaper term is evaluated on all rows, where few have left."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A term on some rows: where it drops the row; where it neither does nor is true (None: nowhere); why it has failed, by row."""

    drops: Bools
    undecided: Bools | None
    reasons: Mapping[int, str]
    marks: Mapping[str, pa.Array]


@dataclass(slots=True)
class _Run:
    """A batch while its terms are evaluated: the rows that are left, and what is known of them."""

    batch: Batch
    left: int = field(init=False)
    alive: Bools | None = None
    """Where no term has dropped the row; None: everywhere."""
    undecided: Bools | None = None
    """Where a term is neither true nor drops the row; None: nowhere."""
    reasons: list[Mapping[int, str]] = field(default_factory=list)
    """Of each term that has failed, why, by row."""
    marks: dict[str, tuple[Ints | None, pa.Array]] = field(default_factory=dict)
    """Columns of tests of membership, and their rows; None: all."""

    def __post_init__(self) -> None:
        self.left = self.batch.rows

    def rows(self) -> Ints:
        """The rows that are left."""
        return np.arange(self.batch.rows) if self.alive is None else np.flatnonzero(self.alive)

    def take(self, outcome: _Outcome, rows: Ints | None) -> int:
        """Take in a term's outcome on some rows, or on all; returns how many of those that were left it has dropped."""
        if rows is None:
            self.alive = ~outcome.drops if self.alive is None else self.alive & ~outcome.drops
        else:
            self.alive = np.zeros(self.batch.rows, bool)
            self.alive[rows] = ~outcome.drops
        before, self.left = self.left, int(np.count_nonzero(self.alive))
        if outcome.undecided is not None:
            undecided = np.zeros(self.batch.rows, bool) if self.undecided is None else self.undecided
            undecided[slice(None) if rows is None else rows] |= outcome.undecided
            self.undecided = undecided
        if outcome.reasons:
            self.reasons.append(
                outcome.reasons
                if rows is None
                else {int(rows[row]): reason for row, reason in outcome.reasons.items()}
            )
        for name, mark in outcome.marks.items():
            self.marks[name] = rows, mark
        return before - self.left

    def mark(self, name: str, chosen: Ints) -> pa.Array:
        """Values of a test of membership on some of the rows it was evaluated on."""
        if name not in self.marks:  # no row was left for it
            return pa.nulls(0, pa.bool_())
        rows, values = self.marks[name]
        return values.take(pa.array(chosen if rows is None else np.searchsorted(rows, chosen)))


@dataclass(slots=True)
class OrderedFilter:
    """The terms in an order, over the batches of a task."""

    terms: Terms
    candidates: Mapping[str, Candidates]
    order: Order
    clock: Callable[[], int] | None
    tally: Tally
    chosen: OrderInForce
    is_first: bool
    """Whether no epoch has chosen the order yet: the task chooses by its first sample, and the guessed costs."""

    @staticmethod
    def of(terms: Terms, candidates: Mapping[str, Candidates]) -> OrderedFilter:
        """In the order that is in force, or the guessed one."""
        profiles = in_force()
        chosen = profiles.orders.get(terms.name)
        is_known = chosen is not None and sorted(chosen.order) == list(range(len(terms.terms)))
        if chosen is None or not is_known:
            chosen = OrderInForce(terms.guessed_order, UNSETTLED_SHARE)
        tally = (
            Tally(chosen.order, []) if profiles.clock is None else profiles.tally(terms.name, chosen.order)
        )
        return OrderedFilter(terms, candidates, chosen.order, profiles.clock, tally, chosen, not is_known)

    def apply(self, batch: Batch) -> tuple[Batch, Rejected | None]:
        """The rows on which every term is true, with the columns of tests of membership; and those that are rejected."""
        if self.clock is not None:
            self.tally.rows += batch.rows
            self._profile(batch, self.clock, self.chosen.share)
        run, drops = _Run(batch), [0] * len(self.order)
        for index in self.order:
            if not run.left:
                break
            started = 0 if self.clock is None else self.clock()
            rows = self._selected(run, self.terms.terms[index])
            drops[index] = run.take(self._evaluated(index, batch, rows), rows)
            if self.clock is not None:
                evaluated = batch.rows if rows is None else len(rows)
                self.tally.add(index, evaluated, drops[index], self.clock() - started)
        if self.clock is not None and drops_elsewhere(self.chosen.believed, drops):
            self._profile(batch, self.clock, UNSETTLED_SHARE)
        return self._kept(run), self._rejected(run)

    def _selected(self, run: _Run, term: Term) -> Ints | None:
        """The rows that a term has to be evaluated on; None for the whole batch, where that costs less."""
        gained = term.cost * (run.batch.rows - run.left)
        return None if gained <= _TAKEN * run.left * max(1, len(term.reads)) else run.rows()

    def _evaluated(self, index: int, batch: Batch, rows: Ints | None) -> _Outcome:
        """A term on some rows of a batch, or on all."""
        term = self.terms.terms[index]
        part = batch.only(term.reads) if rows is None else batch.only(term.reads).take(rows)
        columns, failed = dict(part.columns), dict[int, str]()
        for membership in term.memberships:
            columns[membership.name], reasons = truth(membership, self.candidates[membership.name], part)
            failed |= reasons
        evaluation = Evaluation(columns, part.rows)
        value = evaluation.values(term.predicate)
        is_value, drops = datum.valid(value), ~datum.truth(value, part.rows)
        undecided: Bools | None = None
        if evaluation.errors is not None:
            failed |= evaluation.errors.reasons
        if is_value is not None and not self.terms.drops_null(index):
            drops, undecided = drops & is_value, ~is_value
        if failed:
            undecided = np.zeros(part.rows, bool) if undecided is None else undecided
            undecided[list(failed)], drops[list(failed)] = True, False
        marks = {membership.name: columns[membership.name] for membership in term.memberships}
        return _Outcome(drops, undecided, failed, marks)

    def _profile(self, batch: Batch, clock: Callable[[], int], share: float) -> None:
        """Evaluate all terms on a share of the rows, costly ones on fewer; the first sample chooses the order where no epoch has."""
        most = MOST_SAMPLED - self.tally.sampled
        rows = _sampled(batch, share)[: max(0, most)]
        if not len(rows):
            return
        costs = np.asarray([term.cost for term in self.terms.terms])
        is_cheap, chosen, weights = cheap(costs), np.arange(len(rows)), np.ones(len(rows), np.int64)
        dropped, spent, evaluated = (
            np.zeros((len(rows), len(costs)), bool),
            [0] * len(costs),
            [0] * len(costs),
        )
        for part in (is_cheap, ~is_cheap):
            for index in np.flatnonzero(part).tolist():
                started, evaluated[index] = clock(), len(chosen)
                dropped[chosen, index] = self._evaluated(index, batch, rows[chosen]).drops
                spent[index] = clock() - started
            if is_cheap.any() and part is is_cheap:
                chosen, weights = thinned(dropped[:, is_cheap])
        self.tally.add_sample(dropped[chosen], spent, weights, evaluated)
        if self.is_first:
            whole = np.repeat(dropped[chosen], weights, axis=0)
            robust = order_of_few(evaluated, whole.mean(axis=0), costs)
            self.order = self.tally.order = static_greedy(whole, costs) if robust is None else robust
            self.is_first = False

    def _kept(self, run: _Run) -> Batch:
        """The rows on which every term is true."""
        is_true, batch = run.alive, run.batch
        if is_true is not None and run.undecided is not None:
            is_true = is_true & ~run.undecided
        marks = [membership.name for term in self.terms.terms for membership in term.memberships]
        if is_true is None or (not marks and is_true.all()):
            return batch
        rows = np.flatnonzero(is_true)
        batch = batch if len(rows) == batch.rows else batch.take(rows)
        return batch.with_columns({name: run.mark(name, rows) for name in marks})

    def _rejected(self, run: _Run) -> Rejected | None:
        """The rows on which a term fails and none is false, each with the reason of the first conjunct that fails, as written."""
        reasons: dict[int, str] = {}
        several: list[int] = []
        for failed in run.reasons:
            for row, reason in failed.items():
                if run.alive is None or run.alive[row]:
                    several += [row] if row in reasons else []
                    reasons[row] = reason
        if not reasons:
            return None
        if several:
            chosen = np.unique(several)
            part = run.batch.take(chosen)
            marks = {name: run.mark(name, chosen) for name in run.marks}
            errors = Evaluation({**part.columns, **marks}, part.rows)
            errors.values(self.terms.whole)
            if errors.errors is not None:
                reasons |= {int(chosen[row]): reason for row, reason in errors.errors.reasons.items()}
        rows = np.fromiter(sorted(reasons), np.int64, len(reasons))
        return Rejected(
            run.batch.at[rows], run.batch.position[rows], tuple(reasons[row] for row in rows.tolist())
        )


def _sampled(batch: Batch, share: float) -> Ints:
    """Some rows of a batch: one of each few rows, the same ones whenever the batch is read, by a hash of its first position."""
    if not share:
        return np.empty(0, np.int64)
    seed = batch.position[:1].astype(np.uint64)
    together = min(batch.rows, LEAST_SAMPLE)
    if batch.rows * share < together:
        if _fractions(seed)[0] * together >= batch.rows * share:
            return np.empty(0, np.int64)
        share = together / batch.rows
    firsts = np.arange(0, batch.rows, max(1.0, 1 / share))
    offsets = _fractions(seed + np.arange(1, len(firsts) + 1, dtype=np.uint64)) / share
    return np.minimum((firsts + offsets).astype(np.int64), batch.rows - 1)


def _fractions(numbers: np.ndarray) -> np.ndarray:
    """A number in [0, 1) for each number."""
    mixed = (numbers ^ (numbers >> np.uint64(32))) * _MIX
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX
    fractions: np.ndarray = (mixed >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return fractions
