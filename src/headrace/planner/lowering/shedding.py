"""Rewriting of the aggregates of a query WITH SHEDDING: estimates and errors as expressions over sums of weighted
rows, which panes aggregate like any others.

An estimate and its error are made of COUNT, SUM and AVG of the rows that are used, and of sums of their contributions
to the estimate and to its variance: `headrace.algebra.expressions.shedding_estimates` has the equations. The mean square
around the ratio of an AVG is the sum of three terms, sum u x^2 - 2 r sum u x + r^2 sum u with u = w (w - 1), so that its error
carries some 1e-8 of the values by rounding; it is exactly 0 where nothing was shed, since each sum is.
"""

from __future__ import annotations

from dataclasses import field, replace

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import (
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Literal,
    conjunction,
    transform,
)
from headrace.algebra.expressions.shedding_estimates import MORE, PARTS, SPREAD, WEIGHT, Z, weight_of
from headrace.dataclass import dataclass
from headrace.planner.lowering.query_shape import Shape
from headrace.schema import BIGINT, BOOLEAN, DOUBLE

_ZERO = Literal(0.0, DOUBLE)


def weighted(shape: Shape) -> Shape:
    """The query with sums over weighted rows, and with estimates and errors as expressions over them."""
    assert shape.aggregate is not None
    sums = _Sums(shape.scan.alias)
    estimates = {
        item.name: sums.estimate(item.call) for item in shape.aggregate.aggregates if item.call.part in PARTS
    }
    plain = tuple(item for item in shape.aggregate.aggregates if item.name not in estimates)

    def meant(node: Expression) -> Expression | None:
        return estimates.get(node.name) if isinstance(node, Column) else None

    columns = tuple(
        replace(column, expression=transform(column.expression, meant)) for column in shape.project.columns
    )
    top = shape.top
    if top is not None:
        order = (replace(key, expression=transform(key.expression, meant)) for key in top.order)
        top = replace(top, order=tuple(order))
    aggregate = replace(shape.aggregate, aggregates=(*plain, *sums.named))
    return replace(shape, aggregate=aggregate, project=replace(shape.project, columns=columns), top=top)


@dataclass(slots=True)
class _Sums:
    """The sums for the estimates of one query, each once."""

    alias: str
    named: list[NamedAggregate] = field(default_factory=list)

    def estimate(self, call: AggregateCall) -> Expression:
        """An estimate, its error, or the share of rows used, over sums."""
        if call.part == "kept":
            rows = Cast(self._of("count", None), DOUBLE)
            return _over(rows, _plus(rows, self._more(None, None)))
        if call.part == "estimate":
            return self._estimate(call)
        if call.function in ("min", "max"):
            return Case(((self._nothing_shed, _ZERO),), Literal(None, DOUBLE), DOUBLE)
        none = Call("=", (self._of("count", call.argument, call.condition), Literal(0, BIGINT)), BOOLEAN)
        unknown = (none, Literal(None, DOUBLE))
        return Case(((self._nothing_shed, _ZERO), unknown), self._error(call), DOUBLE)

    @property
    def _nothing_shed(self) -> Expression:
        """Whether every row of the group has weight 1."""
        return Call("=", (self._more(None, None), _ZERO), BOOLEAN)

    def _estimate(self, call: AggregateCall) -> Expression:
        if call.function == "count":
            return self._rows(call)
        total = self._sum(call, WEIGHT)
        if call.function == "avg":
            total = _over(total, self._rows(call))
        assert call.argument is not None
        if call.argument.type.is_fractional:
            return total  # the sum of doubles that it would be without weights
        exact = Cast(self._of(call.function, call.argument, call.condition), DOUBLE)
        return Case(((self._nothing_shed, exact),), total, DOUBLE)

    def _error(self, call: AggregateCall) -> Expression:
        """Half the width of a 95 % interval."""
        spread = self._added(SPREAD, call.argument, call.condition)
        if call.function == "count":
            return _times(Literal(Z, DOUBLE), _root(spread))
        squares = self._sum(call, SPREAD, times=2)
        if call.function == "sum":
            return _times(Literal(Z, DOUBLE), _root(squares))
        ratio, rows = _over(self._sum(call, WEIGHT), self._rows(call)), self._rows(call)
        around = _plus(
            _minus(squares, _times(_times(Literal(2.0, DOUBLE), ratio), self._sum(call, SPREAD))),
            _times(_times(ratio, ratio), spread),
        )
        around = Call("greatest", (_ZERO, around), DOUBLE)
        return _over(_times(Literal(Z, DOUBLE), _root(around)), rows)

    def _rows(self, call: AggregateCall) -> Expression:
        """The number of rows that the values of an aggregate represent."""
        counted = Cast(self._of("count", call.argument, call.condition), DOUBLE)
        return _plus(counted, self._more(call.argument, call.condition))

    def _more(self, argument: Expression | None, condition: Expression | None) -> Expression:
        return self._added(MORE, argument, condition)

    def _added(self, part: str, argument: Expression | None, condition: Expression | None) -> Expression:
        """The sum of a part of the weights of the rows that count; 0 without rows."""
        if argument is not None:
            present = Call("isnotnull", (argument,), BOOLEAN)
            condition = present if condition is None else conjunction((condition, present))
        return Call("coalesce", (self._of("sum", weight_of(self.alias, part), condition), _ZERO), DOUBLE)

    def _sum(self, call: AggregateCall, part: str, times: int = 1) -> Expression:
        """The sum of the values of an aggregate, or of their squares, times a part of their weights."""
        assert call.argument is not None
        value: Expression = Cast(call.argument, DOUBLE)
        values = value if times == 1 else _times(value, value)
        return self._of("sum", _times(values, weight_of(self.alias, part)), call.condition)

    def _of(
        self, function: str, argument: Expression | None, condition: Expression | None = None
    ) -> Expression:
        kind = BIGINT if argument is None else result_type(function, argument.type)
        call = AggregateCall(function, argument, kind, condition=condition)
        for item in self.named:
            if item.call == call:
                return Column(item.name, kind)
        self.named.append(NamedAggregate(f"sum{len(self.named)}", call))
        return Column(self.named[-1].name, kind)


def _plus(left: Expression, right: Expression) -> Expression:
    return Call("+", (left, right), DOUBLE)


def _minus(left: Expression, right: Expression) -> Expression:
    return Call("-", (left, right), DOUBLE)


def _times(left: Expression, right: Expression) -> Expression:
    return Call("*", (left, right), DOUBLE)


def _over(left: Expression, right: Expression) -> Expression:
    """The quotient; NULL for a divisor of 0."""
    return Call("/", (left, Call("nullif", (right, _ZERO), DOUBLE)), DOUBLE)


def _root(of: Expression) -> Expression:
    return Call("sqrt", (of,), DOUBLE)
