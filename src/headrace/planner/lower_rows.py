"""From a bound query to the operators that keep rows: windows without aggregates, windows of rows, instants, streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.algebra.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions import Column, Expression, Named, columns_of, transform
from headrace.algebra.query import Ago, Bounds, Query, SortKey
from headrace.algebra.windows import (
    Changing,
    Custom,
    Delta,
    Landmark,
    Lasting,
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
    counts_rows,
    slides,
)
from headrace.errors import UnsupportedQuery
from headrace.operators.changes import Telling
from headrace.operators.changing_rows import ChangingRows
from headrace.operators.finish import Finish
from headrace.operators.grouped import Grouped
from headrace.operators.grouping import slot_of_name
from headrace.operators.instant_aggregate import InstantAggregate
from headrace.operators.instants import InstantRows, Validity
from headrace.operators.operator import Operator
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.panes import Panes
from headrace.operators.passing import Passing
from headrace.operators.regrouping import Regroup
from headrace.operators.revising import Revising
from headrace.operators.revising_sessions import RevisingSessions
from headrace.operators.row_steps import RowStep, relations_of
from headrace.operators.row_store import Bounded, RowLayout
from headrace.operators.window_changes import WindowChanges
from headrace.operators.window_rows import WindowRows
from headrace.planner.lower_counted import frame_windows, row_slides, tuple_slides, user_windows
from headrace.planner.shape import Shape


@dataclass(frozen=True, slots=True)
class Lowering:
    """What all of these need: the query, its shape, its steps below and above the window, and the renaming of columns."""

    name: str
    query: Query
    shape: Shape
    id: str
    below: tuple[RowStep, ...]
    above: tuple[RowStep, ...]
    finish: Finish
    grouped: Grouped | None
    prefix: str

    @property
    def slot(self) -> int:
        """Where rows meet that must meet."""
        return slot_of_name(self.id)

    @property
    def relations(self) -> tuple[str, ...]:
        """Relations that the steps look up."""
        return relations_of((*self.below, *self.above))

    @property
    def telling(self) -> Telling:
        """How changes are told."""
        if self.shape.emit is not None:
            return self.shape.emit.kind
        return "istream" if self.query.emission == "stream" else "changes"

    @property
    def partition(self) -> tuple[Expression, ...]:
        """The window's partition."""
        window = self.shape.window
        if isinstance(window, Delta):
            return (*map(self.rename, window.partition), self.rename(window.on))
        if isinstance(window, Lasting):
            return (self.rename(window.until),)
        if isinstance(window, Changing):
            return (self.rename(window.change),)
        if not isinstance(window, Rows | RowsSlide | TupleSlide | Session):
            return ()
        return tuple(map(self.rename, window.partition))

    @property
    def _change(self) -> str | None:
        """The column that says whether a row comes or goes."""
        window = self.shape.window
        change = self.rename(window.change) if isinstance(window, Changing) else None
        return change.name if isinstance(change, Column) else None

    def rename(self, expression: Expression) -> Expression:
        """Stream columns by their plain names; the window's bounds keep theirs."""
        return transform(expression, self._column)

    def _column(self, node: Expression) -> Expression | None:
        if isinstance(node, Column) and node.name.startswith(self.prefix) and not self._is_bound(node.name):
            return Column(node.name.removeprefix(self.prefix), node.type)
        return None

    def _is_bound(self, name: str) -> bool:
        bounds = (f"{self.shape.window_alias}.window_{part}" for part in ("start", "end", "id"))
        return slides(self.shape.window) and name in bounds

    def stored(self) -> tuple[tuple[Expression, ...], Finish]:
        """What is kept of each row, and what is left to do over it: expressions of the row alone are values by then."""
        plan = self.finish
        if plan.regroup is not None:
            return self._regrouped(plan, plan.regroup)
        keys = [key.expression for key in (*plan.order, *plan.sort)]
        wanted = [self.rename(expression) for expression in (*(c.expression for c in plan.columns), *keys)]
        kept: dict[Expression, None] = {}
        for expression in wanted:
            if any(self._is_bound(name) for name in columns_of(expression)):
                kept.update(dict.fromkeys(self._plain_columns(expression)))
            else:
                kept[expression] = None
        offset = len(self.partition)
        places = {expression: f"c{place}" for place, expression in enumerate(kept, start=offset)}

        def over_stored(expression: Expression) -> Expression:
            renamed = self.rename(expression)
            if renamed in places:
                return Column(places[renamed], renamed.type)
            return transform(
                renamed, lambda node: Column(places[node], node.type) if node in places else None
            )

        def key(item: SortKey) -> SortKey:
            return replace(item, expression=over_stored(item.expression))

        finish = replace(
            plan,
            columns=tuple(Named(column.name, over_stored(column.expression)) for column in plan.columns),
            order=tuple(map(key, plan.order)),
            sort=tuple(map(key, plan.sort)),
        )
        return tuple(kept), finish

    def _regrouped(self, plan: Finish, regroup: Regroup) -> tuple[tuple[Expression, ...], Finish]:
        """Keys, arguments and what conditions read are kept; above the groups columns have their own names."""
        kept: dict[Expression, None] = dict.fromkeys(self.rename(key.expression) for key in regroup.keys)
        for item in regroup.aggregates:
            read = [] if item.call.condition is None else self._plain_columns(item.call.condition)
            wanted = [*read, *([] if item.call.argument is None else [item.call.argument])]
            own = {other.name for other in regroup.aggregates}
            kept |= dict.fromkeys(
                self.rename(each) for each in wanted if not (isinstance(each, Column) and each.name in own)
            )
        offset = len(self.partition)
        places = {expression: f"c{place}" for place, expression in enumerate(kept, start=offset)}

        def over_stored(expression: Expression) -> Expression:
            renamed = self.rename(expression)
            if renamed in places:
                return Column(places[renamed], renamed.type)
            return transform(
                renamed, lambda node: Column(places[node], node.type) if node in places else None
            )

        def over(call: AggregateCall) -> AggregateCall:
            argument = None if call.argument is None else over_stored(call.argument)
            condition = None if call.condition is None else over_stored(call.condition)
            return replace(call, argument=argument, condition=condition)

        keys = tuple(Named(key.name, over_stored(key.expression)) for key in regroup.keys)
        calls = tuple(NamedAggregate(item.name, over(item.call)) for item in regroup.aggregates)
        return tuple(kept), replace(plan, regroup=Regroup(keys, calls, regroup.bounds))

    def _plain_columns(self, expression: Expression) -> list[Expression]:
        found: list[Expression] = []

        def note(node: Expression) -> Expression | None:
            if isinstance(node, Column) and not self._is_bound(node.name):
                found.append(node)
            return None

        transform(expression, note)
        return found

    def outputs(self) -> list[Expression]:
        """The select list, by the names below it."""
        return [self.rename(column.expression) for column in self.finish.columns]

    def layout(
        self, kept: tuple[Expression, ...], routing: tuple[int, ...] | None, bounded: Bounded | None = None
    ) -> RowLayout:
        """Rows at rest."""
        return RowLayout(
            partition=self.partition,
            kept=kept,
            below=self.below,
            above=self.above,
            counts_all=counts_rows(self.shape.window),
            routing=routing,
            slot=self.slot,
            bounded=bounded or Bounded(),
            change=self._change,
        )


