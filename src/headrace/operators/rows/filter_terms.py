"""Division of a conjunction into terms whose order of evaluation is free: which conjuncts belong together, which columns each
term reads, whether it can fail, and a guess of what it costs before anything is measured.

Conjuncts that compute the same costly expression are one term, so that it is computed once, and so are all cheap ones that cannot
fail. There are terms only where an order matters: two or more, one of them costly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from headrace.adaptive.filters.order_cost import Order
from headrace.algebra.expressions.expression import (
    Call,
    Expression,
    columns_of,
    conjunction,
    conjuncts,
    walk,
)
from headrace.algebra.expressions.expression_text import show
from headrace.algebra.expressions.series import STRUCTURES
from headrace.algebra.functions.resolve import FUNCTIONS
from headrace.dataclass import dataclass
from headrace.operators.rows.semijoin import Membership
from headrace.operators.scalar.evaluation.compile import EXPANDED, LAZY
from headrace.operators.scalar.evaluation.failing import can_fail

COSTLY: Final = 50
"""Nanoseconds a row from which on an expression is worth being evaluated on fewer rows."""
_PLAIN: Final = 4
_MEMBERSHIP: Final = 80
_USER_FUNCTION: Final = 1000
_GUESSES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("rlike", "regexp_extract", "regexp_replace"), 100),
    **dict.fromkeys(("like", "ilike"), 100),
}


@dataclass(frozen=True, slots=True)
class Term:
    """Conjuncts that are evaluated together, with the tests of membership whose columns they read."""

    predicate: Expression
    memberships: tuple[Membership, ...]
    reads: frozenset[str]
    """Columns of a batch."""
    cost: float
    """A guess, in nanoseconds a row."""
    may_fail: bool

    def display(self) -> str:
        """As EXPLAIN shows it."""
        tests = "".join(f" ({membership.display()})" for membership in self.memberships)
        return f"{show(self.predicate)}{tests}"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a conjunction, `whole`, in the order of their first conjuncts; `name` is the same in every process."""

    terms: tuple[Term, ...]
    whole: Expression
    name: str

    def drops_null(self, term: int) -> bool:
        """Whether a row on which the term is NULL is dropped: unless another term may fail, and reject it."""
        return not any(other.may_fail for index, other in enumerate(self.terms) if index != term)

    @property
    def guessed_order(self) -> Order:
        """The cheapest first, while nothing is known of what each drops."""
        return tuple(sorted(range(len(self.terms)), key=lambda index: self.terms[index].cost))


def terms_of(predicates: Sequence[Expression], memberships: Sequence[Membership]) -> Terms | None:
    """The terms of the conjunction of all predicates, which read the columns that the memberships add; None where the order
    does not matter, or is fixed because a membership may fail: its failure rejects a row in any case.
    """
    factors = [factor for predicate in predicates for factor in conjuncts(predicate)]
    if len(factors) < 2:
        return None
    marks = {membership.name: membership for membership in memberships}
    shared = [_shared(factor, marks) for factor in factors]
    if not any(shared) or not _are_free(marks, shared):
        return None
    terms = [
        _term(
            [factors[index] for index in group], frozenset().union(*(shared[index] for index in group)), marks
        )
        for group in _groups(
            shared, [_is_light(factor, costly) for factor, costly in zip(factors, shared, strict=True)]
        )
    ]
    if len(terms) < 2:
        return None
    text = "\n".join(term.display() for term in terms)
    return Terms(tuple(terms), conjunction(factors), blake2b(text.encode(), digest_size=8).hexdigest())


def _shared(factor: Expression, marks: Mapping[str, Membership]) -> frozenset[object]:
    """The costly parts of a conjunct: expressions, and names of tests of membership."""
    costly = [node for node in walk(factor) if _cost(node) >= COSTLY]
    return frozenset[object]([*costly, *(columns_of(factor) & marks.keys())])


def _cost(node: Expression) -> int:
    if not isinstance(node, Call):
        return _PLAIN
    if node.function in _GUESSES:
        return _GUESSES[node.function]
    is_built_in = any(node.function in table for table in (FUNCTIONS, LAZY, EXPANDED, STRUCTURES))
    return _PLAIN if is_built_in else _USER_FUNCTION


def _is_light(factor: Expression, costly: frozenset[object]) -> bool:
    return not costly and not can_fail(factor)


def _are_free(marks: Mapping[str, Membership], shared: Sequence[frozenset[object]]) -> bool:
    """Whether each test of membership belongs to conjuncts, reads the stream's rows alone, and cannot fail."""
    return all(
        any(name in costly for costly in shared)
        and not membership.may_fail
        and not _reads(membership) & marks.keys()
        for name, membership in marks.items()
    )


def _reads(membership: Membership) -> frozenset[str]:
    """The columns of the row that it reads: those of its relation have the relation's alias in a residual."""
    values = () if membership.value is None else (membership.value,)
    read = frozenset[str]().union(*(columns_of(part) for part in (*membership.left_keys, *values)))
    if membership.residual is not None:
        inside = f"{membership.alias}."
        read |= {name for name in columns_of(membership.residual) if not name.startswith(inside)}
    return read


def _groups(shared: Sequence[frozenset[object]], light: Sequence[bool]) -> list[list[int]]:
    """Indices of conjuncts that have costly parts in common, directly or by others; light ones are one group."""
    groups: list[tuple[set[object], list[int]]] = []
    for index, costly in enumerate(shared):
        parts = {"light"} if light[index] else set(costly)
        joined = [group for group in groups if group[0] & parts]
        groups = [group for group in groups if not group[0] & parts]
        members = sorted([index, *(one for group in joined for one in group[1])])
        groups.append((parts.union(*(group[0] for group in joined)), members))
    return sorted(members for _, members in groups)


def _term(factors: Sequence[Expression], costly: frozenset[object], marks: Mapping[str, Membership]) -> Term:
    memberships = tuple(membership for name, membership in marks.items() if name in costly)
    read = frozenset[str]().union(*map(columns_of, factors)) - marks.keys()
    nodes = {node for factor in factors for node in walk(factor)}
    return Term(
        conjunction(factors),
        memberships,
        read.union(*map(_reads, memberships)),
        float(sum(map(_cost, nodes)) + _MEMBERSHIP * len(memberships)),
        any(map(can_fail, factors)),
    )
