"""`Lowering`, the input of the rules of `planner/lowering/lower.py`: a bound query and its clauses in the names that
operators use, with the columns to store of each row and the steps above the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import (
    Call,
    Cast,
    Column,
    Expression,
    Named,
    columns_of,
    transform,
)
from headrace.algebra.query import Query, SortKey, StreamScan
from headrace.algebra.windows.window import (
    Changing,
    Delta,
    Lasting,
    Rows,
    RowsSlide,
    Session,
    TupleSlide,
    counts_rows,
    slides,
)
from headrace.dataclass import dataclass
from headrace.operators.aggregates.group_by import Grouped
from headrace.operators.base.group_codes import slot_of_name
from headrace.operators.joins.window_join import WindowJoin
from headrace.operators.output.changelog import EmitMode
from headrace.operators.output.output_stage import Finish
from headrace.operators.output.regrouping import Regroup
from headrace.operators.rows.row_pipeline import RowStep, relations_of
from headrace.operators.rows.row_state import Bounded, RowLayout
from headrace.planner.lowering.correlated import regrouping
from headrace.planner.lowering.query_shape import Shape
from headrace.planner.lowering.row_steps import Rename, row_steps
from headrace.schema import BIGINT


@dataclass(frozen=True)
class Lowering:
    """A bound query and its clauses, by the names that operators use.

    `regroups`: rows are stored, and grouped when a window is closed. `rule`: the name of the rule that builds the operator.
    `pairs_of`: the join whose pairs it reads, if they are read by it alone.
    """

    name: str
    query: Query
    shape: Shape
    id: str
    regroups: bool = False
    rule: str = ""
    pairs_of: WindowJoin | None = None

    @property
    def prefix(self) -> str:
        """The prefix of the stream's columns."""
        return f"{self.shape.scan.alias}."

    @property
    def of_accepted(self) -> bool:
        """Whether it reads the accepted rows of its stream, and not the late or rejected ones."""
        return not isinstance(self.shape.scan, StreamScan) or self.shape.scan.channel == "rows"

    @cached_property
    def _steps(self) -> tuple[RowStep, ...]:
        return row_steps(self.shape, separate=True)

    @property
    def below(self) -> tuple[RowStep, ...]:
        """The steps below the window."""
        return self._steps[: 1 if self.shape.before else 0]

    @property
    def above(self) -> tuple[RowStep, ...]:
        """The steps above the window."""
        return self._steps[1 if self.shape.before else 0 :]

    @cached_property
    def folded(self) -> Grouped | None:
        """GROUP BY with its aggregates; None without."""
        aggregate, rename = self.shape.aggregate, Rename(self.shape)
        if aggregate is None:
            return None
        keys = tuple(Named(key.name, rename(key.expression)) for key in aggregate.keys)
        calls = (NamedAggregate(item.name, item.call.over(rename)) for item in aggregate.aggregates)
        return Grouped(keys, tuple(calls))

    @property
    def grouped(self) -> Grouped | None:
        """The groups that rows are aggregated into on arrival; None without aggregates, and where rows are stored for grouping."""
        return None if self.regroups else self.folded

    @cached_property
    def finish(self) -> Finish:
        """The steps above the window: with `regroups` rows are grouped first."""
        finish = finish_of(self.shape)
        if not self.regroups or self.folded is None:
            return finish
        return regrouping(finish, self.folded, self.shape.window_alias)

    @property
    def slot(self) -> int:
        """The slot of rows without a key, by the operator's name."""
        return slot_of_name(self.id)

    @property
    def relations(self) -> tuple[str, ...]:
        """Relations of the look-up steps."""
        return relations_of((*self.below, *self.above))

    @property
    def emit_mode(self) -> EmitMode:
        """The emit mode of changes."""
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
            return (self.rename(_signed_number(window)),)
        if not isinstance(window, Rows | RowsSlide | TupleSlide | Session):
            return ()
        return tuple(map(self.rename, window.partition))

    @property
    def _change(self) -> str | None:
        """The column with +1 or -1."""
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
        """The stored columns of each row, and the steps over them: expressions of the row alone are computed before."""
        plan = self.finish
        if plan.regroup is not None:
            return self._regrouped(plan, plan.regroup)
        keys = [key.expression for key in (*plan.order, *plan.sort)]
        expressions = [
            self.rename(expression) for expression in (*(c.expression for c in plan.columns), *keys)
        ]
        columns: dict[Expression, None] = {}
        for expression in expressions:
            if any(self._is_bound(name) for name in columns_of(expression)):
                columns.update(dict.fromkeys(self._plain_columns(expression)))
            else:
                columns[expression] = None
        over_stored = self._over(columns)

        def key(item: SortKey) -> SortKey:
            return replace(item, expression=over_stored(item.expression))

        finish = replace(
            plan,
            columns=tuple(Named(column.name, over_stored(column.expression)) for column in plan.columns),
            order=tuple(map(key, plan.order)),
            sort=tuple(map(key, plan.sort)),
        )
        return tuple(columns), finish

    def _regrouped(self, plan: Finish, regroup: Regroup) -> tuple[tuple[Expression, ...], Finish]:
        """Keys, arguments and the columns of conditions are stored; above the groups columns have their own names."""
        columns: dict[Expression, None] = dict.fromkeys(self.rename(key.expression) for key in regroup.keys)
        for item in regroup.aggregates:
            read = [] if item.call.condition is None else self._plain_columns(item.call.condition)
            expressions = [*read, *([] if item.call.argument is None else [item.call.argument])]
            names = {other.name for other in regroup.aggregates}
            columns |= dict.fromkeys(
                self.rename(expression)
                for expression in expressions
                if not (isinstance(expression, Column) and expression.name in names)
            )
        over_stored = self._over(columns)

        keys = tuple(Named(key.name, over_stored(key.expression)) for key in regroup.keys)
        calls = tuple(NamedAggregate(item.name, item.call.over(over_stored)) for item in regroup.aggregates)
        return tuple(columns), replace(plan, regroup=Regroup(keys, calls, regroup.bounds))

    def _over(self, columns: Iterable[Expression]) -> Callable[[Expression], Expression]:
        """Rewrites an expression over the stored columns of a row."""
        places = {expression: f"c{index}" for index, expression in enumerate(columns, len(self.partition))}

        def over_stored(expression: Expression) -> Expression:
            renamed = self.rename(expression)
            if renamed in places:
                return Column(places[renamed], renamed.type)
            return transform(
                renamed, lambda node: Column(places[node], node.type) if node in places else None
            )

        return over_stored

    def _plain_columns(self, expression: Expression) -> list[Expression]:
        columns: list[Expression] = []

        def note(node: Expression) -> Expression | None:
            if isinstance(node, Column) and not self._is_bound(node.name):
                columns.append(node)
            return None

        transform(expression, note)
        return columns

    def stored_rows(self, routing: tuple[int, ...] | None) -> tuple[RowLayout, Finish]:
        """The stored rows: inputs of groups, or the columns of `stored`, with the steps over them."""
        columns, finish = (
            self.stored() if self.grouped is None else (tuple(self.grouped.inputs()), self.finish)
        )
        return self.layout(columns, routing), finish

    def outputs(self) -> list[Expression]:
        """The select list, by the names below it."""
        return [self.rename(column.expression) for column in self.finish.columns]

    def layout(
        self, columns: tuple[Expression, ...], routing: tuple[int, ...] | None, bounded: Bounded | None = None
    ) -> RowLayout:
        """The layout of stored rows."""
        return RowLayout(
            partition=self.partition,
            stored=columns,
            below=self.below,
            above=self.above,
            counts_all=counts_rows(self.shape.window),
            routing=routing,
            slot=self.slot,
            bounded=bounded or Bounded(),
            change=self._change,
            ends_differ=isinstance(self.shape.window, Lasting),
        )


def finish_of(shape: Shape) -> Finish:
    """The steps above the aggregation, with the expressions that order the output: ORDER BY, then group keys."""
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


def _signed_number(window: Changing) -> Expression:
    """How many equal rows a change inserts, or, below zero, retracts."""
    if window.times is None:
        return window.change
    return Call("*", (Cast(window.change, BIGINT), window.times), BIGINT)