def lower_rows(lowering: Lowering) -> Operator:
    """The operator for what panes do not answer. Raises `UnsupportedQuery` with the reason."""
    shape = lowering.shape
    if shape.bounds is not None and not isinstance(shape.window, TimeRange | Unbounded):
        raise UnsupportedQuery(
            "BEGIN ... END beside a window that slides or counts rows is a condition of WHERE on the stream's time column",
            remedy="Compare that column in WHERE, or leave out the window or its SLIDE.",
        )
    match shape.window:
        case TimeSlide() | Landmark():
            return _window_rows(lowering)
        case RowsSlide():
            _refuse_revisions(lowering)
            return row_slides(lowering)
        case TupleSlide():
            _refuse_revisions(lowering)
            return tuple_slides(lowering)
        case Custom():
            _refuse_revisions(lowering)
            return user_windows(lowering)
        case Session(gap=gap) if lowering.query.revisions is not None:
            return RevisingSessions(frame_windows(lowering), gap, lowering.query.revisions)
        case Delta() | Session():
            _refuse_revisions(lowering)
            return frame_windows(lowering)
    if _passes(lowering):
        kept, finish = lowering.stored()
        return Passing(
            lowering.id, lowering.name, shape.scan.name, lowering.layout(kept, ()), finish, lowering.relations
        )
    _refuse_revisions(lowering)
    if lowering.telling == "rstream" and shape.window != TimeRange(0):
        raise UnsupportedQuery("RSTREAM needs a window with SLIDE, or [NOW]")
    return _instant_rows(lowering) if lowering.grouped is None else _instant_aggregate(lowering)


def _passes(lowering: Lowering) -> bool:
    """A select over a bare stream: it only ever adds rows, whatever their order."""
    shape = lowering.shape
    plain = shape.bounds is None and shape.aggregate is None and shape.top is None and not shape.distinct
    plain = plain and lowering.finish.regroup is None
    return plain and isinstance(shape.window, Unbounded) and lowering.telling == "istream"


def tells_changes(query: Query, shape: Shape) -> bool:
    """Whether ISTREAM or DSTREAM over windows, or revisions of them, are asked for."""
    return query.revisions is not None or (shape.emit is not None and shape.emit.kind != "rstream")


def with_changes(lowering: Lowering, inner: PaneAggregate | WindowRows) -> Operator:
    """ISTREAM or DSTREAM over successive windows, or their revisions, where asked for."""
    emit, revisions = lowering.shape.emit, lowering.query.revisions
    if emit is None or emit.kind == "rstream":
        if revisions is None:
            return inner
        return Revising(inner, inner.panes, revisions, inner.finish, lowering.slot)
    _refuse_revisions(lowering)
    return WindowChanges(inner, inner.panes, emit.kind, inner.finish, lowering.slot)


