"""Binding of GROUP BY and of aggregate functions: `Grouping` collects a query's keys and aggregate calls, checked
and typed, each once, and rewrites the expressions above them to read their columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from fractions import Fraction
from typing import Final
from typing import Literal as Choice

from headrace.algebra.expressions.aggregates import (
    APPROXIMATE,
    BELONGS,
    DEFAULT_WITHIN,
    LEAST_WITHIN,
    MAY_COMPARE,
    MOST_FREQUENT,
    OF_BITS,
    OF_CONDITIONS,
    SHARES,
    AggregateCall,
    NamedAggregate,
    canonical,
    result_type,
)
from headrace.algebra.expressions.correlated import depends_on
from headrace.algebra.expressions.expression import (
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Literal,
    Named,
    children,
    columns_of,
)
from headrace.dataclass import dataclass
from headrace.errors import Span, UserError
from headrace.language.binder.expressions.expression_binder import ExpressionBinder, cast, joined, place
from headrace.language.binder.time_series import ZSCORE, series_call, zscore_parts
from headrace.language.syntax.ast import FunctionCall
from headrace.language.syntax.refusals import fail, refuse
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, STRING

_NOT_DISTINCT: Final = ("mode", "top_k", "heavy_hitters", "l1_norm", "l2_norm")


@dataclass(slots=True)
class Grouping:
    """Collects the aggregates of a query, each once, and rewrites expressions to read keys and aggregates.

    `inner` binds arguments, over the rows that are grouped; `bounds` are the window's columns, constant per window;
    `stream` is the alias of the stream.
    """

    inner: ExpressionBinder
    bounds: frozenset[str]
    stream: str
    keys: list[Named] = field(default_factory=list)
    aggregates: list[NamedAggregate] = field(default_factory=list)

    def is_bound(self, expression: Expression) -> bool:
        """Whether it reads window bounds and nothing else: it is the same for all rows of a window."""
        columns = columns_of(expression)
        return bool(columns) and columns <= self.bounds

    def check_without_bounds(self, expression: Expression, span: Span, what: str, remedy: str) -> None:
        """Raises `UnsupportedQuery` for an expression of rows that reads window bounds, known only when the window closes."""
        if columns_of(expression) & self.bounds:
            refuse(
                f"{what} reads the bounds of a window row by row, and they are known when it closes",
                span,
                remedy,
            )

    def add_key(self, expression: Expression) -> None:
        """Group by an expression; a second time changes nothing."""
        if all(key.expression != expression for key in self.keys):
            self.keys.append(Named(f"key{len(self.keys)}", expression))

    def aggregate(self, node: FunctionCall) -> Expression:
        """The column that holds an aggregate."""
        try:
            return (
                self._zscore(node) if node.name.lower() == ZSCORE else self._of_group(self._call(node), node)
            )
        except UserError as error:
            place(error, node.span)
            raise

    def count_rows(self, condition: Expression | None = None) -> Expression:
        """The column that holds how many rows a group has."""
        return self._column(AggregateCall("count", None, result_type("count", None), condition=condition))

    def _of_group(self, call: AggregateCall, node: FunctionCall) -> Expression:
        """The column of an aggregate; MIN and MAX of a window bound are the bound where a row counts, else NULL.

        Raises `UnsupportedQuery` for other aggregates over bounds.
        """
        remedy = "A bound is the same for all rows of a window: read it without an aggregate, or in HAVING."
        if call.condition is not None:
            self.check_without_bounds(call.condition, node.span, "FILTER", remedy)
        value = call.argument
        if value is not None and self.is_bound(value) and call.function in ("min", "max"):
            some = Call(">", (self.count_rows(call.condition), Literal(0, BIGINT)), BOOLEAN)
            return Case(((some, value),), Literal(None, call.type), call.type)
        if value is not None:
            self.check_without_bounds(value, node.span, node.name.upper(), remedy)
        return self._column(call)

    def _zscore(self, node: FunctionCall) -> Expression:
        """The distance of the last value from the mean in standard deviations; NULL where all values are equal."""
        arguments = [self.inner.bind(argument) for argument in node.arguments]
        for argument in arguments:
            self.check_without_bounds(argument, node.span, "ZSCORE", "Subtract bounds without an aggregate.")
        parts = zscore_parts(node, arguments, self._condition(node), self.stream)
        last, mean, spread = (self._column(call) for call in parts)
        away = self.inner.call("-", node.span, last, mean)
        divisor = self.inner.call("nullif", node.span, spread, Literal(0.0, DOUBLE))
        return self.inner.call("/", node.span, away, divisor)

    def _condition(self, node: FunctionCall) -> Expression | None:
        if node.condition is None:
            return None
        return self._over_group.condition(node.condition, "the condition of FILTER")

    def _column(self, call: AggregateCall) -> Expression:
        for item in self.aggregates:
            if item.call == call:
                return Column(item.name, call.type)
        added = NamedAggregate(f"agg{len(self.aggregates)}", call)
        self.aggregates.append(added)
        return Column(added.name, call.type)

    @property
    def _over_group(self) -> ExpressionBinder:
        """Binds conditions that may compare a row with aggregates of its group: correlated aggregates."""
        return replace(self.inner, aggregate=self.aggregate)

    def _call(self, node: FunctionCall) -> AggregateCall:
        condition = self._condition(node)
        function = canonical(node.name)
        if function in APPROXIMATE:
            return self._approximate(function, node, condition)
        if node.name.lower() == "count_if":
            call = self._count_if(node, condition)
        else:
            call = self._exact(function, node, condition)
        return call if node.within is None else self._within(node, call)

    def _within(self, node: FunctionCall, call: AggregateCall) -> AggregateCall:
        """An approximate aggregate, or an exact one with WITHIN: one that compares rows with their group, or a norm."""
        name = node.name.upper()
        if call.function == "l2_norm":
            _check_within(name, call.function, node.within)
        elif call.function not in MAY_COMPARE or not depends_on(call, self.aggregates):
            raise UserError(
                f"{name} is exact here: {BELONGS}",
                remedy="Leave it out, or write for example COUNT(*) FILTER (WHERE x > AVG(x)) WITHIN 1 PERCENT.",
            )
        return replace(call, within=node.within)

    def _exact(self, function: str | None, node: FunctionCall, condition: Expression | None) -> AggregateCall:
        arguments = [self.inner.bind(argument) for argument in node.arguments]
        series = series_call(node, arguments, condition, self.stream)
        if series is not None:
            return series
        assert function is not None
        if node.star:
            if function != "count":
                raise UserError(f"{node.name.upper()} does not take *", remedy="Only COUNT takes *.")
            return AggregateCall("count", None, result_type("count", None), condition=condition)
        share, arguments = _share(node, function, arguments)
        most, arguments = _most(function, node, arguments)
        if function == "count" and arguments and not node.distinct:
            return self._count(arguments, condition)
        if len(arguments) != 1:
            if function == "count" and arguments:
                return self._count_distinct(node, arguments, condition)
            raise UserError(f"{node.name.upper()} takes one argument, not {len(arguments)}")
        argument = arguments[0]
        if node.name.lower() in OF_CONDITIONS and argument.type.name not in ("BOOLEAN", "VOID"):
            raise UserError(f"{node.name.upper()} needs a condition, not {argument.type}")
        if function in _NOT_DISTINCT and node.distinct:
            raise UserError(
                f"{function.upper()} does not take DISTINCT",
                remedy="Every distinct value occurs once; MIN is the least.",
            )
        kind = result_type(function, argument.type)
        if most is not None:
            argument = cast(argument, STRING)
        if function in OF_BITS:
            argument = cast(argument, kind)
        return AggregateCall(function, argument, kind, node.distinct, condition, share=share, most=most)

    def bound(self, node: FunctionCall) -> Expression:
        """The column that holds the error bound of an approximate aggregate."""
        value = self.aggregate(node)
        call = next(item.call for item in self.aggregates if Column(item.name, item.call.type) == value)
        kind = call.type if call.type.is_fractional else BIGINT
        return self._column(replace(call, type=kind, part="bound"))

    def estimate(self, index: int) -> None:
        """Make an aggregate an estimate over weighted rows: WITH SHEDDING."""
        item = self.aggregates[index]
        call = replace(item.call, type=DOUBLE, part="estimate")
        self.aggregates[index] = NamedAggregate(item.name, call)

    def companion_column(self, name: str | None, part: Choice["error", "kept"]) -> Expression:
        """The column of the error of the aggregate of that name, or of the share of the group's rows that was used."""
        named = next((item.call for item in self.aggregates if item.name == name), None)
        call = named or AggregateCall("count", None, DOUBLE)
        return self._column(replace(call, type=DOUBLE, part=part))

    def _approximate(self, function: str, node: FunctionCall, condition: Expression | None) -> AggregateCall:
        within, what = node.within or DEFAULT_WITHIN, function.upper()
        if node.distinct:
            raise UserError(f"{what} does not take DISTINCT")
        if node.star and function != "approx_count":
            raise UserError(f"{what} does not take *", remedy="Only counts take *.")
        if node.star:
            return AggregateCall(function, None, BIGINT, condition=condition, within=within)
        _check_within(what, function, within)
        arguments = [self.inner.bind(argument) for argument in node.arguments]
        share, arguments = _share(node, function, arguments)
        most, arguments = _most(function, node, arguments)
        if len(arguments) != 1:
            raise UserError(f"{what} takes one argument, not {len(arguments)}")
        argument = arguments[0]
        kind = result_type(function, argument.type)
        if function == "approx_sum":
            argument = cast(argument, BIGINT)
        if most is not None:
            argument = cast(argument, STRING)
        return AggregateCall(
            function, argument, kind, condition=condition, within=within, share=share, most=most
        )

    def _count(self, arguments: list[Expression], condition: Expression | None) -> AggregateCall:
        """COUNT(a, b) counts the rows in which no argument is NULL; a constant is never NULL."""
        nullable = [item for item in arguments if not (isinstance(item, Literal) and item.value is not None)]
        kind = result_type("count", None)
        if len(nullable) == 1:
            return AggregateCall("count", nullable[0], kind, condition=condition)
        present = tuple(Call("isnotnull", (item,), BOOLEAN) for item in nullable)
        factors = present if condition is None else (condition, *present)
        return AggregateCall("count", None, kind, condition=joined("and", factors) if factors else None)

    def _count_distinct(
        self, node: FunctionCall, arguments: list[Expression], condition: Expression | None
    ) -> AggregateCall:
        """COUNT(DISTINCT a, b) counts the distinct pairs without a NULL."""
        named = [
            part
            for number, item in enumerate(arguments, 1)
            for part in (Literal(f"col{number}", STRING), item)
        ]
        together = self.inner.call("named_struct", node.span, *named)
        present = tuple(Call("isnotnull", (item,), BOOLEAN) for item in arguments)
        factors = present if condition is None else (condition, *present)
        return AggregateCall("count", together, result_type("count", None), True, joined("and", factors))

    def _count_if(self, node: FunctionCall, condition: Expression | None) -> AggregateCall:
        if len(node.arguments) != 1 or node.star or node.distinct:
            raise UserError("COUNT_IF takes one condition")
        counted = self._over_group.condition(node.arguments[0], "the argument of COUNT_IF")
        factors = (counted,) if condition is None else (condition, counted)
        return AggregateCall("count", None, result_type("count", None), condition=joined("and", factors))

    def above(self, expression: Expression, seen: dict[str, Span], fallback: Span) -> Expression:
        """The expression over keys and aggregates.

        Raises `UserError` for a column that is neither grouped nor aggregated; `seen` has the place of each column.
        """
        keys = {key.expression: Column(key.name, key.expression.type) for key in self.keys}
        readable = {key.name for key in self.keys} | {item.name for item in self.aggregates} | self.bounds

        def change(node: Expression) -> Expression | None:
            if (key := keys.get(node)) is not None:
                return key
            if isinstance(node, Column) and node.name not in readable:
                plain = node.name.rpartition(".")[2]
                fail(
                    f"the column '{plain}' is neither in GROUP BY nor in an aggregate",
                    seen.get(node.name, fallback),
                    f"Add {plain} to GROUP BY, or take for example MAX({plain}).",
                )
            return None

        return rewritten(expression, change)


