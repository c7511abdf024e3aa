"""Terms of a question: the totals from which its aggregates are computed, what each row contributes to them, and the estimates of
the select list from the totals.

COUNT is one total and SUM another; AVG is the ratio of the two. SUM and AVG are NULL where no value was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Expression, columns_of
from headrace.archive.estimates import Doubles, Estimates, Totals, Z, most_missed, reach
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.rows.row_pipeline import RowPipeline
from headrace.runtime.invoke.questions.clauses import Question
from headrace.runtime.invoke.questions.expansion import Expanded, expand, ratio

_LEAST_UNITS: Final = 2
"""Rows, or keys, from which on values show how they vary."""


@dataclass(frozen=True, slots=True)
class Term:
    """The total of 1 or, with `valued`, of the argument, over the rows with an argument for which the condition holds.

    With `once` a key counts 1 however many of its rows do.
    """

    argument: Expression | None
    condition: Expression | None
    valued: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of some aggregates, each once; `rows[i]` is the count of the rows that contribute to term i."""

    items: tuple[Term, ...]

    @staticmethod
    def of(aggregates: Sequence[NamedAggregate]) -> Terms:
        """The terms of all aggregates but percentiles."""
        terms: dict[Term, None] = {}
        for item in aggregates:
            terms |= dict.fromkeys(_terms_of(item.call))
        return Terms(tuple(terms))

    def index(self, term: Term) -> int:
        """The number of a term."""
        return self.items.index(term)

    def contributions(self, pipeline: RowPipeline, batch: Batch, also: Sequence[Expression]) -> Contributed:
        """What each row contributes to each term, and the values of other expressions; without the rows that fail."""
        expressions = list(also)
        for term in self.items:
            expressions += [part for part in (term.argument, term.condition) if part is not None]
        batch, values = pipeline.evaluate(batch, expressions)
        known = dict(zip(expressions, values, strict=True))
        columns = [_contribution(term, known, batch.rows) for term in self.items]
        return Contributed(batch, values[: len(also)], columns)

    def estimates(self, question: Question, totals: Totals, share: float) -> dict[str, Estimates]:
        """The estimate of each column of the select list that is arithmetic over totals; `share` is the least that was read.

        The error of a count is at least what a sample without any row of it may have missed. That of other columns is infinite
        where the units that were read do not show how values vary.
        """
        size = len(self.items)
        known = np.ones(len(totals.value), np.bool_)
        totals_of = [
            Expanded(
                totals.value[:, number], np.broadcast_to(np.eye(size)[number], totals.value.shape), known
            )
            for number in range(size)
        ]
        columns: dict[str, Expanded] = {}
        for item in question.aggregates:
            if item.call.function == "percentile":
                continue
            parts = [totals_of[self.index(term)] for term in _terms_of(item.call)]
            columns[item.name] = _aggregate(item.call, parts)
        estimates = {}
        for column in question.columns:
            if columns_of(column.expression) <= columns.keys():
                expanded = expand(column.expression, columns)
                error = self._error(question, column.expression, expanded, totals, share)
                estimates[column.name] = Estimates(expanded.value, error, expanded.known)
        return estimates

    def _error(
        self, question: Question, expression: Expression, of: Expanded, totals: Totals, share: float
    ) -> Doubles:
        """The error, also where the sample shows none: what is read later makes no number of what is none, nor a value of NULL."""
        calls = [item.call for item in question.aggregates if item.name in columns_of(expression)]
        units = totals.units_of([self.index(_terms_of(call)[-1]) for call in calls])
        deviation = totals.deviation(np.where(of.known[:, None], of.gradient, 0.0))
        is_count = isinstance(expression, Column) and calls[0].function == "count"
        if is_count and (calls[0].distinct or not question.by_key):  # of units that are drawn
            return np.where(deviation == 0, most_missed(share), Z * deviation)
        with np.errstate(invalid="ignore"):
            error = np.where(units < _LEAST_UNITS, np.inf, reach(units) * deviation)
        return np.where(of.known & np.isnan(of.value) & (units > 0), 0.0, error)


@dataclass(frozen=True, slots=True)
class Contributed:
    """Rows with the values of some expressions, and one array for each term."""

    batch: Batch
    values: list[pa.Array]
    terms: list[Doubles]


def _terms_of(call: AggregateCall) -> tuple[Term, ...]:
    if call.function == "percentile":
        return ()
    count = Term(call.argument, call.condition, once=call.distinct)
    if call.function == "count":
        return (count,)
    return Term(call.argument, call.condition, valued=True), count


def _aggregate(call: AggregateCall, parts: Sequence[Expanded]) -> Expanded:
    if call.function == "count":
        return parts[0]
    total, count = parts
    if call.function == "avg":
        return ratio(total, count)
    return Expanded(total.value, total.gradient, count.value != 0)


def _contribution(term: Term, known: Mapping[Expression, pa.Array], rows: int) -> Doubles:
    counts = np.ones(rows, np.bool_)
    if term.condition is not None:
        counts = known[term.condition].fill_null(False).to_numpy(zero_copy_only=False)
    if term.argument is not None:
        counts = counts & known[term.argument].is_valid().to_numpy(zero_copy_only=False)
    if not term.valued:
        return counts.astype(np.float64)
    assert term.argument is not None
    numbers = doubles(known[term.argument])
    return numbers if counts.all() else np.where(counts, numbers, 0.0)


def doubles(column: pa.Array) -> Doubles:
    """Numbers as doubles; NULL as 0."""
    numbers: Doubles = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
    return numbers


def percentiles_of(question: Question) -> list[tuple[str, AggregateCall]]:
    """The columns of the select list that are percentiles."""
    calls = {item.name: item.call for item in question.aggregates if item.call.function == "percentile"}
    return [
        (column.name, calls[column.expression.name])
        for column in question.columns
        if isinstance(column.expression, Column) and column.expression.name in calls
    ]