def _window_rows(lowering: Lowering) -> Operator:
    shape = lowering.shape
    assert isinstance(shape.window, TimeSlide | Landmark)
    kept, finish = lowering.stored()
    changes = shape.emit is not None and shape.emit.kind != "rstream"
    meets = finish.needs_whole_window or changes or lowering.query.revisions is not None
    apart: tuple[int, ...] | None = None if meets else ()
    if meets and not changes and lowering.query.revisions is None and finish.regroup is not None:
        alone = bool(finish.regroup.keys) and finish.limit is None and not finish.distinct
        apart = tuple(range(len(finish.regroup.keys))) if alone else None
    rows = WindowRows(
        id=lowering.id,
        query=lowering.name,
        stream=shape.scan.name,
        panes=Panes.of(shape.window),
        range=shape.window.range if isinstance(shape.window, TimeSlide) else None,
        bounds_prefix=f"{shape.window_alias}.",
        rows=lowering.layout(kept, apart),
        finish=finish,
        relations=lowering.relations,
        revisions=lowering.query.revisions,
    )
    return with_changes(lowering, rows)


def _refuse_revisions(lowering: Lowering) -> None:
    """Raises `UnsupportedQuery` for a query WITH REVISIONS that is neither of windows of time nor a bare stream."""
    if lowering.query.revisions is not None:
        raise UnsupportedQuery(
            "WITH REVISIONS is not available for this query",
            remedy="Available are windows of time with SLIDE, sessions, and selects over a bare stream.",
        )


def _validity(lowering: Lowering) -> tuple[Validity, Bounded]:
    """How long a row holds, by its window and `BEGIN ... END` together."""
    window = lowering.shape.window
    if isinstance(window, Rows):
        return Validity(count=window.count, partitions=len(lowering.partition)), Bounded()
    if isinstance(window, Lasting):
        return Validity(told=True, partitions=1), Bounded()
    if isinstance(window, Changing):
        return Validity(by_changes=True, partitions=1), Bounded()
    ends = [window.range + 1] if isinstance(window, TimeRange) else []
    bounds = lowering.shape.bounds
    if bounds is None:
        return Validity(min(ends, default=None)), Bounded()
    if isinstance(bounds.begin, Ago):
        ends.append(bounds.begin.duration + 1)
    bounded = _bounded(bounds)
    return Validity(max(min(ends) - bounded.shift, 0) if ends else None), bounded


def _bounded(bounds: Bounds) -> Bounded:
    low = None if isinstance(bounds.begin, Ago) else bounds.begin
    if isinstance(bounds.end, Ago):
        return Bounded(low, None, bounds.end.duration)
    return Bounded(low, bounds.end)


def _hashable(expressions: Sequence[Expression]) -> bool:
    return all(expression.type.name not in ("STRUCT", "ARRAY", "MAP") for expression in expressions)


def _instant_rows(lowering: Lowering) -> Operator:
    """Equal result rows must meet, since a row that comes and one that goes cancel out."""
    kept, finish = lowering.stored()
    outputs, partition = lowering.outputs(), lowering.partition
    routing: tuple[int, ...] | None = None
    if finish.is_row_by_row and isinstance(lowering.shape.window, Rows):
        routing = tuple(range(len(partition))) if partition and set(partition) <= set(outputs) else None
    elif finish.is_row_by_row and _hashable(outputs):
        routing = tuple(len(partition) + kept.index(output) for output in dict.fromkeys(outputs))
    validity, bounded = _validity(lowering)
    rows, name = lowering.layout(kept, routing, bounded), lowering.shape.scan.name
    telling, relations = lowering.telling, lowering.relations
    if validity.by_changes and finish.is_row_by_row and not finish.distinct:
        return ChangingRows(lowering.id, lowering.name, name, rows, finish, telling, relations)
    return InstantRows(lowering.id, lowering.name, name, validity, rows, finish, telling, relations)


def _instant_aggregate(lowering: Lowering) -> Operator:
    grouped, partition = lowering.grouped, lowering.partition
    assert grouped is not None
    shape = lowering.shape
    shown = {
        column.expression.name for column in lowering.finish.columns if isinstance(column.expression, Column)
    }
    keys = {key.name for key in grouped.keys}
    apart = bool(keys) and keys <= shown and not lowering.finish.needs_whole_window
    routing: tuple[int, ...] | None = None
    if apart and not isinstance(shape.window, Rows):
        routing = tuple(len(partition) + place for place in range(len(grouped.keys)))
    elif apart and partition and set(partition) <= {key.expression for key in grouped.keys}:
        routing = tuple(range(len(partition)))
    validity, bounded = _validity(lowering)
    return InstantAggregate(
        lowering.id,
        lowering.name,
        shape.scan.name,
        validity,
        lowering.layout(tuple(grouped.inputs()), routing, bounded),
        grouped,
        lowering.finish,
        lowering.telling,
        lowering.relations,
    )


__all__ = ["Lowering", "NamedAggregate", "lower_rows", "with_changes"]
