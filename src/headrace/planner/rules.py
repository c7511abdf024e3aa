"""Rules of the planner: of an ordered table the first one that holds builds the operator, and EXPLAIN says which it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.operators.base.operator import Operator

Asked = TypeVar("Asked")
Built = TypeVar("Built", bound=Operator)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Asked, Built]):
    """`build` makes the operator of what `when` holds for; `why` is the reason, in one sentence.

    Where a query has no operator `build` raises `UnsupportedQuery`.
    """

    name: str
    why: str
    when: Callable[[Asked], bool]
    build: Callable[[Asked], Built]


def first_of(rules: Sequence[Rule[Asked, Built]], asked: Asked) -> Rule[Asked, Built]:
    """The rule that holds; the last one of a table always does."""
    return next(rule for rule in rules if rule.when(asked))


def always(asked: object) -> bool:  # noqa: ARG001
    """What holds for all that no rule before holds for."""
    return True
