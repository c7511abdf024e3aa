"""Answers of queries WITH SHEDDING by their equations, term by term: estimates over weighted rows, their errors, and
the share of rows that was used.

Sums are exact and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.shedding_estimates import Z
from headrace.reference.statistical_aggregates import nearest


class Weighed(NamedTuple):
    """The value of a row of a group, None for NULL, and the number of rows that it represents, itself included."""

    value: Any
    weight: float


_Terms: TypeAlias = Sequence[tuple[Fraction, Fraction]]


def of_weighted(call: AggregateCall, rows: Sequence[Weighed]) -> float | None:
    """An estimate, its error, or the share of the rows that was used; `rows` are those of the group that were."""
    if call.part == "kept":
        return nearest(Fraction(len(rows)) / sum(Fraction(row.weight) for row in rows)) if rows else None
    if call.part == "error":
        if all(row.weight == 1 for row in rows):
            return 0.0
        if call.function in ("min", "max"):
            return None
    present = [row for row in rows if row.value is not None]
    if not present:
        return 0.0 if (call.function, call.part) == ("count", "estimate") else None
    values = [1 if call.function == "count" else row.value for row in present]
    if not all(map(math.isfinite, values)):
        return _not_finite(call, values)
    terms = [(Fraction(value), Fraction(row.weight)) for value, row in zip(values, present, strict=True)]
    return _estimate(call, terms) if call.part == "estimate" else _error(call, terms)


def _estimate(call: AggregateCall, terms: _Terms) -> float:
    return nearest(_total(terms) / _rows(terms) if call.function == "avg" else _total(terms))


def _error(call: AggregateCall, terms: _Terms) -> float:
    centre, scale = (_total(terms) / _rows(terms), _rows(terms)) if call.function == "avg" else (0, 1)
    variance = sum((w * (w - 1) * (value - centre) ** 2 for value, w in terms), Fraction(0))
    return Z * math.sqrt(nearest(variance)) / float(scale)


def _total(terms: _Terms) -> Fraction:
    return sum((weight * value for value, weight in terms), Fraction(0))


def _rows(terms: _Terms) -> Fraction:
    return sum((weight for _, weight in terms), Fraction(0))


def _not_finite(call: AggregateCall, values: Sequence[Any]) -> float:
    """The result by IEEE 754: an estimate has infinities of one sign; its error is not a number."""
    special = {float(value) for value in values if not math.isfinite(value)}
    return math.nan if call.part == "error" or len(special) > 1 else special.pop()
