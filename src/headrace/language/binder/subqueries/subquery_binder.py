"""Binding of every SELECT inside the expressions of a query, collected by `SubqueryBinder`: over a stored relation a
BOOLEAN column (whether it has such a row), over a changing relation a join.

Such a join is a semijoin or antijoin (`semijoins`, `existence`), which must be a factor of WHERE, or an outer join with
one row (`scalar_selects`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import NoReturn

from headrace.algebra.expressions.expression import Call, Column, Expression, columns_of
from headrace.algebra.functions.resolve import UserFunction
from headrace.algebra.query import Node, Query, RelationScan, SemijoinColumn
from headrace.catalog.definitions import RelationDefinition
from headrace.dataclass import dataclass
from headrace.errors import Span, did_you_mean
from headrace.language.binder.expressions.expression_binder import ExpressionBinder, Subquery
from headrace.language.binder.expressions.scope import Names, Scope
from headrace.language.binder.subqueries.existence import (
    Correlation,
    SubqueryJoin,
    conjuncts_of,
    exists,
    not_in,
)
from headrace.language.binder.subqueries.scalar_selects import quantified, scalar
from headrace.language.binder.subqueries.semijoins import Semijoin, operands_of, semijoin
from headrace.language.syntax.ast import (
    AllColumns,
    Chain,
    Exists,
    Expr,
    FunctionCall,
    InSelect,
    Name,
    Prefix,
    Quantified,
    ScalarSelect,
    Select,
)
from headrace.language.syntax.refusals import fail, refuse
from headrace.schema import BOOLEAN


@dataclass(frozen=True, slots=True)
class Membership:
    """A `SemijoinColumn` without the node below."""

    right: RelationScan
    name: str
    condition: Expression | None
    test: Call | None


@dataclass(slots=True)
class SubqueryBinder:
    """Collects the subqueries of one SELECT; `scope` has its sources.

    `inner` binds a SELECT over a changing relation, `sources` the FROM of one.
    """

    names: Names
    scope: Scope
    functions: Mapping[str, UserFunction]
    inner: Callable[[Select], Query]
    sources: Callable[[Select], Scope]
    subqueries: list[Membership] = field(default_factory=list)
    semijoins: list[Semijoin] = field(default_factory=list)
    joins: list[SubqueryJoin] = field(default_factory=list)
    values: dict[Span, Expression] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)

    @property
    def reads_changes(self) -> bool:
        """Whether a SELECT inside an expression is a join."""
        return bool(self.semijoins or self.joins)

    def where(self, node: Expr, binder: ExpressionBinder) -> Expression | None:
        """The rest of a WHERE without its semijoins, which are collected; None when there is no rest."""
        rest = [factor for factor in conjuncts_of(node) if not self._joined(factor, binder)]
        if not rest:
            return None
        return binder.condition(rest[0] if len(rest) == 1 else Chain("and", tuple(rest), node.span), "WHERE")

    def _joined(self, factor: Expr, binder: ExpressionBinder) -> bool:
        """Whether a factor of WHERE is a semijoin or an antijoin, which is then among the joins."""
        negated = isinstance(factor, Prefix) and factor.operator == "not"
        test = factor.operand if isinstance(factor, Prefix) and negated else factor
        if not isinstance(test, InSelect | Exists) or not self._changes(test.select):
            return False
        if isinstance(test, Exists):
            correlation = self._correlation(test.select, binder)
            self.joins.append(exists(test, "anti" if negated else "semi", correlation, self.inner))
            return True
        if len(test.operands) > 1 and negated != test.negated:
            refuse(
                "NOT IN over a changing relation compares one value",
                test.operands[0].span.to(test.operands[-1].span),
                "For several write NOT EXISTS (SELECT 1 FROM … WHERE r.a = s.a AND r.b = s.b).",
            )
        pairs = semijoin(test, binder, self.scope, self.inner, self._alias())
        if negated == test.negated:
            self.semijoins.append(pairs)
            return True
        if len(pairs.conditions) > 1:
            fail("NOT IN compares one value", test.span, "Name a column before NOT IN, not a source.")
        (operand,) = operands_of(test, self.scope)
        self.joins += not_in(pairs, binder.bind(operand), self._alias())
        return True

    def _correlation(self, select: Select, outer: ExpressionBinder) -> Correlation:
        inside = Scope() if select.source.sets is not None else self.sources(select)
        return Correlation(inside, self.scope, outer, self.functions, self._alias())

    def value(self, node: ScalarSelect | Quantified, outer: ExpressionBinder) -> Expression:
        """The value of a SELECT, or the truth of a comparison with ALL or ANY of one; bound once.

        Raises `UnsupportedQuery` for a SELECT over stored relations alone.
        """
        if node.span not in self.values:
            if not self._changes(node.select):
                refuse(
                    "a SELECT as a value is of streams and relations that change",
                    node.select.span,
                    "JOIN the stored relation.",
                )
            correlation = self._correlation(node.select, outer)
            if isinstance(node, Quantified):
                join, value = quantified(node, outer, correlation, self.inner)
            else:
                join, value = scalar(node, correlation, self.inner)
            self.joins.append(join)
            self.values[node.span] = value
        return self.values[node.span]

    def bind(self, node: Subquery, outer: ExpressionBinder) -> Expression:
        """The column that holds the truth of a subquery.

        Raises `UserError` for unknown names, `UnsupportedQuery` for subqueries over anything but a relation.
        """
        if isinstance(node, ScalarSelect | Quantified):
            return self.value(node, outer)
        select = node.select
        if self._changes(select):
            self._refuse(node)
        definition = self._relation(select)
        self._check_plain(select)
        alias = self._alias()
        inner = _Inner(outer, RelationScan(definition.name, alias, definition.schema), select)
        binder = ExpressionBinder(inner.column, self._no_aggregate, self.functions)
        condition = None if select.where is None else binder.condition(select.where, "WHERE")
        test = self._test(node, outer, binder, alias) if isinstance(node, InSelect) else None
        if isinstance(node, Exists):
            for item in _items(select):
                if item is not None:
                    binder.bind(item)
        membership = Membership(inner.scan, f"{alias}.matched", condition, test)
        self.subqueries.append(membership)
        column = Column(membership.name, BOOLEAN)
        negated = isinstance(node, InSelect) and node.negated
        return Call("not", (column,), BOOLEAN) if negated else column

    def over(self, node: Node) -> Node:
        """The node with the columns of all subqueries over stored relations above it."""
        for membership in self.subqueries:
            node = SemijoinColumn(
                node, membership.right, membership.name, membership.condition, membership.test
            )
        return node

    def _test(
        self, node: InSelect, outer: ExpressionBinder, binder: ExpressionBinder, alias: str
    ) -> Call | None:
        operands = operands_of(node, self.scope)
        if len(operands) != 1:
            remedy = "For several write EXISTS (SELECT 1 FROM r WHERE r.a = s.a AND r.b = s.b)."
            refuse(
                "IN compares one column with a stored relation",
                node.operands[0].span.to(node.operands[-1].span),
                remedy.replace("EXISTS", "NOT EXISTS") if node.negated else remedy,
            )
        items, table = _items(node.select), self._relation(node.select).schema
        item: Expr | None = items[0]
        if item is None and len(items) == 1 and len(table.names) == 1:
            item = Name((table.names[0],), node.select.span)
        if item is None or len(items) != 1:
            fail("the SELECT of IN has one column", node.select.span, "Name it: IN (SELECT id FROM r).")
        inner_value = binder.bind(item)
        if any(not name.startswith(f"{alias}.") for name in columns_of(inner_value)):
            fail(
                "the column that IN tests is one of its own SELECT",
                item.span,
                "Compare columns of the stream in the WHERE of the inner SELECT.",
            )
        test = outer.call("=", node.span, outer.bind(operands[0]), inner_value)
        assert isinstance(test, Call)
        return test

    def _alias(self) -> str:
        """An unused name for the inner relation: FROM or another subquery may read it too."""
        names = {source.alias.lower() for source in self.scope.sources} | self.named
        alias = next(f"in{index}" for index in range(len(names) + 1) if f"in{index}" not in names)
        self.named.add(alias)
        return alias

    def _changes(self, select: Select) -> bool:
        """True for a SELECT that reads more than stored relations; an unknown name counts as a stored relation."""
        sources = (select.source, *(join.source for join in select.joins))
        if any(source.select is not None or source.others or source.sets for source in sources):
            return True
        if len(sources) == 1 and select.beyond is None and not self._is_known(select.source.name):
            return False
        return any(self.names.relation(source.name) is None for source in sources)

    def _is_known(self, name: str) -> bool:
        definitions = self.names.stream(name), self.names.relation(name), self.names.query(name)
        return any(definition is not None for definition in definitions)

    def _relation(self, select: Select) -> RelationDefinition:
        relation = self.names.relation(select.source.name)
        if relation is None:
            name = select.source.name
            fail(f"there is no relation '{name}'", select.source.span, did_you_mean(name, self.names.known()))
        return relation

    def _check_plain(self, select: Select) -> None:
        """Raises `UnsupportedQuery` for clauses that a SELECT over a stored relation cannot have in WHERE."""
        trailers = (select.revisions, select.quality, select.shedding)
        trailer = next((clause.span for clause in trailers if clause is not None), None)
        beyond = select.beyond or select.emit_empty or trailer
        if beyond is None and (select.emit is not None or select.source.channel != "rows"):
            beyond = select.source.span if select.emit is None else select.span
        if beyond is not None:
            refuse(
                "a SELECT inside a condition has SELECT, one relation in FROM, and WHERE only",
                beyond,
                "JOIN the relation, or create one with the rows that the SELECT needs.",
            )
        for item in select.items:
            alias = select.source.alias or select.source.name
            if isinstance(item, AllColumns) and (item.qualifier or alias).lower() != alias.lower():
                fail(f"there is no source '{item.qualifier}' in FROM", item.span, f"There is: {alias}.")

    def _refuse(self, node: InSelect | Exists) -> NoReturn:
        """Raises `UnsupportedQuery` for a subquery over a changing relation that is no semijoin."""
        message = "a SELECT over what changes is a condition of WHERE by itself, combined with others by AND"
        remedy = "Write WHERE … AND k IN (SELECT …); in place of OR register a query for each side."
        refuse(message, node.select.span, remedy)

    def _no_aggregate(self, call: FunctionCall) -> Expression:
        refuse(
            f"the aggregate {call.name.upper()} is not available in a SELECT inside a condition",
            call.span,
            "Keep the aggregate in a relation of its own.",
        )


def _items(select: Select) -> list[Expr | None]:
    """The select list, with None for a *."""
    return [None if isinstance(item, AllColumns) else item.expression for item in select.items]


@dataclass(frozen=True, slots=True)
class _Inner:
    """Names inside a subquery: its own relation's first, then those around it."""

    outer: ExpressionBinder
    scan: RelationScan
    select: Select

    def column(self, name: Name) -> Expression:
        *qualifier, plain = name.parts
        alias = self.select.source.alias or self.select.source.name
        if not qualifier or [part.lower() for part in qualifier] == [alias.lower()]:
            column = self.scan.table.find(plain)
            if column is not None:
                return Column(f"{self.scan.alias}.{column.name}", column.type)
            if qualifier:
                fail(
                    f"there is no column '{plain}' in '{alias}'",
                    name.span,
                    did_you_mean(plain, self.scan.table.names),
                )
        return self.outer.column(name)
