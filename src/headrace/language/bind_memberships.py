"""What does a SELECT inside WHERE mean? A column of truth for each: is there such a row in the relation?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from headrace.algebra.expressions import Call, Column, Expression, columns_of
from headrace.algebra.functions import UserFunction
from headrace.algebra.query import Mark, Node, RelationScan
from headrace.catalog.definitions import RelationDefinition
from headrace.errors import Span, UnsupportedQuery, UserError, did_you_mean
from headrace.language.ast import Exists, Expr, FunctionCall, InSelect, Name, Subselect
from headrace.language.bind_expressions import ExpressionBinder
from headrace.language.scope import Names, Scope
from headrace.schema import BOOLEAN


@dataclass(frozen=True, slots=True)
class Membership:
    """A `Mark` without the node it stands over."""

    right: RelationScan
    name: str
    condition: Expression | None
    test: Call | None


@dataclass(slots=True)
class Memberships:
    """Collects the subqueries of one WHERE; `scope` are the sources around them."""

    names: Names
    scope: Scope
    functions: Mapping[str, UserFunction]
    found: list[Membership] = field(default_factory=list)

    def bind(self, node: InSelect | Exists, outer: ExpressionBinder) -> Expression:
        """The column that holds the truth of a subquery.

        Raises `UserError` for unknown names, `UnsupportedQuery` for subqueries over anything but a relation.
        """
        select = node.select
        definition = self._relation(select)
        alias = self._alias()
        inner = _Inner(outer, RelationScan(definition.name, alias, definition.schema), select)
        binder = ExpressionBinder(outer.text, inner.column, self._no_aggregate, self.functions)
        condition = None if select.where is None else binder.condition(select.where, "WHERE")
        test = self._test(node, outer, binder, alias) if isinstance(node, InSelect) else None
        if isinstance(node, Exists):
            for item in select.items:
                if item is not None:
                    binder.bind(item)
        found = Membership(inner.scan, f"{alias}.matched", condition, test)
        self.found.append(found)
        column = Column(found.name, BOOLEAN)
        negated = isinstance(node, InSelect) and node.negated
        return Call("not", (column,), BOOLEAN) if negated else column

    def over(self, node: Node) -> Node:
        """The node with all of them above it."""
        for each in self.found:
            node = Mark(node, each.right, each.name, each.condition, each.test)
        return node

    def _test(
        self, node: InSelect, outer: ExpressionBinder, binder: ExpressionBinder, alias: str
    ) -> Call | None:
        items, table = node.select.items, self._relation(node.select).schema
        item: Expr | None = items[0]
        if item is None and len(items) == 1 and len(table.names) == 1:
            item = Name((table.names[0],), node.select.span)
        if item is None or len(items) != 1:
            self._fail("the SELECT of IN has one column", node.select.span, "Name it: IN (SELECT id FROM r).")
        member = binder.bind(item)
        if any(not name.startswith(f"{alias}.") for name in columns_of(member)):
            self._fail(
                "the column that IN looks into is one of its own SELECT",
                item.span,
                "Compare columns of the stream in the WHERE of the inner SELECT.",
            )
        test = outer.call("=", node.span, outer.bind(node.operand), member)
        assert isinstance(test, Call)
        return test

    def _alias(self) -> str:
        """A name of its own for the relation: it may stand in FROM too, and be asked more than once."""
        taken = {source.alias.lower() for source in self.scope.sources} | {
            each.right.alias for each in self.found
        }
        return next(f"in{place}" for place in range(len(taken) + 1) if f"in{place}" not in taken)

    def _relation(self, select: Subselect) -> RelationDefinition:
        found = self.names.relation(select.name)
        if found is not None:
            return found
        if self.names.stream(select.name) is not None or self.names.query(select.name) is not None:
            raise UnsupportedQuery(
                f"a SELECT inside a condition reads a relation, and '{select.name}' is none",
                span=select.source,
                text=self.scope.text,
                remedy="What a stream holds changes: keep it in a relation, or JOIN.",
            )
        raise UserError(
            f"there is no relation '{select.name}'",
            span=select.source,
            text=self.scope.text,
            remedy=did_you_mean(select.name, self.names.known()),
        )

    def _no_aggregate(self, call: FunctionCall) -> Expression:
        raise UnsupportedQuery(
            f"the aggregate {call.name.upper()} is not available in a SELECT inside a condition",
            span=call.span,
            text=self.scope.text,
            remedy="Keep the aggregate in a relation of its own.",
        )

    def _fail(self, message: str, span: Span, remedy: str | None = None) -> NoReturn:
        raise UserError(message, span=span, text=self.scope.text, remedy=remedy)


@dataclass(frozen=True, slots=True)
class _Inner:
    """Names inside a subquery: its own relation's first, then those around it."""

    outer: ExpressionBinder
    scan: RelationScan
    select: Subselect

    def column(self, name: Name) -> Expression:
        *qualifier, plain = name.parts
        alias = self.select.alias or self.select.name
        if not qualifier or [part.lower() for part in qualifier] == [alias.lower()]:
            own = self.scan.table.find(plain)
            if own is not None:
                return Column(f"{self.scan.alias}.{own.name}", own.type)
            if qualifier:
                raise UserError(
                    f"there is no column '{plain}' in '{alias}'",
                    span=name.span,
                    text=self.outer.text,
                    remedy=did_you_mean(plain, self.scan.table.names),
                )
        return self.outer.column(name)
