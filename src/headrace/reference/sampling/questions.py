"""Answers of questions over the archive (`WITHIN`, `IN`) by their equations, unit by unit: the estimates of the select list and
their errors, from the rows that were read, or from the keys.

Sums are exact and rounded once, but of values that are no numbers. The derivative of a column by a total is a quotient of differences
of exact fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Call, Cast, Column, Expression, Literal, walk
from headrace.algebra.expressions.shedding_estimates import Z
from headrace.algebra.query import Aggregate, Project, Query
from headrace.dataclass import dataclass
from headrace.reference.history import History, RecordedStream, StreamRow
from headrace.reference.relational import Moment, Rejects
from headrace.reference.relations import Relation
from headrace.reference.scalar import evaluate, holds
from headrace.reference.statistical_aggregates import nearest
from headrace.reference.values import Row, identity, sort_key
from headrace.time import BEGINNING


class Design(Protocol):
    """The units that were drawn, with at least the probability `share`, and what they represent."""

    @property
    def share(self) -> Fraction:
        """The least probability."""

    def contributing(self, of_unit: Sequence[Fraction]) -> float:
        """How many of the units that represent others contribute; infinite where none represents others."""

    def units(self, query: Query, history: History) -> list[list[Row]]:
        """The rows, below the aggregates, of each unit."""

    def total(self, of_unit: Sequence[Fraction]) -> Fraction:
        """The estimate of a total."""

    def variance(self, of_unit: Sequence[Fraction]) -> Fraction:
        """Its variance."""


@dataclass(frozen=True, slots=True)
class SampleOfRows:
    """Strata of rows, by ascending share: N of each, and the positions of those that were read."""

    strata: Sequence[tuple[int, Sequence[int]]]
    share: Fraction

    def contributing(self, of_unit: Sequence[Fraction]) -> float:
        """Those of strata that were read in part."""
        parts = [values for size, values in self._by(of_unit) if size > len(values)]
        return sum(1 for values in parts for value in values if value) if parts else math.inf

    def units(self, query: Query, history: History) -> list[list[Row]]:
        """A unit is a row."""
        (name,) = history.streams
        places = [position for _, read in self.strata for position in read]
        return [_inputs(query, history, {name: _is_at(position)}) for position in places]

    def total(self, of_unit: Sequence[Fraction]) -> Fraction:
        """Each row represents N / n."""
        return sum(
            (Fraction(size, len(values)) * sum(values) for size, values in self._by(of_unit)), Fraction(0)
        )

    def variance(self, of_unit: Sequence[Fraction]) -> Fraction:
        """Of simple random samples without replacement; a row that is the only one of its stratum varies as all rows do."""
        variance = Fraction(0)
        for size, values in self._by(of_unit):
            read = len(values)
            variance += Fraction(size * (size - read), read) * _variance(of_unit if read == 1 else values)
        return variance

    def _by(self, of_unit: Sequence[Fraction]) -> list[tuple[int, Sequence[Fraction]]]:
        """The strata with the contributions of their rows; one of which no row was read is counted with the next that has some."""
        strata: list[tuple[int, Sequence[Fraction]]] = []
        left, unread = list(of_unit), 0
        for size, read in self.strata:
            unread += size
            if read:
                strata.append((unread, left[: len(read)]))
                left, unread = left[len(read) :], 0
        if unread and strata:
            strata[-1] = (strata[-1][0] + unread, strata[-1][1])
        return strata


def _variance(values: Sequence[Fraction]) -> Fraction:
    """The sample variance; 0 of one value."""
    mean = sum(values, Fraction(0)) / len(values)
    return sum(((value - mean) ** 2 for value in values), Fraction(0)) / max(len(values) - 1, 1)


@dataclass(frozen=True, slots=True)
class SampleOfKeys:
    """Keys that were drawn with a probability; `columns` has the column of each stream that has them."""

    columns: Mapping[str, str]
    share: Fraction
    keys: Sequence[Any]

    def contributing(self, of_unit: Sequence[Fraction]) -> float:
        """Every key, unless all were drawn."""
        return sum(1 for value in of_unit if value) if self.share < 1 else math.inf

    def units(self, query: Query, history: History) -> list[list[Row]]:
        """A unit is a key: the query is evaluated for each by itself."""
        return [
            _inputs(query, history, {stream: _has(column, key) for stream, column in self.columns.items()})
            for key in self.keys
        ]

    def total(self, of_unit: Sequence[Fraction]) -> Fraction:
        """Each key represents 1 / share."""
        return sum(of_unit, Fraction(0)) / self.share

    def variance(self, of_unit: Sequence[Fraction]) -> Fraction:
        """Of keys that are drawn independently."""
        return sum((value**2 for value in of_unit), Fraction(0)) * (1 - self.share) / self.share**2


def question(query: Query, history: History, design: Design) -> list[Row]:
    """The rows of the answer, without the share that was read, in the order of their groups."""
    project = query.root
    assert isinstance(project, Project)
    aggregate = project.source
    assert isinstance(aggregate, Aggregate)
    units = design.units(query, history)
    groups: dict[Hashable, tuple[list[Any], list[list[Row]]]] = {}
    for number, rows in enumerate(units):
        for row in rows:
            keys = [evaluate(key.expression, row) for key in aggregate.keys]
            _, of_units = groups.setdefault(tuple(map(identity, keys)), (keys, [[] for _ in units]))
            of_units[number].append(row)
    if not aggregate.keys and not groups:
        groups[()] = ([], [[] for _ in units])
    ordered = sorted(groups.values(), key=lambda group: tuple(map(sort_key, group[0])))
    return [_row(project, aggregate, keys, of_units, design) for keys, of_units in ordered]


def _is_at(position: int) -> Callable[[StreamRow], bool]:
    return lambda row: row.position == position


def _has(column: str, key: Any) -> Callable[[StreamRow], bool]:
    return lambda row: identity(row.values[column]) == identity(key)


def _row(
    project: Project, aggregate: Aggregate, keys: list[Any], of_units: list[list[Row]], design: Design
) -> Row:
    """One group: each column that is estimated is followed by its error."""
    known = {key.name: value for key, value in zip(aggregate.keys, keys, strict=True)}
    calls = {item.name: item.call for item in aggregate.aggregates}
    terms = {
        (name, part): [_contribution(call, rows, part) for rows in of_units]
        for name, call in calls.items()
        for part in ("count", "sum")
    }
    totals = {term: design.total(values) for term, values in terms.items()}
    row: Row = {}
    for column in project.columns:
        if isinstance(column.expression, Column) and column.expression.name in known:
            row[column.name] = known[column.expression.name]
            continue
        value = _value(column.expression, calls, totals)
        row[column.name] = None if value is None else nearest(value)
        names = {node.name for node in walk(column.expression) if isinstance(node, Column)}
        slopes = {term: _slope(column.expression, calls, totals, term) for term in terms if term[0] in names}
        linear = [
            sum((slopes[term] * terms[term][number] for term in slopes if slopes[term]), Fraction(0))
            for number in range(len(of_units))
        ]
        row[f"{column.name}_error"] = _error(column.expression, calls, terms, design, value, linear)
    return row


def _error(
    expression: Expression,
    calls: Mapping[str, AggregateCall],
    terms: Mapping[tuple[str, str], Sequence[Fraction]],
    design: Design,
    value: Fraction | None,
    linear: Sequence[Fraction],
) -> float | None:
    """Half an interval, also where the units that were drawn show no variance: a count may have missed as many units as are missed
    with 5 %, and of values it takes two units to show how they vary.
    """
    names = {node.name for node in walk(expression) if isinstance(node, Column)}
    units = min(design.contributing(terms[name, "count"]) for name in names)
    if isinstance(expression, Column) and (call := calls[expression.name]).function == "count":
        of_units = call.distinct or isinstance(design, SampleOfRows)
        variance = design.variance(linear)
        if of_units and design.share < 1 and not variance:
            return float(math.floor(math.log(0.05) / math.log1p(-float(design.share))))
        if of_units:
            return Z * math.sqrt(nearest(variance))
    if value is not None and units > 0 and math.isnan(value):
        return 0.0  # whatever the other units have
    if units < 2:
        return math.inf
    if value is None or math.isinf(units):
        return None if value is None else 0.0
    return math.inf if math.isinf(value) else _reach(int(units)) * math.sqrt(nearest(design.variance(linear)))


_STUDENT = [12.70620, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216, 2.22814]


def _reach(units: int) -> float:
    """Half of a 95 % interval in standard deviations: Student's quantile, as printed or by its series, for as many deviations from a mean."""
    free = units - 1
    series = Z + (Z**3 + Z) / (4 * free) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * free**2)
    series += (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / (384 * free**3)
    return (_STUDENT[free - 1] if free <= 10 else series) * math.sqrt(units / free)


def _contribution(call: AggregateCall, rows: Sequence[Row], part: str) -> Fraction:
    """What a unit contributes: how many values it has, or their sum."""
    passing = [row for row in rows if call.condition is None or holds(call.condition, row)]
    values = [1 if call.argument is None else evaluate(call.argument, row) for row in passing]
    present = [value for value in values if value is not None]
    if part == "count":
        return Fraction(len({identity(value) for value in present}) if call.distinct else len(present))
    return sum((_exact(value) for value in present), Fraction(0)) if call.function != "count" else Fraction(0)


def _exact(value: Any) -> Any:
    """A number as a fraction; NaN and infinities as they are, so that sums with them are doubles."""
    return value if isinstance(value, float) and not math.isfinite(value) else Fraction(value)


_Totals = Mapping[tuple[str, str], Fraction]


def _value(expression: Expression, calls: Mapping[str, AggregateCall], totals: _Totals) -> Fraction | None:
    """Arithmetic over totals; None for NULL, and where a divisor is 0."""
    match expression:
        case Column(name=name):
            count, total = totals[name, "count"], totals[name, "sum"]
            if calls[name].function == "count":
                return count
            return None if count == 0 else total / (count if calls[name].function == "avg" else 1)
        case Literal(value=value):
            return Fraction(str(value))
        case Cast(argument=argument):
            return _value(argument, calls, totals)
        case Call(function=function, arguments=arguments):
            values = [_value(argument, calls, totals) for argument in arguments]
            known = [value for value in values if value is not None]
            if len(known) < len(values) or (function == "/" and known[1] == 0):
                return None
            return _OF[function](*known)
    raise NotImplementedError(f"no arithmetic: {expression}")


_OF: Mapping[str, Callable[..., Fraction]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": lambda one, other: one / other,
    "negate": lambda one: -one,
}


def _slope(
    expression: Expression, calls: Mapping[str, AggregateCall], totals: _Totals, term: tuple[str, str]
) -> Fraction:
    """The derivative by one total."""
    step = max(abs(totals[term]), Fraction(1)) / 10**9
    above, below = (
        _value(expression, calls, {**totals, term: totals[term] + shift}) for shift in (step, -step)
    )
    return Fraction(0) if above is None or below is None else (above - below) / (2 * step)


def _inputs(query: Query, history: History, chosen: Mapping[str, Callable[[StreamRow], bool]]) -> list[Row]:
    """The rows below the aggregates at NOW, of a history with the chosen rows of some streams alone."""
    project = query.root
    assert isinstance(project, Project)
    assert isinstance(project.source, Aggregate)
    streams: dict[Any, RecordedStream] = {
        name: replace(
            stream, rows=tuple(row for row in stream.rows if name not in chosen or chosen[name](row))
        )
        for name, stream in history.streams.items()
    }
    now = history.now(query)
    moment = Moment(replace(history, streams=streams), BEGINNING, Rejects())
    relation = Relation.of(replace(query, root=project.source.source), moment)
    return [] if now is None else relation.at(now)
