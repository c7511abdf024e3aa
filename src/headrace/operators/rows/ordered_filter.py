"""Evaluation of the terms of a conjunction in any order, each on the rows that the terms before it have left, and of all terms on
a sample of the rows.

A row leaves as soon as a term is false on it. One on which a term is NULL or fails stays while a later term may be false, or fail:
so the rows that are kept, and those that are rejected, are the same in every order. See docs/semantics.md, "Failing rows".
Source: Babu, Adaptive Query Processing in Data Stream Management Systems (2005), sections 4.1 and 4.2; the selection vector is the
vectorised form of pipelined filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.adaptive.filters.order_cost import Bools, Order, static_greedy
from headrace.observation import FilterObservation
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints
from headrace.operators.rows.filter_profiles import FilterProfiles, in_force
from headrace.operators.rows.filter_terms import Term, Terms
from headrace.operators.rows.semijoin import Candidates, truth
from headrace.operators.scalar import Evaluation
from headrace.operators.scalar.values import datum

SHARE: Final = 1 / 256
"""The share of rows that is sampled, once the order is known."""
FIRST_SHARE: Final = 1 / 16
"""The same, in the first epoch."""
LEAST_SAMPLE: Final = 64
"""Rows that are sampled together at least, less often where that is more than the share: a call of few costs more for each."""
MOST_SAMPLED: Final = 1024
"""Rows that are sampled in a task of an epoch: a profile window's worth."""
_TAKEN: Final = 6
"""Nanoseconds for taking one value: a cheaper term is evaluated on all rows, where few have left."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class _Outcome:
    """A term on some rows: where it drops the row, where it is true, and why it has failed, by row."""

    drops: Bools
    holds: Bools
    reasons: Mapping[int, str]
    marks: Mapping[str, pa.Array]


@dataclass(slots=True)
class OrderedFilter:
    """The terms in an order, over the batches of a task."""

    terms: Terms
    candidates: Mapping[str, Candidates]
    order: Order
    profiles: FilterProfiles
    is_first: bool
    """Whether no epoch has chosen the order yet: the task chooses by its first sample, and the guessed costs."""
    sampled: int = 0

    @staticmethod
    def of(terms: Terms, candidates: Mapping[str, Candidates]) -> OrderedFilter:
        """In the order that is in force, or the guessed one."""
        profiles = in_force()
        order = profiles.orders.get(terms.name, ())
        is_known = sorted(order) == list(range(len(terms.terms)))
        return OrderedFilter(
            terms, candidates, tuple(order) if is_known else terms.guessed_order, profiles, not is_known
        )

    def apply(self, batch: Batch) -> tuple[Batch, Rejected | None]:
        """The rows on which every term is true, with the columns of tests of membership; and those that are rejected."""
        sample = self._sample(batch) if self.profiles.clock is not None else None
        run = _Run(batch, len(self.terms.terms))
        for index in self.order:
            if not len(run.rows):
                break
            part, whole = self._part(run, self.terms.terms[index])
            started = self._now()
            outcome = self._evaluated(index, part)
            run.take(index, outcome, whole=whole, nanoseconds=self._now() - started)
        if self.profiles.clock is not None:
            self.profiles.add(self.terms.name, run.observation(self.order, sample))
        return run.kept(self.terms), self._rejected(run)

    def _now(self) -> int:
        return 0 if self.profiles.clock is None else self.profiles.clock()

    def _part(self, run: _Run, term: Term) -> tuple[Batch, bool]:
        """The rows that a term has to be evaluated on, with its columns; the whole batch where that costs less."""
        batch, rows = run.batch.only(term.reads), run.rows
        gained = term.cost * (run.batch.rows - len(rows))
        if gained <= _TAKEN * len(rows) * max(1, len(batch.columns)):
            return batch, True
        return batch.take(rows), False

    def _evaluated(self, index: int, part: Batch) -> _Outcome:
        term, columns, failed = self.terms.terms[index], dict(part.columns), dict[int, str]()
        for membership in term.memberships:
            columns[membership.name], reasons = truth(membership, self.candidates[membership.name], part)
            failed |= reasons
        evaluation = Evaluation(columns, part.rows)
        value, holds = evaluation.values(term.predicate), evaluation.mask(term.predicate)
        drops = ~holds
        if not self.terms.drops_null(index) and (is_value := datum.valid(value)) is not None:
            drops &= is_value
        if evaluation.errors is not None:
            failed |= evaluation.errors.reasons
        if failed:
            rows = list(failed)
            drops[rows], holds[rows] = False, False
        marks = {membership.name: columns[membership.name] for membership in term.memberships}
        return _Outcome(drops, holds, failed, marks)

    def _sample(self, batch: Batch) -> _Sample | None:
        """All terms on some rows of a batch; the first sample chooses the order where no epoch has."""
        if self.sampled >= MOST_SAMPLED:
            return None
        rows = _sampled(batch, FIRST_SHARE if self.is_first else SHARE)[: MOST_SAMPLED - self.sampled]
        if not len(rows):
            return None
        self.sampled += len(rows)
        dropped = np.zeros((len(rows), len(self.terms.terms)), bool)
        spent = []
        for index, term in enumerate(self.terms.terms):
            part = batch.only(term.reads).take(rows)
            started = self._now()
            dropped[:, index] = self._evaluated(index, part).drops
            spent.append(self._now() - started)
        if self.is_first:
            self.order = static_greedy(dropped, np.asarray([term.cost for term in self.terms.terms]))
            self.is_first = False
        return _Sample(dropped, tuple(spent))

    def _rejected(self, run: _Run) -> Rejected | None:
        """The rows on which a term fails and none is false, each with the reason of the first conjunct that fails, as written."""
        rows = np.flatnonzero(run.failures)
        rows = rows[run.is_left(rows)]
        if not len(rows):
            return None
        reasons = {row: reason for failed in run.reasons for row, reason in failed.items()}
        several = rows[run.failures[rows] > 1]
        if len(several):
            part = run.batch.take(several)
            marks = {
                name: mark.take(pa.array(np.searchsorted(rows_of, several)))
                for name, (rows_of, mark) in run.marks.items()
            }
            errors = Evaluation({**part.columns, **marks}, part.rows)
            errors.values(self.terms.whole)
            if errors.errors is not None:
                reasons |= {int(several[row]): reason for row, reason in errors.errors.reasons.items()}
        return Rejected(
            run.batch.at[rows], run.batch.position[rows], tuple(reasons[row] for row in rows.tolist())
        )


@dataclass(frozen=True, slots=True)
class _Sample:
    """Which terms drop each sampled row, and what each term took for all of them."""

    dropped: Bools
    nanoseconds: tuple[int, ...]

    def patterns(self) -> dict[int, int]:
        """The numbers of rows by the set of terms that drop them, as bits, without those that none drops."""
        bits = self.dropped @ (1 << np.arange(self.dropped.shape[1]))
        sets, counts = np.unique(bits[bits > 0], return_counts=True)
        return dict(zip(sets.tolist(), counts.tolist(), strict=True))


class _Run:
    """A batch while its terms are evaluated: the rows that are left, and what is known of them."""

    def __init__(self, batch: Batch, terms: int) -> None:
        self.batch = batch
        self.rows: Ints = np.arange(batch.rows)
        self.holds: Bools = np.ones(batch.rows, bool)
        self.failures: Ints = np.zeros(batch.rows, np.int64)
        """By row, how many terms fail."""
        self.reasons: list[Mapping[int, str]] = []
        self.marks: dict[str, tuple[Ints, pa.Array]] = {}
        self._evaluated, self._dropped, self._nanoseconds = [0] * terms, [0] * terms, [0] * terms

    def take(self, index: int, outcome: _Outcome, *, whole: bool, nanoseconds: int) -> None:
        """Take in a term's outcome, on the whole batch or on the rows that are left."""
        rows = self.rows
        self._evaluated[index] = self.batch.rows if whole else len(rows)
        drops, holds = (outcome.drops[rows], outcome.holds[rows]) if whole else (outcome.drops, outcome.holds)
        self.holds[rows] &= holds
        if outcome.reasons:
            failed = np.fromiter(outcome.reasons, np.int64, len(outcome.reasons))
            of_batch = failed if whole else rows[failed]
            self.failures[of_batch] += 1
            self.reasons.append(dict(zip(of_batch.tolist(), outcome.reasons.values(), strict=True)))
        for name, mark in outcome.marks.items():
            self.marks[name] = (np.arange(self.batch.rows) if whole else rows, mark)
        self._dropped[index] = int(np.count_nonzero(drops))
        self._nanoseconds[index] = nanoseconds
        self.rows = rows[~drops]

    def is_left(self, rows: Ints) -> Bools:
        """Which of these rows no term has dropped."""
        return np.isin(rows, self.rows, assume_unique=True)

    def kept(self, terms: Terms) -> Batch:
        """The rows on which every term is true."""
        kept = self.rows[self.holds[self.rows]]
        names = [membership.name for term in terms.terms for membership in term.memberships]
        marks = {name: pa.nulls(0, pa.bool_()) for name in names}
        for name, (rows, mark) in self.marks.items() if len(kept) else ():
            marks[name] = mark if len(kept) == len(rows) else mark.take(pa.array(np.searchsorted(rows, kept)))
        batch = self.batch if len(kept) == self.batch.rows else self.batch.take(kept)
        return Batch({**batch.columns, **marks}, batch.at, batch.position) if marks else batch

    def observation(self, order: Order, sample: _Sample | None) -> FilterObservation:
        """What was observed, by term."""
        seen = FilterObservation(
            order,
            self.batch.rows,
            tuple(self._evaluated),
            tuple(self._dropped),
            tuple(self._nanoseconds),
        )
        if sample is None:
            return seen
        sampled = FilterObservation(
            order, 0, (), (), (), len(sample.dropped), sample.nanoseconds, sample.patterns()
        )
        return seen.plus(sampled)


def _sampled(batch: Batch, share: float) -> Ints:
    """Some rows of a batch, the same ones whenever it is read: by a hash of their positions."""
    together = min(batch.rows, LEAST_SAMPLE)
    if batch.rows * share < together:
        if _fractions(batch.position[:1])[0] * together >= batch.rows * share:
            return np.empty(0, np.int64)
        share = together / batch.rows
    return np.flatnonzero(_fractions(batch.position) < share)


def _fractions(positions: Ints) -> np.ndarray:
    """A number in [0, 1) by position."""
    mixed = (positions.astype(np.uint64) ^ (positions.astype(np.uint64) >> np.uint64(32))) * _MIX
    return (mixed >> np.uint64(11)).astype(np.float64) / float(1 << 53)
