"""EXPLAIN's text of one operator: the rule that chose it, its own description, and the stream and columns that it
reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.operators.base.operator import Operator
from headrace.planner.lowering.lower import RULES


def explain(operator: Operator) -> str:
    """Indented lines, from the answer down to the stream."""
    read = ", ".join(sorted(operator.columns)) or "no columns"
    lines = (*_rule(operator), *operator.display(), f"read stream {operator.stream}: {read}")
    return "\n".join([f"query {operator.query}", *(f"  {line}" for line in lines)])


def _rule(operator: Operator) -> Iterator[str]:
    """The rule that chose the operator, and its reason."""
    rule = RULES.get(operator.rule)
    if rule is not None:
        yield f"chosen by: {rule.name} — {rule.why}"
