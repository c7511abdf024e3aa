"""Factors: parts of a predicate about a single attribute, and the values for which each is true.

An attribute is any expression that is not constant: `qty`, `lower(name)`, `bid - ask`. Lossless casts (INT to BIGINT,
to DOUBLE, to a wider DECIMAL) are removed, and the constant is converted to the attribute's type instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from headrace.algebra.expressions.expression import (
    Call,
    Cast,
    Column,
    Constants,
    Expression,
    Literal,
    constants_in,
    walk,
)
from headrace.algebra.functions.resolve import FUNCTIONS
from headrace.dataclass import dataclass
from headrace.operators.query_index.predicates import value_domains
from headrace.operators.query_index.predicates.attribute_differences import TURNED, Side, difference, sum_of
from headrace.operators.query_index.predicates.order_keys import cuts, has_keys, prefix_cuts
from headrace.operators.query_index.predicates.value_domains import NULLS, Domain
from headrace.operators.scalar.evaluation.compile import candidates, program
from headrace.operators.scalar.evaluation.failing import keeps_all
from headrace.schema import BIGINT, BOOLEAN, STRING, TIMESTAMP, TIMESTAMP_NTZ

_TRUE: Final = Literal(True, BOOLEAN)
MOST_CANDIDATES: Final = 1_000
"""A longer IN is no factor: one search for a row takes less than an index entry for each candidate."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A condition on one attribute, on rows where none of `guards` fails."""

    attribute: Expression
    domain: Domain
    guards: tuple[Expression, ...] = ()

    def negated(self) -> Factor:
        """NOT."""
        return Factor(self.attribute, self.domain.negated(), self.guards)


def factor(predicate: Expression) -> Factor | None:
    """The predicate as a condition on one attribute; None if it is none, or compares with NULL."""
    match predicate:
        case Column(type=kind) if kind == BOOLEAN:
            return Factor(predicate, value_domains.compared("=", cuts(_TRUE, BOOLEAN)))
        case Call(function="not", arguments=(inner,)):
            inner_factor = factor(inner)
            return None if inner_factor is None else inner_factor.negated()
        case Call(function="and" | "or" as function, arguments=parts):
            return _of_one_attribute(parts, conjunction=function == "and")
        case Call(function="isnull" | "isnotnull" as function, arguments=(inner,)):
            attribute = _attribute(inner)
            if attribute is None:
                return None
            return Factor(attribute, NULLS if function == "isnull" else NULLS.negated())
        case Call(function="in", arguments=(inner, *constants)):
            return _among(inner, constants)
        case Call(function="like" | "startswith" as function, arguments=(inner, pattern)):
            return _prefixed(inner, pattern, function)
        case Call(function=symbol, arguments=(left, right)):
            return _compared(symbol, left, right)
        case _:
            return None


def constant(expression: Expression) -> Literal | None:
    """The value of an expression that has no columns and does not fail; None for all others."""
    if isinstance(expression, Literal):
        return expression
    if not isinstance(expression, Cast) or any(isinstance(part, Column) for part in walk(expression)):
        return None
    result = program(expression)[-1].constant
    if result is None or result.errors is not None:
        return None
    value, kind = result.value, expression.type
    if value.is_valid and (kind in (TIMESTAMP, TIMESTAMP_NTZ) or kind.name == "INTERVAL"):
        return Literal(value.cast("int64").as_py(), kind)
    return Literal(value.as_py(), kind)


def _of_one_attribute(parts: Sequence[Expression], *, conjunction: bool) -> Factor | None:
    factors: list[Factor] = []
    for part in parts:
        part_factor = factor(part)
        if part_factor is None or (factors and part_factor.attribute != factors[0].attribute):
            return None
        factors.append(part_factor)
    combine = Domain.meet if conjunction else Domain.join
    guards = tuple(dict.fromkeys(guard for part_factor in factors for guard in part_factor.guards))
    return Factor(
        factors[0].attribute, reduce(combine, (part_factor.domain for part_factor in factors)), guards
    )


