"""The binder of expressions, from the syntax tree to the typed algebra: names become columns, operators become
functions, implicit conversions become casts. Aggregates and inner SELECTs are passed to callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from decimal import Decimal
from typing import Final, TypeAlias
from typing import Literal as Choice

from headrace.algebra.expressions.aggregates import is_aggregate
from headrace.algebra.expressions.expression import Call, Case, Cast, Column, Expression, Literal
from headrace.algebra.functions.resolve import UserFunction, can_cast, common_type, resolve
from headrace.dataclass import dataclass
from headrace.errors import Span, UserError, did_you_mean
from headrace.language.binder.expressions.time_zones import expression_in
from headrace.language.binder.expressions.unsupported_functions import refusal, refuse_function_of_others
from headrace.language.parser.expressions import parse_expression
from headrace.language.parser.primaries import WINDOWS
from headrace.language.syntax.ast import (
    Between,
    CaseWhen,
    CastTo,
    Chain,
    Constant,
    ConstantList,
    Exists,
    Expr,
    Extract,
    FunctionCall,
    Infix,
    InSelect,
    Is,
    Matches,
    Name,
    OneOf,
    Prefix,
    Quantified,
    ScalarSelect,
    SessionWindow,
    StartingWindow,
)
from headrace.language.syntax.refusals import fail, mistakes_in, refuse
from headrace.schema import BOOLEAN, DOUBLE, STRING, Schema, Type

Subquery: TypeAlias = InSelect | Exists | ScalarSelect | Quantified
_EXTRACTED: Final = {
    **{name: name for name in ("year", "quarter", "month", "day", "hour", "minute")},
    "years": "year",
    "months": "month",
    "days": "day",
    "hours": "hour",
    "minutes": "minute",
    "week": "weekofyear",
    "weeks": "weekofyear",
    "doy": "dayofyear",
    "dow": "dayofweek",
    "dayofweek": "dayofweek",
}
_TRUTH: Final = {"true": Literal(True, BOOLEAN), "false": Literal(False, BOOLEAN)}


@contextmanager
def located(span: Span) -> Iterator[None]:
    """Adds this place to errors without one."""
    try:
        yield
    except UserError as error:
        place(error, span)
        raise


def place(error: UserError, span: Span) -> None:
    """Add a place to one error. A context manager would take longer than most of what it encloses."""
    if error.span is None:
        error.span = span


def cast(value: Expression, kind: Type, *, safe: bool = False) -> Expression:
    """The value as `kind`: itself when it is, a constant where the conversion is exact, else a Cast."""
    if value.type is kind or value.type == kind:
        return value
    if isinstance(value, Literal):
        folded = _folded(value, kind)
        if folded is not None:
            return folded
    return Cast(value, kind, safe)


def joined(operator: Choice["and", "or"], operands: Iterable[Expression]) -> Expression:
    """The conjunction or disjunction of at least one operand, without the same operator directly inside."""
    flat: list[Expression] = []
    for operand in operands:
        inside = isinstance(operand, Call) and operand.function == operator
        flat += operand.arguments if isinstance(operand, Call) and inside else (operand,)
    return flat[0] if len(flat) == 1 else Call(operator, tuple(flat), BOOLEAN)


def _folded(literal: Literal, kind: Type) -> Literal | None:
    value = literal.value
    if value is None:
        return Literal(None, kind)
    if literal.type.is_integer and isinstance(value, int):
        if kind.is_integer and ("TINYINT", "SMALLINT", "INT", "BIGINT").index(literal.type.name) < (
            "TINYINT",
            "SMALLINT",
            "INT",
            "BIGINT",
        ).index(kind.name):
            return Literal(value, kind)
        if kind == DOUBLE:
            return Literal(float(value), DOUBLE)
        if kind.name == "DECIMAL" and len(str(abs(value))) <= kind.precision - kind.scale:
            return Literal(Decimal(value).quantize(Decimal(1).scaleb(-kind.scale)), kind)
    if literal.type.name == "DECIMAL" and isinstance(value, Decimal):
        if kind == DOUBLE:
            return Literal(float(value), DOUBLE)
        digits = kind.precision - kind.scale
        if (
            kind.name == "DECIMAL"
            and kind.scale >= literal.type.scale
            and digits >= literal.type.precision - literal.type.scale
        ):
            return Literal(Decimal(f"{value:.{kind.scale}f}"), kind)
    return None


@dataclass(slots=True)
class ExpressionBinder:
    """Binds expressions of one clause. `column` finds names, `aggregate` deals with aggregate functions.

    `subselect` binds a SELECT inside a condition, where one is allowed; `seen` has the place where each column was first read;
    `window` is true for names of a whole window; `grouped_window` is that of GROUP BY, which may be written again.
    """

    column: Callable[[Name], Expression]
    aggregate: Callable[[FunctionCall], Expression]
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    subselect: Callable[[Subquery, ExpressionBinder], Expression] | None = None
    seen: dict[str, Span] = field(default_factory=dict)
    window: Callable[[Name], bool] | None = None
    grouped_window: StartingWindow | SessionWindow | None = None

    def condition(self, node: Expr, what: str) -> Expression:
        """A truth value; raises `UserError` when the expression is of another type."""
        value = self.bind(node)
        if value.type.name == "VOID":
            return Literal(None, BOOLEAN)
        if value.type != BOOLEAN:
            fail(f"{what} must be BOOLEAN, not {value.type}", node.span, "Compare the value with something.")
        return value

    def bind(self, node: Expr) -> Expression:
        """The typed expression; raises `UserError` at the place of the mistake."""
        match node:
            case Name() if self.window is not None and self.window(node):
                return self._whole_window(node)
            case Name():
                value = self.column(node)
                if isinstance(value, Column):
                    self.seen.setdefault(value.name, node.span)
                return value
            case Constant():
                return Literal(node.value, node.type)
            case ConstantList():
                return node.constants
            case Infix():
                return self.call(node.operator, node.span, self.bind(node.left), self.bind(node.right))
            case Chain():
                return self._chain(node)
            case Prefix():
                return self._prefix(node)
            case Between() | OneOf() | Matches() | Is():
                return self._predicate(node)
            case InSelect() | Exists() | ScalarSelect() | Quantified():
                return self._subselect(node)
            case FunctionCall():
                return self._function(node)
            case CastTo():
                return self._cast(node)
            case CaseWhen():
                return self._case(node)
            case Extract():
                return self._extract(node)

    def _subselect(self, node: Subquery) -> Expression:
        if self.subselect is None:
            refuse(
                "a SELECT inside an expression is allowed only in the WHERE or the select list of a query",
                node.select.span,
                "JOIN the relation instead.",
            )
        return self.subselect(node, self)

    def call(self, function: str, span: Span, *arguments: Expression) -> Expression:
        """A function of bound arguments, each cast to the type of its signature."""
        constants = tuple(item.value if isinstance(item, Literal) else None for item in arguments)
        try:
            signature = resolve(function, tuple([item.type for item in arguments]), constants, self.functions)
        except UserError as error:
            place(error, span)
            raise
        typed = tuple(cast(item, kind) for item, kind in zip(arguments, signature.arguments, strict=True))
        return Call(signature.function, typed, signature.result)

    def _chain(self, node: Chain) -> Expression:
        """All operands of nested chains of one operator as one function."""
        flat: list[Expr] = []
        pending = list(reversed(node.operands))
        while pending:
            operand = pending.pop()
            if isinstance(operand, Chain) and operand.operator == node.operator:
                pending.extend(reversed(operand.operands))
            else:
                flat.append(operand)
        word = node.operator.upper()
        return joined(node.operator, [self.condition(operand, f"an operand of {word}") for operand in flat])

    def _prefix(self, node: Prefix) -> Expression:
        if node.operator == "not":
            return self.call("not", node.span, self.condition(node.operand, "the operand of NOT"))
        operand = self.bind(node.operand)
        if node.operator == "~":
            return self.call("~", node.span, operand)
        negated = self.call("negate", node.span, operand)
        return negated if node.operator == "-" else cast(operand, negated.type)

    def _predicate(self, node: Between | OneOf | Matches | Is) -> Expression:
        operand = self.bind(node.operand)
        match node:
            case Between():
                low = self.call(">=", node.span, operand, self.bind(node.low))
                test: Expression = Call(
                    "and", (low, self.call("<=", node.span, operand, self.bind(node.high))), BOOLEAN
                )
            case OneOf():
                test = self.call("in", node.span, operand, *(self.bind(item) for item in node.items))
            case Matches():
                escape = () if node.escape is None else (self.bind(node.escape),)
                test = self.call(node.kind, node.span, operand, self.bind(node.pattern), *escape)
            case Is(what="null"):
                return self.call("isnotnull" if node.negated else "isnull", node.span, operand)
            case Is():
                test = self.call("<=>", node.span, operand, _TRUTH[node.what])
        return self.call("not", node.span, test) if node.negated else test

    def _function(self, node: FunctionCall) -> Expression:
        if self.grouped_window is not None and node.name.upper() in WINDOWS:
            from headrace.language.binder.expressions.window_calls import window_of_group  # noqa: PLC0415 - with the first one

            window = window_of_group(node, self.grouped_window)
            return self._whole_window(window) if node.field is None else self.bind(window)
        try:
            refusal(node.name)
            if node.name.lower() not in self.functions:
                refuse_function_of_others(node.name, len(node.arguments))
        except UserError as error:
            place(error, node.span)
            raise
        if is_aggregate(node.name):
            return self.aggregate(node)
        name = node.name.upper()
        for present, what in (
            (node.star, "*"),
            (node.distinct, "DISTINCT"),
            (node.condition is not None, "FILTER"),
        ):
            if present:
                fail(f"{name} does not take {what}: it is no aggregate function", node.span)
        if not node.name.isidentifier() or node.name.lower() in ("and", "or", "not", "in"):
            fail(f"there is no function '{node.name}'", node.span)
        arguments = [self.bind(argument) for argument in node.arguments]
        if node.name.lower() == "struct":
            return self._struct(node, arguments)
        return self.call(node.name, node.span, *arguments)

    def _struct(self, node: FunctionCall, values: Sequence[Expression]) -> Expression:
        """A struct: fields that are columns have their names, others are numbered, as in Spark."""
        named: list[Expression] = []
        for number, (written, value) in enumerate(zip(node.arguments, values, strict=True), start=1):
            name = written.parts[-1] if isinstance(written, Name) else f"col{number}"
            named += (Literal(name, STRING), value)
        return self.call("named_struct", node.span, *named)

    def _whole_window(self, name: Name) -> Expression:
        """`window` and `session_window` are Spark's structs of both bounds."""
        bounds = {part: replace(name, parts=(*name.parts, part)) for part in ("start", "end")}
        named = [item for part, bound in bounds.items() for item in (Literal(part, STRING), self.bind(bound))]
        return self.call("named_struct", name.span, *named)

    def _cast(self, node: CastTo) -> Expression:
        operand = self.bind(node.operand)
        if not can_cast(operand.type, node.type):
            fail(f"{operand.type} cannot be CAST to {node.type}", node.span)
        return cast(operand, node.type, safe=node.safe)

    def _case(self, node: CaseWhen) -> Expression:
        operand = None if node.operand is None else self.bind(node.operand)
        conditions = [
            self.condition(when, "the condition of WHEN")
            if operand is None
            else self.call("=", when.span, operand, self.bind(when))
            for when, _ in node.branches
        ]
        results = [self.bind(then) for _, then in node.branches]
        otherwise = None if node.otherwise is None else self.bind(node.otherwise)
        with located(node.span):
            kind = common_type([item.type for item in (*results, otherwise) if item is not None])
        branches = tuple((when, cast(then, kind)) for when, then in zip(conditions, results, strict=True))
        return Case(branches, Literal(None, kind) if otherwise is None else cast(otherwise, kind), kind)

    def _extract(self, node: Extract) -> Expression:
        operand = self.bind(node.operand)
        function = _EXTRACTED.get(node.field.lower())
        if function is None:
            remedy = (
                "Use second(t)."
                if node.field.lower().startswith("sec")
                else did_you_mean(node.field, _EXTRACTED)
            )
            fail(f"EXTRACT has no field '{node.field}'", node.span, remedy)
        return self.call(function, node.span, operand)


def bind_condition(node: Expr, schema: Schema, text: str, what: str) -> Expression:
    """A condition over the columns of a schema, by their plain names.

    Raises `UserError` for unknown columns, for aggregates, and when it is no truth value.
    """
    with mistakes_in(text):
        return _over_columns(schema, what).condition(node, what)


def bind_expression(text: str, schema: Schema, zone: str = "UTC") -> Expression:
    """The expression of a text over the columns of a schema, by their plain names; times are read in a time zone.

    Raises `UserError` for anything else.
    """
    with mistakes_in(text):
        expression = _over_columns(schema, "the expression").bind(parse_expression(text, zone))
    return expression_in(expression, zone)


def _over_columns(schema: Schema, what: str) -> ExpressionBinder:
    def column(name: Name) -> Expression:
        field_ = schema.find(name.parts[-1]) if len(name.parts) == 1 else None
        if field_ is None:
            written = ".".join(name.parts)
            fail(f"there is no column '{written}'", name.span, did_you_mean(written, schema.names))
        return Column(field_.name, field_.type)

    def aggregate(call: FunctionCall) -> Expression:
        fail(f"{what} cannot hold the aggregate {call.name.upper()}", call.span)

    return ExpressionBinder(column, aggregate)
