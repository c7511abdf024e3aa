"""From a bound query to the operator that answers it.

Names change here: a stream's column `alias.column` becomes `column`, so that equal expressions of different queries are
equal values; columns of joined relations keep `alias.column`.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.algebra.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions import (
    Call,
    Cast,
    Column,
    Expression,
    Named,
    columns_of,
    conjuncts,
    transform,
)
from headrace.algebra.query import Join, Mark, Query, RelationScan, SortKey, StreamScan
from headrace.algebra.window_classes import Context, context_of
from headrace.algebra.windows import Custom, Landmark, TimeSlide, slides
from headrace.errors import UnsupportedQuery
from headrace.operators.family import in_family
from headrace.operators.finish import Finish
from headrace.operators.grouped import Grouped
from headrace.operators.grouping import slot_of_name
from headrace.operators.instant_aggregate import InstantAggregate
from headrace.operators.membership import Membership
from headrace.operators.operator import Operator
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.panes import Panes
from headrace.operators.passing import Passing
from headrace.operators.row_steps import Keep, LookUp, RowStep, relations_of
from headrace.planner.every_instant import speaking_always
from headrace.planner.lower_approximate import (
    approximate_instants,
    approximate_windows,
    at_every_instant,
    counting_exactly,
    exactly,
    from_synopses,
    has_approximate,
    in_panes,
    with_bounds,
)
from headrace.planner.lower_correlated import check, has_correlated, regrouping
from headrace.planner.lower_rows import Lowering, lower_rows, tells_changes, with_changes
from headrace.planner.lower_shedding import weighted
from headrace.planner.shape import Shape, shape_of
from headrace.schema import BIGINT, BOOLEAN, DOUBLE


def lower(name: str, query: Query, operator_id: str) -> Operator:
    """The operator for a query registered under `name`; `operator_id` names its state.

    Raises `UnsupportedQuery` with the reason for what no operator answers yet.
    """
    shape = speaking_always(shape_of(query))
    if query.shedding:
        return replace(_pane_aggregate(name, query, weighted(shape), operator_id), sheds=True)
    if from_synopses(query, shape):
        counting = _pane_aggregate(name, query, counting_exactly(shape), operator_id)
        return approximate_windows(counting, _grouped(shape, _Rename(shape)).aggregates)
    if at_every_instant(query, shape):
        answering = lower_rows(lowering_of(name, query, with_bounds(shape), operator_id))
        assert isinstance(answering, InstantAggregate)
        return approximate_instants(answering, _grouped(shape, _Rename(shape)).aggregates)
    known_at_once = slides(shape.window) and context_of(shape.window) is Context.FREE
    has_panes = known_at_once and not isinstance(shape.window, Custom)
    aggregates_panes = has_panes and shape.aggregate is not None and shape.bounds is None
    of_rows = not isinstance(shape.scan, StreamScan) or shape.scan.channel == "rows"
    if has_approximate(shape):
        shape = in_panes(shape) if aggregates_panes and of_rows else exactly(shape)
    is_correlated = shape.aggregate is not None and has_correlated(shape)
    if aggregates_panes and of_rows and not is_correlated and not tells_changes(query, shape):
        return _pane_aggregate(name, query, shape, operator_id)  # nearly all of a thousand alerts
    lowering = lowering_of(name, query, shape, operator_id)
    if lowering.grouped is not None and is_correlated:
        check(query, shape)
        finish = regrouping(lowering.finish, lowering.grouped, shape.window_alias)
        alone = replace(lowering, finish=finish, grouped=None, shape=replace(shape, aggregate=None))
        return lower_rows(alone)
    if not of_rows and not isinstance(lower_rows(lowering), Passing):
        assert isinstance(shape.scan, StreamScan)
        raise UnsupportedQuery(
            f"{shape.scan.channel.upper()} rows come after their time: no window holds them",
            remedy="Select them without a window and without aggregates.",
        )
    if aggregates_panes:
        return with_changes(lowering, _pane_aggregate(name, query, shape, operator_id))
    return lower_rows(lowering)


def lowering_of(name: str, query: Query, shape: Shape, operator_id: str) -> Lowering:
    """A query's clauses by the names that operators know."""
    rename = _Rename(shape)
    steps = row_steps(shape, apart=True)
    below = 1 if shape.before else 0
    return Lowering(
        name=name,
        query=query,
        shape=shape,
        id=operator_id,
        below=steps[:below],
        above=steps[below:],
        finish=finish_of(shape),
        grouped=_grouped(shape, rename) if shape.aggregate is not None else None,
        prefix=f"{shape.scan.alias}.",
    )


