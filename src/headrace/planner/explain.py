"""An operator explained to people: what it reads, keeps and gives, and which class its window is of."""

from __future__ import annotations

from headrace.operators.operator import Operator


def explain(operator: Operator) -> str:
    """Indented lines, from the answer down to the stream."""
    read = ", ".join(sorted(operator.columns)) or "no columns"
    lines = (*operator.display(), f"read stream {operator.stream}: {read}")
    return "\n".join([f"query {operator.query}", *(f"  {line}" for line in lines)])
