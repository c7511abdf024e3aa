"""Scalar expressions, bound and typed: their node classes, and functions that walk, transform and split them.

There are six node classes: a column, a constant, a list of constants, a function of the table, a cast, a choice. Operators
such as `+` and `AND` are functions (`headrace.algebra.functions.resolve` has their table). Conversions that SQL makes implicitly are
explicit `Cast` nodes here, so evaluators need no type rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.schema import BOOLEAN, Type, to_arrow

Value: TypeAlias = bool | int | float | str | bytes | Decimal | date | None
"""A constant. TIMESTAMPs are instants and INTERVALs durations (int, microseconds)."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the input row, by its internal name (`alias.column` below a projection)."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of a type; `None` is NULL."""

    value: Value
    type: Type


@dataclass(frozen=True, slots=True, repr=False)
class Constants:
    """The constants of a long IN, all of one type: one node, however many there are; NULL may be one of them.

    It is the second argument of `in`, also below casts and functions without columns, which then apply to every constant.
    `batch` is a serialised Arrow record batch of one column, so that to hash, compare and store a list takes no step per value.
    """

    batch: bytes
    type: Type

    @staticmethod
    def of(values: pa.Array, kind: Type) -> Constants:
        """The constants of an array of the Arrow type of `kind`."""
        return Constants(pa.record_batch([values], _schema(kind)).serialize().to_pybytes(), kind)

    @property
    def values(self) -> pa.Array:
        """The constants in the order written; a view of the bytes."""
        return pa.ipc.read_record_batch(pa.py_buffer(self.batch), _schema(self.type)).column(0)

    def literals(self, most: int | None = None) -> Iterator[Literal]:
        """The constants one by one, or the first few."""
        values = self.values[:most]
        if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type):
            values = values.cast(pa.int64())
        for value in values.to_pylist():
            yield Literal(value, self.type)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Constants({len(self)} {self.type}, {hashlib.sha256(self.batch).hexdigest()})"


def _schema(kind: Type) -> pa.Schema:
    return pa.schema([("value", to_arrow(kind))])


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the table over arguments that have the types of its signature."""

    function: str
    arguments: tuple[Expression, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    """Spark's ANSI cast: a value that does not fit is an error of its row, not NULL (`safe` gives NULL: TRY_CAST)."""

    argument: Expression
    type: Type
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, else `otherwise`. Branches not taken raise no errors."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    type: Type


Expression: TypeAlias = Column | Literal | Constants | Call | Cast | Case


@dataclass(frozen=True, slots=True)
class Named:
    """An expression and the name of its column."""

    name: str
    expression: Expression


def children(expression: Expression) -> tuple[Expression, ...]:
    """The direct subexpressions, left to right."""
    match expression:
        case Call(arguments=arguments):
            return arguments
        case Cast(argument=argument):
            return (argument,)
        case Case(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all below it, parents first."""
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        if below := children(node):
            pending.extend(below[::-1])


def constants_in(candidates: Expression) -> Constants | None:
    """The list of constants that an argument of `in` is computed from; None for a single candidate.

    A list inside another IN is that one's: it makes one truth value.
    """
    if isinstance(candidates, Constants):
        return candidates
    if isinstance(candidates, Call) and candidates.function == "in":
        return None
    lists = (constants_in(part) for part in children(candidates))
    return next((listed for listed in lists if listed is not None), None)


def one_by_one(candidates: Expression, most: int | None = None) -> Iterator[Expression]:
    """A list of candidates as expressions of one constant each, or its first few."""
    listed = constants_in(candidates)
    if listed is None:
        yield candidates
        return
    for literal in listed.literals(most):
        yield transform(candidates, partial(_in_place_of_list, literal))


def _in_place_of_list(one: Literal, node: Expression) -> Expression | None:
    return one if isinstance(node, Constants) else None


def columns_of(expression: Expression) -> frozenset[str]:
    """Internal names of the columns it reads."""
    return frozenset(node.name for node in walk(expression) if isinstance(node, Column))


def transform(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Rebuild bottom-up; `change` returns a replacement for a node or None to keep it."""
    rebuilt: Expression
    match expression:
        case Call():
            parts = tuple([transform(part, change) for part in expression.arguments])
            rebuilt = Call(expression.function, parts, expression.type)
        case Cast():
            rebuilt = replace(expression, argument=transform(expression.argument, change))
        case Case():
            rebuilt = replace(
                expression,
                branches=tuple(
                    (transform(when, change), transform(then, change)) for when, then in expression.branches
                ),
                otherwise=transform(expression.otherwise, change),
            )
        case _:
            rebuilt = expression
    return change(rebuilt) or rebuilt


def conjuncts(predicate: Expression) -> tuple[Expression, ...]:
    """The factors of a conjunction, left to right."""
    if isinstance(predicate, Call) and predicate.function == "and":
        return tuple(factor for part in predicate.arguments for factor in conjuncts(part))
    return (predicate,)


def conjunction(factors: Sequence[Expression]) -> Expression:
    """The conjunction of at least one factor; see `conjuncts`."""
    return factors[0] if len(factors) == 1 else Call("and", tuple(factors), BOOLEAN)
