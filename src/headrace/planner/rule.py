"""An entry of the planner's tables of rules (`Rule`: name, reason, condition, and what builds the operator), and the
choice of the first that applies. The tables are in `lowering/lower.py`, `joins/join_stage.py` and
`joins/outer_joins.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Operator

Asked = TypeVar("Asked")
Built = TypeVar("Built", bound=Operator)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Asked, Built]):
    """`build` makes the operator where `when` is true; `why` is the reason, in one sentence.

    Where a query has no operator `build` raises `UnsupportedQuery`.
    """

    name: str
    why: str
    when: Callable[[Asked], bool]
    build: Callable[[Asked], Built]


def first_of(rules: Sequence[Rule[Asked, Built]], request: Asked) -> Rule[Asked, Built]:
    """The first rule that applies; the last one of a table always does."""
    return next(rule for rule in rules if rule.when(request))


def always(request: object) -> bool:  # noqa: ARG001
    """True for everything that no earlier rule applies to."""
    return True