def _share(
    node: FunctionCall, function: str, arguments: list[Expression]
) -> tuple[float | None, list[Expression]]:
    """The fraction of a percentile, and the arguments without it; 0.5 for MEDIAN."""
    if function not in SHARES or not arguments:
        return None, arguments
    if node.name.lower() == "median":
        return 0.5, arguments
    if len(arguments) != 2:
        what, which = (
            ("a value", "a share") if function == "heavy_hitters" else ("a number", "which percentile")
        )
        raise UserError(
            f"{node.name.upper()} takes {what} and {which}, not {len(arguments)} arguments",
            remedy=f"For example {node.name.upper()}(x, 0.9).",
        )
    share = arguments[1]
    if not (isinstance(share, Literal) and share.type.is_numeric and share.value is not None):
        what = "the share" if function == "heavy_hitters" else "which percentile"
        raise UserError(f"{what} must be a constant between 0 and 1", remedy="Write for example 0.9.")
    return float(str(share.value)), arguments[:1]


def _most(
    function: str, node: FunctionCall, arguments: list[Expression]
) -> tuple[int | None, list[Expression]]:
    """The number of most frequent values, and the arguments without it."""
    if function not in ("top_k", "approx_top_k"):
        return None, arguments
    name = node.name.upper()
    if len(arguments) != 2:
        raise UserError(
            f"{name} takes a value and how many of the most frequent, not {len(arguments)} arguments",
            remedy=f"For example {name}(x, 10).",
        )
    limit = arguments[1]
    number = limit.value if isinstance(limit, Literal) and limit.type.is_integer else None
    if not isinstance(number, int) or not 1 <= number <= MOST_FREQUENT:
        raise UserError(
            f"how many of the most frequent must be a constant from 1 to {MOST_FREQUENT}",
            remedy="Write for example 10.",
        )
    return number, arguments[:1]


def _check_within(name: str, function: str, within: Fraction | None) -> None:
    least = LEAST_WITHIN.get(function)
    if least is not None and within is not None and within < least:
        raise UserError(
            f"{name} is not available within less than {float(100 * least):g} percent: a sketch that good takes more than a megabyte",
            remedy="Allow a greater error, or leave WITHIN out and count exactly.",
        )


def rewritten(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Rebuild top-down; the replacements of `change` are not searched."""
    replacement = change(expression)
    if replacement is not None:
        return replacement
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
