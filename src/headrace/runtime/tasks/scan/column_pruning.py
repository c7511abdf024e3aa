"""The columns of a stream that a scan task reads: all where it archives the rows, else those that operators and the
stream's progress need.
"""

from __future__ import annotations

from typing import Final

from headrace.catalog.definitions import StreamDefinition
from headrace.operators.base.operator import Operator
from headrace.runtime.home.lru_cache import Recent

_columns: Final[Recent[int, tuple[Operator, frozenset[str]]]] = Recent(200_000)
"""Columns by the identity of an operator, which is valid while its entry is here."""


def columns_of(operator: Operator) -> frozenset[str]:
    """The columns an operator reads of its stream and of relations."""
    entry = _columns.get(id(operator))
    if entry is None:
        entry = operator, operator.columns
        _columns.put(id(operator), entry)
    return entry[1]


def columns_read(
    definition: StreamDefinition, operators: list[Operator], archived: bool, also: frozenset[str]
) -> tuple[str, ...]:
    """All columns when the rows are archived, else those of the operators and those in `also`; in the stream's order."""
    if archived:
        return definition.schema.names
    needed = (
        frozenset().union(*{columns_of(operator) for operator in operators}) if operators else frozenset()
    )
    needed |= also
    return tuple(name for name in definition.schema.names if name in needed)