def _compared(symbol: str, left: Expression, right: Expression) -> Factor | None:
    null_safe = symbol == "<=>"
    symbol = "=" if null_safe else symbol
    if symbol not in TURNED:
        return None
    value = constant(right)
    if value is None and constant(left) is not None:
        value, left, symbol = constant(left), right, TURNED[symbol]
    if value is None:  # a difference is NULL whether one or both attributes are
        return None if null_safe else _of_two(symbol, left, right)
    attribute = _attribute(left)
    if attribute is None:
        return None
    if value.value is None:
        return Factor(attribute, NULLS) if null_safe else None
    domain = value_domains.compared(symbol, cuts(value, attribute.type))
    return Factor(attribute, Domain(domain.starts, domain.flips, False) if null_safe else domain)


def _of_two(symbol: str, left: Expression, right: Expression) -> Factor | None:
    sides = _side(left), _side(right)
    if sides[0] is None or sides[1] is None:
        return None
    condition = difference(symbol, sides[0], sides[1])
    domain = value_domains.compared(condition.symbol, cuts(Literal(condition.constant, BIGINT), BIGINT))
    return Factor(condition.attribute, domain, condition.guards)


def _side(expression: Expression) -> Side | None:
    """An integer attribute, or one plus or minus a constant; None for all else."""
    whole = _attribute(expression)
    if whole is None or not whole.type.is_integer:
        return None
    if isinstance(whole, Call) and whole.function in ("+", "-"):
        left, right = whole.arguments
        added, attribute = constant(right), _attribute(left)
        if attribute is None and whole.function == "+":
            added, attribute = constant(left), _attribute(right)
        if attribute is not None and added is not None and added.value is not None:
            return sum_of(whole, attribute, added)
    return Side(whole, 0, None)


def _among(inner: Expression, listed: Sequence[Expression]) -> Factor | None:
    attribute, constants = _attribute(inner), _candidates(listed)
    if attribute is None or constants is None:
        return None
    return Factor(attribute, value_domains.among(cuts(value, attribute.type) for value in constants))


def _candidates(listed: Sequence[Expression]) -> list[Literal] | None:
    """The candidates of IN; None for too many, and when one is NULL, fails, or is no constant."""
    if (written := constants_in(listed[0])) is None:
        values = [constant(candidate) for candidate in listed[: MOST_CANDIDATES + 1]]
    elif len(written) > MOST_CANDIDATES:
        return None
    else:  # one that fails is NULL
        values = list(Constants.of(candidates(listed[0]).value, listed[0].type).literals())
    known = [value for value in values if value is not None and value.value is not None]
    return known if len(known) == len(values) <= MOST_CANDIDATES else None


def _prefixed(inner: Expression, pattern: Expression, function: str) -> Factor | None:
    attribute, value = _attribute(inner), constant(pattern)
    if attribute is None or attribute.type != STRING or value is None or not isinstance(value.value, str):
        return None
    if function == "startswith":
        return Factor(attribute, value_domains.between(*prefix_cuts(value.value.encode())))
    text, wild = _literal_start(value.value)
    if text is None:
        return None
    if not wild:
        return Factor(attribute, value_domains.compared("=", cuts(Literal(text, STRING), STRING)))
    return Factor(attribute, value_domains.between(*prefix_cuts(text.encode())))


def _literal_start(pattern: str) -> tuple[str | None, bool]:
    """The text before a `%` that ends the pattern, and whether there is one; None for all other patterns."""
    text, index = "", 0
    while index < len(pattern):
        sign = pattern[index]
        if sign == "\\":
            index += 1
            if pattern[index : index + 1] not in ("%", "_", "\\") or index == len(pattern):
                return None, False
            sign = pattern[index]
        elif sign == "_" or (sign == "%" and pattern[index:].strip("%")):
            return None, False
        elif sign == "%":
            return text, True
        text += sign
        index += 1
    return text, False


def _attribute(expression: Expression) -> Expression | None:
    """The expression without lossless casts; None for constants, for registered functions, for types without order."""
    while isinstance(expression, Cast) and keeps_all(expression.argument.type, expression.type):
        expression = expression.argument
    if not has_keys(expression.type):
        return None
    parts = list(walk(expression))
    if not any(isinstance(part, Column) for part in parts):
        return None
    are_registered = all(not isinstance(part, Call) or part.function in FUNCTIONS for part in parts)
    return expression if are_registered else None
