"""Normal form of predicates for the index: boxes over attributes, and a residual that must be evaluated.

A predicate is normalised into `(box OR box OR …) AND residual`. A *box* is one domain for each attribute it names.
Disjunctions over several attributes become several boxes up to a limit; the rest becomes residual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from headrace.algebra.expressions.expression import (
    Call,
    Column,
    Expression,
    Literal,
    conjunction,
    conjuncts,
)
from headrace.dataclass import dataclass
from headrace.operators.query_index.predicates.attribute_factors import Factor, factor
from headrace.operators.query_index.predicates.value_domains import EVERY, Domain
from headrace.operators.scalar.evaluation.failing import can_fail
from headrace.schema import BOOLEAN

Box: TypeAlias = Mapping[Expression, Domain]
"""The conjunction of its domains; an attribute it does not name may have any value."""

MOST_BOXES: Final = 16
"""Disjunctions that need more become residual: each box costs as much as a query."""


@dataclass(frozen=True, slots=True)
class Normal:
    """A predicate as an index represents it.

    It is true where one of `boxes` holds and `residual` (None: nothing more) is true. On *exceptional* rows, where one
    of `attributes` fails, or is NULL while the residual may fail, the predicate itself is evaluated.
    """

    predicate: Expression
    boxes: tuple[Box, ...]
    residual: Expression | None
    residual_may_fail: bool
    attributes: tuple[Expression, ...]


def normal(predicate: Expression | None) -> Normal:
    """The normal form of a BOOLEAN expression; None selects every row."""
    whole = Literal(True, BOOLEAN) if predicate is None else predicate
    boxes: list[dict[Expression, Domain]] = [{}]
    read: dict[Expression, None] = {}
    rest: list[Expression] = []
    for part in conjuncts(whole):
        disjuncts = _disjuncts(part, negated=False)
        product = None if disjuncts is None else _product(boxes, disjuncts)
        if product is None or disjuncts is None:
            rest.append(part)
        else:
            boxes = product
            read.update(dict.fromkeys(attribute for box in disjuncts for attribute in box))
    residual = conjunction(rest) if rest else None
    may_fail = residual is not None and can_fail(residual)
    if not may_fail and all(isinstance(attribute, Column) for attribute in read):
        # Nothing can fail, so a contradictory box is dropped.
        boxes = [box for box in boxes if not any(domain.is_empty for domain in box.values())]
    return Normal(whole, tuple(boxes), residual, may_fail, tuple(read))


@lru_cache(maxsize=4096)
def reads_only_columns(predicate: Expression | None) -> bool:
    """Whether comparisons of columns with constants decide the predicate: nothing is computed for a row."""
    form = normal(predicate)
    return form.residual is None and all(isinstance(attribute, Column) for attribute in form.attributes)


def _disjuncts(part: Expression, *, negated: bool) -> list[dict[Expression, Domain]] | None:
    """The part as a disjunction of boxes; None when it has none within the limit."""
    if isinstance(part, Literal):
        return None if part.value is None else [{}] if part.value != negated else []
    condition = factor(part)
    if condition is not None:
        return [_box(condition, negated=negated)]
    if isinstance(part, Call) and part.function == "not":
        return _disjuncts(part.arguments[0], negated=not negated)
    if not isinstance(part, Call) or part.function not in ("and", "or"):
        return None
    by_argument = [_disjuncts(argument, negated=negated) for argument in part.arguments]
    disjunctions = [boxes for boxes in by_argument if boxes is not None]
    if len(disjunctions) < len(by_argument):
        return None
    if (part.function == "or") != negated:
        joined = [box for boxes in disjunctions for box in boxes]
        return joined if len(joined) <= MOST_BOXES else None
    product: list[dict[Expression, Domain]] | None = [{}]
    for boxes in disjunctions:
        product = None if product is None else _product(product, boxes)
    return product


def _box(condition: Factor, *, negated: bool) -> dict[Expression, Domain]:
    return {
        condition.attribute: condition.domain.negated() if negated else condition.domain,
        **dict.fromkeys(condition.guards, EVERY),
    }


def _product(
    left: Sequence[dict[Expression, Domain]], right: Sequence[dict[Expression, Domain]]
) -> list[dict[Expression, Domain]] | None:
    if len(left) * len(right) > MOST_BOXES:
        return None
    return [_intersection(first, second) for first in left for second in right]


def _intersection(
    first: dict[Expression, Domain], second: dict[Expression, Domain]
) -> dict[Expression, Domain]:
    both = dict(first)
    for attribute, domain in second.items():
        both[attribute] = both[attribute].meet(domain) if attribute in both else domain
    return both
