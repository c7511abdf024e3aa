"""Which columns of a stream does a scan task have to read?"""

from __future__ import annotations

from typing import Final

from headrace.catalog.definitions import StreamDefinition
from headrace.operators.base.operator import Operator
from headrace.runtime.home.lru_cache import Recent

_columns: Final[Recent[int, tuple[Operator, frozenset[str]]]] = Recent(200_000)
"""What operators read, by their identities, which last as long as this keeps them."""


def columns_of(operator: Operator) -> frozenset[str]:
    """The columns an operator reads: those of its stream, and of relations."""
    known = _columns.get(id(operator))
    if known is None:
        known = operator, operator.columns
        _columns.put(id(operator), known)
    return known[1]


def columns_read(
    definition: StreamDefinition, operators: list[Operator], archived: bool, also: frozenset[str]
) -> tuple[str, ...]:
    """All columns when the rows are archived, else what operators need and those needed `also`; always in the stream's order."""
    if archived:
        return definition.schema.names
    needed = (
        frozenset().union(*{columns_of(operator) for operator in operators}) if operators else frozenset()
    )
    needed |= also
    return tuple(name for name in definition.schema.names if name in needed)
