"""Comparisons of two integer attributes, rewritten as conditions on their difference for the query index.

`bid > ask + 5` is `bid - ask > 5`: a condition on one attribute, which an index finds among thousands. For integers the two
are equivalent except for overflow, which fails: where `bid - ask` fails only the predicate decides, and *guards* are
expressions that fail wherever a side does. Doubles round differently in the two, so their comparisons are not rewritten.
Source: PSoup (Chandrasekaran, Franklin 2002), the list of predicates over several attributes; the difference is Headrace's.
"""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions.expression import Call, Cast, Expression, Literal
from headrace.dataclass import dataclass
from headrace.schema import BIGINT

TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The comparison with its sides exchanged."""
_BITS: Final = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}


@dataclass(frozen=True, slots=True)
class Side:
    """An integer attribute and what is added to it; `guard` fails wherever the sum does, None if it never fails."""

    attribute: Expression
    added: int
    guard: Expression | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The comparison `attribute symbol constant`, on rows where neither a guard nor the attribute fails."""

    attribute: Expression
    symbol: str
    constant: int
    guards: tuple[Expression, ...]


def difference(symbol: str, left: Side, right: Side) -> Difference:
    """The condition on the difference of both sides' attributes, the same for both orders."""
    if repr(right.attribute) < repr(left.attribute):
        symbol, left, right = TURNED[symbol], right, left
    wide = tuple(_wide(side.attribute) for side in (left, right))
    guards = tuple(side.guard for side in (left, right) if side.guard is not None)
    return Difference(Call("-", wide, BIGINT), symbol, right.added - left.added, guards)


def sum_of(call: Call, attribute: Expression, added: Literal) -> Side:
    """The side that is an attribute plus (or minus) a constant."""
    assert isinstance(added.value, int)
    sign = -1 if call.function == "-" else 1
    return Side(attribute, sign * added.value, _guard(call, attribute, added))


def _guard(call: Call, attribute: Expression, added: Literal) -> Expression | None:
    """The sum with a constant rounded up to a power of two, so that many constants have one guard."""
    assert isinstance(added.value, int)
    constant, most = abs(added.value), 1 << _BITS[call.type.name]
    if constant + (1 << _BITS[attribute.type.name]) < most:
        return None
    rounded = 1 << (constant - 1).bit_length()
    if rounded >= 1 << _BITS[added.type.name]:
        return call
    whole = Literal(rounded if added.value > 0 else -rounded, added.type)
    return Call(
        call.function,
        tuple(whole if argument == added else argument for argument in call.arguments),
        call.type,
    )


def _wide(attribute: Expression) -> Expression:
    return attribute if attribute.type == BIGINT else Cast(attribute, BIGINT)
