"""The binder of a SELECT: names and types are resolved into a tree of the algebra; errors have their place.

The tree, bottom up: scan, filters below the window, window, joins with relations, WHERE, bounds, aggregation, HAVING,
ORDER BY and LIMIT, select list, DISTINCT, relation-to-stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from headrace.algebra.expressions.aggregates import APPROXIMATE, canonical, is_aggregate
from headrace.algebra.expressions.expression import (
    Call,
    Column,
    Expression,
    Named,
    columns_of,
    conjuncts,
    transform,
)
from headrace.algebra.functions.resolve import UserFunction
from headrace.algebra.quality_of_service import QualityOfService
from headrace.algebra.query import (
    Aggregate,
    Bounds,
    Distinct,
    Emission,
    Emit,
    Filter,
    Node,
    Project,
    Query,
    SortKey,
    Top,
)
from headrace.dataclass import dataclass
from headrace.errors import Span, UserError
from headrace.language.binder.aggregates import Grouping
from headrace.language.binder.clause_checks import check_clauses
from headrace.language.binder.expressions.column_names import output_name
from headrace.language.binder.expressions.expression_binder import ExpressionBinder, Subquery, located
from headrace.language.binder.expressions.scope import WINDOW_COLUMNS, Names
from headrace.language.binder.expressions.time_zones import in_zone
from headrace.language.binder.relational_tree import tree
from headrace.language.binder.revisions import revisions
from headrace.language.binder.sessions import per_group
from headrace.language.binder.shedding import check_shedding, estimated
from headrace.language.binder.sources.bounds import condition, follows_now, joined_condition
from headrace.language.binder.sources.from_clause import From, bind_from
from headrace.language.binder.sources.set_operators import is_later, spelled_out
from headrace.language.binder.subqueries.existence import every_part
from headrace.language.binder.subqueries.semijoins import with_semijoins
from headrace.language.binder.subqueries.subquery_binder import SubqueryBinder
from headrace.language.parser.query import parse_select
from headrace.language.syntax.ast import (
    AllColumns,
    Constant,
    Expr,
    FunctionCall,
    Item,
    Name,
    ScalarSelect,
    Select,
    SessionWindow,
)
from headrace.language.syntax.refusals import fail, mistakes_in, refuse
from headrace.schema import BOOLEAN, INT


def bind_query(
    select: Select | str,
    names: Names,
    text: str | None = None,
    functions: Mapping[str, UserFunction] | None = None,
    zone: str = "UTC",
) -> Query:
    """The query a SELECT means among these names.

    `select` is its text, or what was parsed from `text`. `functions` are registered Python functions by lower-case name,
    `zone` is the time zone of times and dates, as in the parser. Raises `UserError` with the place of the mistake;
    `UnsupportedQuery` for what is not available yet.
    """
    if isinstance(select, str):
        text, select = select, parse_select(select, zone)
    assert text is not None
    with mistakes_in(text):
        query = _bound(select, names, functions or {})
    return in_zone(query, zone)


def _bound(
    select: Select, names: Names, functions: Mapping[str, UserFunction], *, numbered: bool = False
) -> Query:
    """The query of a SELECT; with `numbered` the columns of a single SELECT are named c0, c1, …."""
    sources = _from(select, names, functions)
    select = spelled_out(select, sources.stream)
    subquery_binder = SubqueryBinder(
        names,
        sources.scope,
        functions,
        lambda inner: _bound(inner, names, functions, numbered=True),
        lambda inner: _from(inner, names, functions).scope,
    )
    single = select.source.sets is None
    return _SelectBinder(select, sources, functions, subquery_binder, numbered and single).query()


def _from(select: Select, names: Names, functions: Mapping[str, UserFunction]) -> From:
    return bind_from(
        select,
        names,
        functions,
        lambda inner: _bound(inner, names, functions, numbered=is_later(inner, select)),
    )


@dataclass(slots=True)
class _SelectBinder:
    """The steps from a SELECT to a query; each adds what the next one reads."""

    select: Select
    sources: From
    functions: Mapping[str, UserFunction]
    subquery_binder: SubqueryBinder
    numbered: bool
    rows: ExpressionBinder = field(init=False)
    grouping: Grouping = field(init=False)
    columns: list[Named] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.rows = ExpressionBinder(
            self.sources.scope.column, self._nested, self.functions, grouped_window=self.select.window
        )
        sliding = [source for source in self.sources.streams if source.sliding]
        bounds = frozenset(f"{source.alias}.{name}" for source in sliding for name in WINDOW_COLUMNS)
        self.grouping = Grouping(self.rows, bounds, self.sources.stream.alias)

    @property
    def grouped(self) -> bool:
        """True when rows are aggregated, in groups or all together."""
        return bool(self.select.group_by) or self.select.window is not None or bool(self.grouping.aggregates)

    def query(self) -> Query:
        """Bind clause by clause, inside out."""
        select = self.select
        if isinstance(select.window, SessionWindow):
            self._add_keys()
            self.sources = per_group(self.sources, self.grouping.keys, select.window.span)
            node = self._filtered()
        else:
            node = self._filtered()
            self._add_keys()
        bound = self._select_list()
        having = None if select.having is None else self._bind(select.having, "HAVING", condition=True)
        order = [self._sort_expression(item.expression) for item in select.order_by]
        check_clauses(
            select,
            self.sources,
            self.grouping.aggregates,
            grouped=self.grouped,
            streams_rows=self._streams_rows,
            semijoined=self.subquery_binder.reads_changes,
        )
        if select.shedding is not None:
            check_shedding(select, self.sources, self.grouping, having)
            bound, order = estimated(select, self.grouping, bound, order)
        if self.grouped:
            self._keep_an_aggregate()
            node = Aggregate(node, tuple(self.grouping.keys), tuple(self.grouping.aggregates))
            bound = [(name, self._above(value, span), span) for name, value, span in bound]
        if having is not None and select.having is not None:
            node = Filter(node, self._above(having, select.having.span))
        self._name_columns(bound)
        keys = tuple(
            SortKey(
                self._above(value, item.span) if self.grouped else value, item.descending, item.nulls_first
            )
            for value, item in zip(order, select.order_by, strict=True)
        )
        return self._emitted(self._projected(node, keys))

    # ---------------------------------------------------------------------------------------------------- clauses

    def _filtered(self) -> Node:
        where = None
        if self.select.where is not None:
            binder = ExpressionBinder(
                self._where_column,
                self._in_where,
                self.functions,
                self.subquery_binder.bind,
                grouped_window=self.select.window,
            )
            where = self.subquery_binder.where(self.select.where, binder)
        self._bind_values()
        select, semijoins = self.select, self.subquery_binder.reads_changes
        if semijoins:
            self.sources = with_semijoins(select, self.sources)
        limits = None if self.sources.others or semijoins else select.bounds  # up to NOW they are windows
        if self.sources.others:
            inside = joined_condition(select, self.sources.streams)
        else:
            inside = None if limits is None else condition(select, self.sources.stream)
            limits = limits if inside is None else None
        if inside is not None:
            where = inside if where is None else Call("and", (where, inside), BOOLEAN)
        if self.sources.others and select.bounds is not None and follows_now(select.bounds):
            limits = select.bounds
        self._check_bounds(where)
        node = tree(
            self.sources,
            where,
            self.subquery_binder,
            self.grouping.bounds,
            grouped_window=select.window is not None,
        )
        return node if limits is None else Bounds(node, *limits)

    def _bind_values(self) -> None:
        """Bind the SELECTs of the select list, whose relations are joined below it."""
        items = [item for item in self.select.items if isinstance(item, Item)]
        parts = [part for item in items for part in every_part(item.expression)]
        selects = [part for part in parts if isinstance(part, ScalarSelect)]
        groups = any(isinstance(part, FunctionCall) and is_aggregate(part.name) for part in parts)
        if selects and (groups or self.select.group_by or self.select.window is not None):
            refuse(
                "a SELECT as a value is not available together with groups",
                selects[0].span,
                "Put it into WHERE, or read the groups in FROM: SELECT …, (SELECT …) FROM (SELECT … GROUP BY …) AS t.",
            )
        for part in selects:
            self.subquery_binder.value(part, self.rows)

    def _check_bounds(self, where: Expression | None) -> None:
        """Raises `UnsupportedQuery` where a condition reads a row together with the bounds of its window."""
        select, grouping = self.select, self.grouping
        span = select.span if select.where is None else select.where.span
        remedy = "Compare a bound with constants and other bounds only."
        factors = [*(() if where is None else conjuncts(where)), *self.sources.conditions]
        of_windows = [factor for factor in factors if grouping.is_bound(factor)]
        if of_windows and select.emit_empty is not None:
            fail(
                "with EMIT EMPTY a window without rows is emitted, also where WHERE excludes its bounds",
                span,
                "Put the condition into HAVING.",
            )
        for factor in factors:
            if factor not in of_windows:
                grouping.check_without_bounds(factor, span, "WHERE", remedy)
        for item in self.subquery_binder.subqueries:
            for part in (item.condition, item.test):
                if part is not None:
                    grouping.check_without_bounds(part, span, "WHERE", remedy)
        for source, _, on in self.sources.relations:
            if on is not None:
                grouping.check_without_bounds(on, source.span, "ON", remedy)

    def _where_column(self, name: Name) -> Expression:
        column = self.sources.scope.column(name)
        if self.select.window is not None and column.name in self.grouping.bounds:
            fail(
                "WHERE is applied before the window of GROUP BY: its bounds are not known yet",
                name.span,
                "Put the condition into HAVING.",
            )
        return column

    def _in_where(self, call: FunctionCall) -> Expression:
        fail(
            f"WHERE cannot hold the aggregate {call.name.upper()}: it is applied before grouping",
            call.span,
            "Put the condition into HAVING.",
        )

    def _nested(self, call: FunctionCall) -> Expression:
        fail(
            f"the aggregate {call.name.upper()} is used where rows are read one at a time",
            call.span,
            "Aggregates cannot be nested or grouped by.",
        )

    def _add_keys(self) -> None:
        for item in self.select.group_by:
            self._add_key(item)

    def _add_key(self, item: Expr) -> None:
        expression = self._key(item)
        if self.grouping.is_bound(expression):
            return
        self.grouping.check_without_bounds(expression, item.span, "GROUP BY", "Group by each of them.")
        self._check_flat(expression, item.span, "GROUP BY")
        self.grouping.add_key(expression)

    def _key(self, item: Expr) -> Expression:
        """An item of GROUP BY: an ordinal, a column, the alias of a select item, or an expression."""
        if isinstance(item, Constant) and item.type == INT and isinstance(item.value, int):
            return self.rows.bind(self._ordinal(item.value, item.span, "GROUP BY"))
        if isinstance(item, Name) and len(item.parts) == 1:
            aliased = self._aliased(item.parts[0])
            if aliased is not None and all(
                source.find(item.parts[0]) is None for source in self.sources.scope.sources
            ):
                return self.rows.bind(aliased)
        return self.rows.bind(item)

    def _keep_an_aggregate(self) -> None:
        """Count rows where the query groups by a window's bounds and computes nothing: a window that holds a row is a group."""
        if not self.grouping.keys and not self.grouping.aggregates:
            self.grouping.count_rows()

    def _ordinal(self, ordinal: int, span: Span, clause: str) -> Expr:
        items = self.select.items
        if any(isinstance(item, AllColumns) for item in items):
            fail(f"{clause} {ordinal} counts the items of a select list with *", span, "Name the column.")
        if not 1 <= ordinal <= len(items):
            fail(f"{clause} {ordinal} is not an item of the select list, which has {len(items)}", span)
        item = items[ordinal - 1]
        assert isinstance(item, Item)
        return item.expression

    def _aliased(self, name: str) -> Expr | None:
        for item in self.select.items:
            if isinstance(item, Item) and item.alias is not None and item.alias.lower() == name.lower():
                return item.expression
        return None

    def _select_list(self) -> list[tuple[str, Expression, Span]]:
        columns: list[tuple[str, Expression, Span]] = []
        for item in self.select.items:
            if isinstance(item, AllColumns):
                columns += self._all_columns(item)
            else:
                value = self._bind(item.expression, "SELECT")
                former = self.subquery_binder.names.former_names
                name = item.alias or output_name(item.expression, value.type, former=former)
                columns.append((name, value, item.span))
        return columns

    def _all_columns(self, item: AllColumns) -> list[tuple[str, Expression, Span]]:
        sources = self.sources.scope.sources
        if item.qualifier is not None:
            with located(item.span):
                chosen = self.sources.scope.source(item.qualifier)
                if chosen is None:
                    aliases = ", ".join(source.alias for source in sources)
                    raise UserError(
                        f"there is no source '{item.qualifier}' in FROM", remedy=f"There is: {aliases}."
                    )
            sources = (chosen,)
        columns: list[tuple[str, Expression, Span]] = []
        for source in sources:
            for name in sorted(source.doubled):
                source.check_single(name, item.span)
            for column in source.scan.table:
                if item.qualifier is None and column.name.lower() in source.hidden:
                    continue
                internal = f"{source.alias}.{column.name}"
                self.rows.seen.setdefault(internal, item.span)
                columns.append((column.name, Column(internal, column.type), item.span))
        return columns

    # ------------------------------------------------------------------------------------------------ expressions

    def _bind(self, node: Expr, clause: str, *, condition: bool = False) -> Expression:
        """An expression above grouping: aggregates are columns in it, and HAVING may read the select list's aliases."""
        column = self._output_or_column if clause in ("HAVING", "ORDER BY") else self.sources.scope.column
        is_window = self.sources.scope.is_whole_window
        binder = ExpressionBinder(
            column,
            self._aggregate,
            self.functions,
            self._value if clause == "SELECT" else None,
            seen=self.rows.seen,
            window=is_window,
            grouped_window=self.select.window,
        )
        return binder.condition(node, clause) if condition else binder.bind(node)

    def _value(self, node: Subquery, outer: ExpressionBinder) -> Expression:
        if not isinstance(node, ScalarSelect):
            refuse(
                "a condition with a SELECT is allowed only in the WHERE of a query",
                node.select.span,
                "Compare a SELECT as a value: (SELECT COUNT(*) FROM …) > 0.",
            )
        return self.subquery_binder.value(node, outer)

    def _aggregate(self, call: FunctionCall) -> Expression:
        if call.name.lower() != "error_bound":
            return self.grouping.aggregate(call)
        argument = call.arguments[0] if len(call.arguments) == 1 and call.condition is None else None
        if isinstance(argument, Name) and len(argument.parts) == 1:
            argument = self._aliased(argument.parts[0])
        if not isinstance(argument, FunctionCall) or not (
            argument.within is not None or canonical(argument.name) in APPROXIMATE
        ):
            fail(
                "ERROR_BOUND is of an approximate aggregate of the select list",
                call.span,
                "Write for example APPROX_COUNT(*) WITHIN 1 PERCENT AS n, ERROR_BOUND(n).",
            )
        return self.grouping.bound(argument)

    def _output_or_column(self, name: Name) -> Expression:
        aliased = self._aliased(name.parts[0]) if len(name.parts) == 1 else None
        return self._bind(aliased, "SELECT") if aliased is not None else self.sources.scope.column(name)

    def _sort_expression(self, node: Expr) -> Expression:
        if isinstance(node, Constant) and node.type == INT and isinstance(node.value, int):
            return self._bind(self._ordinal(node.value, node.span, "ORDER BY"), "SELECT")
        return self._bind(node, "ORDER BY")

    def _above(self, value: Expression, span: Span) -> Expression:
        return self.grouping.above(value, self.rows.seen, span)

    # ------------------------------------------------------------------------------------------------- errors

    def _check_flat(self, value: Expression, span: Span, what: str) -> None:
        if not value.type.is_orderable:
            fail(f"{what} cannot compare values of type {value.type}", span, "Name its parts one by one.")

    @property
    def _streams_rows(self) -> bool:
        """True for a SELECT over a bare stream without aggregates, which emits each row on arrival."""
        return self.sources.bare and not self.grouped and self.select.bounds is None

    def _name_columns(self, bound: list[tuple[str, Expression, Span]]) -> None:
        seen: set[str] = set()
        for index, (written, value, span) in enumerate(bound):
            name = f"c{index}" if self.numbered else written
            if name.lower() in seen:
                fail(
                    f"two columns of the select list are called '{name}'",
                    span,
                    "Give one of them an alias with AS.",
                )
            seen.add(name.lower())
            if self.select.distinct:
                self._check_flat(value, span, "DISTINCT")
            self.columns.append(Named(name, value))

    # ---------------------------------------------------------------------------------------------------------- output

    def _projected(self, node: Node, keys: tuple[SortKey, ...]) -> Node:
        """Select list, ORDER BY and LIMIT; DISTINCT is applied before the order."""
        select = self.select
        topped = bool(keys) or select.limit is not None
        if topped and not select.distinct:
            node = Top(node, keys, select.limit)
        node = Project(node, tuple(self.columns))
        if select.distinct:
            node = Distinct(node)
            if topped:
                node = Top(
                    node, tuple(self._over_output(key, index) for index, key in enumerate(keys)), select.limit
                )
        return node

    def _over_output(self, key: SortKey, index: int) -> SortKey:
        """A sort key over the distinct rows: it may read their columns only."""
        outputs = {column.expression: Column(column.name, column.expression.type) for column in self.columns}

        def replaced(node: Expression) -> Expression | None:
            return outputs.get(node)

        expression = outputs.get(key.expression) or transform(key.expression, replaced)
        names = {column.name for column in self.columns}
        reads = columns_of(expression) - names
        if reads:
            fail(
                "with DISTINCT, ORDER BY can read the select list only",
                self.select.order_by[index].span,
                "Add the expression to the select list.",
            )
        return SortKey(expression, key.descending, key.nulls_first)

    def _quality(self) -> QualityOfService | None:
        if self.select.quality is None:
            return None
        from headrace.language.binder.quality import quality  # noqa: PLC0415 - few queries state one

        return quality(self.select, self.select.quality, self.sources, self.grouping, self.columns)

    def _emitted(self, node: Node) -> Query:
        select, stream = self.select, self.sources.stream
        emit = select.emit or ("istream" if self._streams_rows else None)
        emission: Emission = "windows" if stream.sliding else "relation" if emit is None else "stream"
        root = node if emit is None else Emit(node, emit)
        return Query(
            root,
            emission,
            select.emit_empty is not None,
            revisions(select, self.sources, grouped=self.grouped),
            select.shedding is not None,
            self._quality(),
            select.shedding is not None and select.shedding.repair is not None,
        )
