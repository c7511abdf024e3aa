"""Binding of EXISTS, NOT EXISTS and NOT IN over a changing relation: semijoins and antijoins; and of conditions
inside a SELECT that read columns of the query around it (`Correlation`), also for SELECTs as values.

The relation is that of the inner SELECT's distinct values of the columns that the condition compares. Conditions of its
WHERE that read columns of the query around it become those of the join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias
from typing import Literal as Choice

from headrace.algebra.expressions.aggregates import is_aggregate
from headrace.algebra.expressions.expression import Call, Column, Expression, Named
from headrace.algebra.functions.resolve import UserFunction
from headrace.algebra.query import Distinct, JoinKind, Project, Query, QueryScan, Windowed
from headrace.dataclass import dataclass
from headrace.language.binder.expressions.expression_binder import ExpressionBinder, joined
from headrace.language.binder.expressions.scope import Scope
from headrace.language.binder.sources.from_clause import changes_of
from headrace.language.binder.subqueries.semijoins import Semijoin, relation_of
from headrace.language.syntax.ast import (
    AllColumns,
    Chain,
    Constant,
    Exists,
    Expr,
    FunctionCall,
    Item,
    Name,
    Select,
    Source,
    parts_of,
)
from headrace.language.syntax.refusals import refuse
from headrace.schema import BOOLEAN, INT

Inner: TypeAlias = Callable[[Select], Query]
"""Binds a SELECT with columns c0, c1, …."""
_WRAPPED: Final = "inside"


@dataclass(frozen=True, slots=True)
class SubqueryJoin:
    """The join that a SELECT inside an expression is: with its relation, on a condition over both."""

    right: Windowed
    kind: JoinKind
    condition: Expression | None


def read_as(alias: str, query: Query) -> Windowed:
    """A relation under an internal name."""
    scan = QueryScan(alias, alias, query.schema, query)
    return Windowed(scan, alias, changes_of(scan))


@dataclass(slots=True)
class Correlation:
    """Binds the parts of a SELECT that read columns of the query around it.

    `inside` are the sources of the SELECT, `outside` those around it. The columns of the SELECT that such parts read are
    `items`, in the order c0, c1, … of the relation, which is read as `alias`.
    """

    inside: Scope
    outside: Scope
    outer: ExpressionBinder
    functions: Mapping[str, UserFunction]
    alias: str
    items: dict[str, Item] = field(default_factory=dict)

    def split(self, where: Expr | None) -> tuple[list[Expr], Expr | None]:
        """The conditions of a WHERE that read the query around it, and the rest."""
        factors = [] if where is None else list(conjuncts_of(where))
        correlated = [factor for factor in factors if self.reads_outside(factor)]
        rest = [factor for factor in factors if factor not in correlated]
        if not rest:
            return correlated, None
        whole = rest[0].span.to(rest[-1].span)
        return correlated, rest[0] if len(rest) == 1 else Chain("and", tuple(rest), whole)

    def reads_outside(self, node: Expr) -> bool:
        """Whether an expression reads a column of the query around the SELECT."""
        names = [part for part in every_part(node) if isinstance(part, Name)]
        return any(not self.inside.has_column(name) and self.outside.has_column(name) for name in names)

    def bind(self, factors: Sequence[Expr]) -> Expression | None:
        """The condition of the join."""
        binder = ExpressionBinder(self._column, self._aggregate, self.functions)
        bound = [binder.condition(factor, "WHERE") for factor in factors]
        return joined("and", bound) if bound else None

    def check(self, select: Select) -> None:
        """Raises `UserError` for items that cannot be bound; their values do not matter."""
        if is_grouped(select):
            return
        binder = ExpressionBinder(self._any_column, self._aggregate, self.functions)
        for item in select.items:
            if isinstance(item, Item):
                binder.bind(item.expression)

    def _any_column(self, name: Name) -> Expression:
        return self.inside.column(name) if self.inside.has_column(name) else self.outer.column(name)

    def _column(self, name: Name) -> Expression:
        if not self.inside.has_column(name):
            return self.outer.column(name)
        column = self.inside.column(name)
        self.items.setdefault(column.name, Item(name, None, name.span))
        return Column(f"{self.alias}.c{list(self.items).index(column.name)}", column.type)

    def _aggregate(self, call: FunctionCall) -> Expression:
        refuse(
            f"WHERE cannot hold the aggregate {call.name.upper()}: it is applied before grouping", call.span
        )


def exists(
    node: Exists, kind: Choice["semi", "anti"], correlation: Correlation, inner: Inner
) -> SubqueryJoin:
    """The join that EXISTS (`semi`) or NOT EXISTS (`anti`) is.

    Raises `UnsupportedQuery` for a SELECT that is no relation, or that groups and reads columns of the query around it.
    """
    select = node.select
    factors, rest = ([], select.where) if select.source.sets else correlation.split(select.where)
    grouped = is_grouped(select)
    if factors and grouped:
        refuse(
            "a SELECT with groups or LIMIT inside EXISTS cannot read columns of the query around it",
            factors[0].span,
            "Write what is equal before IN: (a, b) IN (SELECT c, d FROM …).",
        )
    if not factors:
        relation_of(select, "EXISTS", correlation.outside, inner)
    condition = correlation.bind(factors)
    correlation.check(select)
    one = Item(Constant(1, INT, "1", select.span), None, select.span)
    items = tuple(correlation.items.values()) or (one,)
    if grouped:
        wrapped = Source(_WRAPPED, _WRAPPED, None, "rows", select.span, select)
        distinct = Select((one,), wrapped, select.span, distinct=True)
    else:
        distinct = replace(select, items=items, where=rest, distinct=True, order_by=())
    query = relation_of(distinct, "EXISTS", correlation.outside, inner)
    return SubqueryJoin(read_as(correlation.alias, query), kind, condition)


def not_in(semijoin: Semijoin, operand: Expression, alias: str) -> tuple[SubqueryJoin, SubqueryJoin]:
    """NOT IN as two joins: no row is equal, and none is unknown to be.

    The second one, read as `alias`, knows only whether there is a row, and one that is NULL.
    """
    equal = SubqueryJoin(semijoin.right, "anti", joined("and", semijoin.conditions))
    scan = semijoin.right.source
    assert isinstance(scan, QueryScan)
    assert scan.query is not None
    column = scan.query.schema.fields[0]
    below = read_as(_WRAPPED, scan.query)
    is_null = Call("isnull", (Column(f"{_WRAPPED}.{column.name}", column.type),), BOOLEAN)
    nulls = Query(Distinct(Project(below, (Named("c0", is_null),))), "relation")
    unknown = joined("or", [Column(f"{alias}.c0", BOOLEAN), Call("isnull", (operand,), BOOLEAN)])
    return equal, SubqueryJoin(read_as(alias, nulls), "anti", unknown)


def is_grouped(select: Select) -> bool:
    """Whether a SELECT has groups, LIMIT or a set operator: its WHERE is not all that chooses its rows."""
    items = [item.expression for item in select.items if not isinstance(item, AllColumns)]
    aggregates = (
        isinstance(part, FunctionCall) and is_aggregate(part.name)
        for item in items
        for part in every_part(item)
    )
    clauses = select.group_by or select.window or select.having or select.limit is not None
    return bool(clauses) or select.source.sets is not None or any(aggregates)


def conjuncts_of(node: Expr) -> Iterator[Expr]:
    """The conditions that AND joins, in order."""
    waiting = [node]
    while waiting:
        factor = waiting.pop()
        if isinstance(factor, Chain) and factor.operator == "and":
            waiting.extend(reversed(factor.operands))
        else:
            yield factor


def every_part(node: Expr) -> Iterator[Expr]:
    """An expression and all those inside it, without SELECTs."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(parts_of(part))