def _grouped(shape: Shape, rename: _Rename) -> Grouped:
    assert shape.aggregate is not None
    keys = tuple(Named(key.name, rename(key.expression)) for key in shape.aggregate.keys)
    return Grouped(
        keys, tuple(NamedAggregate(item.name, rename.call(item.call)) for item in shape.aggregate.aggregates)
    )


def _pane_aggregate(name: str, query: Query, shape: Shape, operator_id: str) -> PaneAggregate:
    assert shape.aggregate is not None
    assert isinstance(shape.window, TimeSlide | Landmark)
    grouped = _grouped(shape, _Rename(shape))
    finish = finish_of(shape)
    changes = shape.emit is not None and shape.emit.kind != "rstream"
    single = finish.needs_whole_window or not grouped.keys or changes or query.revisions is not None
    steps = row_steps(shape, apart=query.emit_empty)
    aggregate = PaneAggregate(
        id=operator_id,
        query=name,
        stream=shape.scan.name,
        panes=Panes.of(shape.window),
        range=shape.window.range if isinstance(shape.window, TimeSlide) else None,
        window_alias=shape.window_alias,
        keys=grouped.keys,
        aggregates=grouped.aggregates,
        finish=finish,
        steps=steps,
        below=1 if shape.before and query.emit_empty else 0,
        single_slot=slot_of_name(operator_id) if single else None,
        emit_empty=query.emit_empty,
        revisions=query.revisions,
        relations=relations_of(steps),
    )
    return in_family(aggregate)


def finish_of(shape: Shape) -> Finish:
    """What stands above the aggregation, with the expressions that order the output: ORDER BY, then group keys."""
    order = shape.top.order if shape.top is not None else ()
    keys = shape.aggregate.keys if shape.aggregate is not None else ()
    plain = {column.expression for column in shape.project.columns}
    by_group = tuple(SortKey(Column(key.name, key.expression.type)) for key in keys)
    return Finish(
        columns=shape.project.columns,
        having=shape.having,
        order=order,
        limit=shape.top.limit if shape.top is not None else None,
        distinct=shape.distinct,
        sort=() if shape.distinct and not plain else (*order, *by_group),
    )


def row_steps(shape: Shape, *, apart: bool = False) -> tuple[RowStep, ...]:
    """Filters and look-ups before any state, cheapest first: stream-only conditions before the joins.

    A condition on stream columns commutes with the joins (for LEFT too, since stream rows are the kept side). With
    `apart` the conditions below the window, where there are any, are the first step alone.
    """
    rename = _Rename(shape)
    where, late = list(shape.where), list[Expression]()
    if shape.joins or shape.marks:
        where = [factor for factor in shape.where if rename.is_stream_only(factor)]
        late = [factor for factor in shape.where if not rename.is_stream_only(factor)]
    groups = [[*shape.before], where] if apart else [[*shape.before, *where]]
    steps: list[RowStep] = [Keep(together([rename(factor) for factor in early])) for early in groups if early]
    steps += [_look_up(join, rename) for join in shape.joins]
    steps += [_membership(mark, rename) for mark in shape.marks]
    if late:
        steps.append(Keep(together([rename(factor) for factor in late])))
    return tuple(steps)


