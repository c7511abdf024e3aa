"""What does grouping mean: which keys, which aggregates, and what may be read above them?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from headrace.algebra.aggregates import (
    APPROXIMATE,
    DEFAULT_WITHIN,
    OF_CONDITIONS,
    AggregateCall,
    NamedAggregate,
    canonical,
    result_type,
)
from headrace.algebra.expressions import Call, Case, Cast, Column, Expression, Literal, Named, children
from headrace.errors import Span, UnsupportedQuery, UserError
from headrace.language.ast import FunctionCall
from headrace.language.bind_expressions import ExpressionBinder, cast, joined, located
from headrace.schema import BIGINT, BOOLEAN


@dataclass(slots=True)
class Grouping:
    """Collects the aggregates of a query, each once, and rewrites expressions to read keys and aggregates.

    `inner` binds arguments, over the rows that are grouped; `bounds` are the window's columns, constant per window.
    """

    inner: ExpressionBinder
    bounds: frozenset[str]
    keys: list[Named] = field(default_factory=list)
    aggregates: list[NamedAggregate] = field(default_factory=list)

    def add_key(self, expression: Expression) -> None:
        """Group by one more expression; the same one again changes nothing."""
        if all(key.expression != expression for key in self.keys):
            self.keys.append(Named(f"key{len(self.keys)}", expression))

    def aggregate(self, node: FunctionCall) -> Expression:
        """The column that holds an aggregate."""
        with located(node.span, self.inner.text):
            return self._column(self._call(node))

    def _column(self, call: AggregateCall) -> Expression:
        for known in self.aggregates:
            if known.call == call:
                return Column(known.name, call.type)
        added = NamedAggregate(f"agg{len(self.aggregates)}", call)
        self.aggregates.append(added)
        return Column(added.name, call.type)

    @property
    def _over_group(self) -> ExpressionBinder:
        """Binds conditions that may compare a row with aggregates of its group: correlated aggregates."""
        return replace(self.inner, aggregate=self.aggregate)

    def _call(self, node: FunctionCall) -> AggregateCall:
        condition = None
        if node.condition is not None:
            condition = self._over_group.condition(node.condition, "the condition of FILTER")
        if node.name.lower() == "count_if":
            return self._count_if(node, condition)
        function = canonical(node.name)
        if function in APPROXIMATE:
            return self._approximate(function, node, condition)
        assert function is not None
        if node.star:
            if function != "count":
                raise UserError(f"{node.name.upper()} does not take *", remedy="Only COUNT takes *.")
            return AggregateCall("count", None, result_type("count", None), condition=condition)
        arguments = [self.inner.bind(argument) for argument in node.arguments]
        share, arguments = _share(node, function, arguments)
        if function == "count" and arguments and not node.distinct:
            return self._count(arguments, condition)
        if len(arguments) != 1:
            if function == "count" and arguments:
                raise UnsupportedQuery("COUNT(DISTINCT …) of several columns is not available yet")
            raise UserError(f"{node.name.upper()} takes one argument, not {len(arguments)}")
        argument = arguments[0]
        if node.name.lower() in OF_CONDITIONS and argument.type.name not in ("BOOLEAN", "VOID"):
            raise UserError(f"{node.name.upper()} needs a condition, not {argument.type}")
        if function == "mode" and node.distinct:
            raise UserError(
                "MODE does not take DISTINCT", remedy="Every distinct value occurs once; MIN is the least."
            )
        return AggregateCall(
            function, argument, result_type(function, argument.type), node.distinct, condition, share=share
        )

    def bound(self, node: FunctionCall) -> Expression:
        """The column that holds the error bound of an approximate aggregate."""
        value = self.aggregate(node)
        known = next(item.call for item in self.aggregates if Column(item.name, item.call.type) == value)
        return self._column(replace(known, part="bound"))

    def _approximate(self, function: str, node: FunctionCall, condition: Expression | None) -> AggregateCall:
        within, what = node.within or DEFAULT_WITHIN, function.upper()
        if node.distinct:
            raise UserError(f"{what} does not take DISTINCT")
        if node.star and function != "approx_count":
            raise UserError(f"{what} does not take *", remedy="Only counts take *.")
        if node.star:
            return AggregateCall(function, None, BIGINT, condition=condition, within=within)
        if len(node.arguments) != 1:
            raise UserError(f"{what} takes one argument, not {len(node.arguments)}")
        argument = self.inner.bind(node.arguments[0])
        kind = result_type(function, argument.type)
        if function == "approx_sum":
            argument = cast(argument, BIGINT)
        return AggregateCall(function, argument, kind, condition=condition, within=within)

    def _count(self, arguments: list[Expression], condition: Expression | None) -> AggregateCall:
        """COUNT(a, b) counts the rows in which no argument is NULL; a constant never is."""
        asked = [item for item in arguments if not (isinstance(item, Literal) and item.value is not None)]
        kind = result_type("count", None)
        if len(asked) == 1:
            return AggregateCall("count", asked[0], kind, condition=condition)
        present = tuple(Call("isnotnull", (item,), BOOLEAN) for item in asked)
        factors = present if condition is None else (condition, *present)
        return AggregateCall("count", None, kind, condition=joined("and", factors) if factors else None)

    def _count_if(self, node: FunctionCall, condition: Expression | None) -> AggregateCall:
        if len(node.arguments) != 1 or node.star or node.distinct:
            raise UserError("COUNT_IF takes one condition")
        counted = self._over_group.condition(node.arguments[0], "the argument of COUNT_IF")
        factors = (counted,) if condition is None else (condition, counted)
        return AggregateCall("count", None, result_type("count", None), condition=joined("and", factors))

    def above(self, expression: Expression, seen: dict[str, Span], fallback: Span) -> Expression:
        """The expression over keys and aggregates.

        Raises `UserError` for a column that is neither grouped nor aggregated; `seen` tells where it was read.
        """
        known = {key.expression: Column(key.name, key.expression.type) for key in self.keys}
        own = {key.name for key in self.keys} | {item.name for item in self.aggregates} | self.bounds

        def change(node: Expression) -> Expression | None:
            if (key := known.get(node)) is not None:
                return key
            if isinstance(node, Column) and node.name not in own:
                plain = node.name.rpartition(".")[2]
                raise UserError(
                    f"the column '{plain}' is neither in GROUP BY nor in an aggregate",
                    span=seen.get(node.name, fallback),
                    text=self.inner.text,
                    remedy=f"Add {plain} to GROUP BY, or take for example MAX({plain}).",
                )
            return None

        return rewritten(expression, change)


def _share(
    node: FunctionCall, function: str, arguments: list[Expression]
) -> tuple[float | None, list[Expression]]:
    """Which percentile is asked, and the arguments without it; MEDIAN is the half."""
    if function != "percentile" or not arguments:
        return None, arguments
    if node.name.lower() == "median":
        return 0.5, arguments
    if len(arguments) != 2:
        raise UserError(
            f"PERCENTILE takes a number and which percentile, not {len(arguments)} arguments",
            remedy="For example PERCENTILE(x, 0.9).",
        )
    asked = arguments[1]
    if not (isinstance(asked, Literal) and asked.type.is_numeric and asked.value is not None):
        raise UserError(
            "which percentile must be a constant between 0 and 1", remedy="Write for example 0.9."
        )
    return float(str(asked.value)), arguments[:1]


def rewritten(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Rebuild top-down: what `change` replaces is not looked into."""
    found = change(expression)
    if found is not None:
        return found
    parts = tuple(rewritten(part, change) for part in children(expression))
    match expression:
        case Call():
            return replace(expression, arguments=parts)
        case Cast():
            return replace(expression, argument=parts[0])
        case Case():
            pairs = tuple(zip(parts[:-1:2], parts[1:-1:2], strict=True))
            return replace(expression, branches=pairs, otherwise=parts[-1])
        case _:
            return expression