def together(factors: list[Expression]) -> Expression:
    """The conjunction of factors."""
    return factors[0] if len(factors) == 1 else Call("and", tuple(factors), BOOLEAN)


class _Rename:
    """Rewrites columns of the stream to their plain names."""

    def __init__(self, shape: Shape) -> None:
        self._prefix = f"{shape.scan.alias}."

    def __call__(self, expression: Expression) -> Expression:
        return transform(expression, self._column)

    def _column(self, node: Expression) -> Expression | None:
        if isinstance(node, Column) and node.name.startswith(self._prefix):
            return Column(node.name.removeprefix(self._prefix), node.type)
        return None

    def is_stream_only(self, expression: Expression) -> bool:
        return all(name.startswith(self._prefix) for name in columns_of(expression))

    def call(self, call: AggregateCall) -> AggregateCall:
        argument = self(call.argument) if call.argument is not None else None
        condition = self(call.condition) if call.condition is not None else None
        weight = self(call.weight) if call.weight is not None else None
        return replace(call, argument=argument, condition=condition, weight=weight)


def _look_up(join: Join, rename: _Rename) -> LookUp:
    relation = join.right
    assert isinstance(relation, RelationScan)
    inside = f"{relation.alias}."
    left_keys, right_keys, residual = [], [], []
    for factor in conjuncts(join.condition) if join.condition is not None else ():
        pair = _equi_pair(factor, inside)
        if pair is None:
            residual.append(rename(factor))
        else:
            left_keys.append(rename(pair[0]))
            right_keys.append(_strip(pair[1], inside))
    return LookUp(
        relation=relation.name,
        alias=relation.alias,
        schema=relation.table,
        left_keys=tuple(left_keys),
        right_keys=tuple(right_keys),
        residual=together(residual) if residual else None,
        keep_unmatched=join.kind == "left",
    )


def _never_fails(key: Expression) -> bool:
    """True for a column, also as a wider number: a key that fails would hide its row, where a test tells."""
    if isinstance(key, Cast):
        return _never_fails(key.argument) and key.argument.type.is_integer and key.type in (BIGINT, DOUBLE)
    return isinstance(key, Column)


def _membership(mark: Mark, rename: _Rename) -> Membership:
    inside = f"{mark.right.alias}."
    left_keys, right_keys, own, residual = [], [], [], []
    for factor in conjuncts(mark.condition) if mark.condition is not None else ():
        pair = _equi_pair(factor, inside)
        if pair is not None and _never_fails(pair[1]):
            left_keys.append(rename(pair[0]))
            right_keys.append(_strip(pair[1], inside))
        elif all(name.startswith(inside) for name in columns_of(factor)):
            own.append(_strip(factor, inside))
        else:
            residual.append(rename(factor))
    value, member = mark.test.arguments if mark.test is not None else (None, None)
    return Membership(
        name=mark.name,
        relation=mark.right.name,
        alias=mark.right.alias,
        left_keys=tuple(left_keys),
        right_keys=tuple(right_keys),
        own=together(own) if own else None,
        residual=together(residual) if residual else None,
        value=None if value is None else rename(value),
        member=None if member is None else _strip(member, inside),
    )


def _equi_pair(factor: Expression, inside: str) -> tuple[Expression, Expression] | None:
    """(outer side, relation side) of an equality that a hash index can answer."""
    if not (isinstance(factor, Call) and factor.function == "="):
        return None
    one, other = factor.arguments
    for left, right in ((one, other), (other, one)):
        is_inner = columns_of(right) and all(name.startswith(inside) for name in columns_of(right))
        if is_inner and not any(name.startswith(inside) for name in columns_of(left)):
            return left, right
    return None


def _strip(expression: Expression, prefix: str) -> Expression:
    return transform(
        expression,
        lambda node: Column(node.name.removeprefix(prefix), node.type) if isinstance(node, Column) else None,
    )
