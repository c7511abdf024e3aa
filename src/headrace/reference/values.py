"""Equality and order of plain Python values, by the rules of SQL's groups and sorts; and of rows: the order of
output, and the difference of bags.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import total_ordering
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
"""Column name to value. TIMESTAMPs are instants, INTERVALs durations. Names that begin with '#' or '^' are bookkeeping."""

ORDER = "^"
"""The bookkeeping column with the position of a row in the output: ORDER BY, then the group's keys."""


def identity(value: Any) -> Hashable:
    """Equal for exactly the values of one SQL group: NULLs together, NaNs together, -0.0 with 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(identity(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, identity(part)) for name, part in value.items())
    return value  # type: ignore[no-any-return]


def row_identity(row: Row, names: Sequence[str]) -> tuple[Hashable, ...]:
    """`identity` of a row's named columns."""
    return tuple(identity(row[name]) for name in names)


@total_ordering
class Descending:
    """The reverse order."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(self.key == other.key)

    def __lt__(self, other: Descending) -> bool:
        return bool(other.key < self.key)

    def __hash__(self) -> int:
        return hash(self.key)


def sort_key(value: Any, *, descending: bool = False, nulls_first: bool = True) -> tuple[Any, ...]:
    """A key in the order of ORDER BY: NaN above every number, NULLs first or last."""
    if value is None:
        return (0 if nulls_first else 2,)
    if isinstance(value, list | tuple):
        key: Any = tuple(sort_key(part) for part in value)
    elif isinstance(value, dict):
        key = tuple(sort_key(part) for part in value.values())
    elif isinstance(value, float) and math.isnan(value):
        key = (1, 0.0)
    else:
        key = (0, value)
    return (1, Descending(key) if descending else key)


def unsigned(value: Any) -> Any:
    """The value shown for equal ones: 0.0 for -0.0, also inside of a structure."""
    if isinstance(value, dict):
        return {name: unsigned(part) for name, part in value.items()}
    return value + 0.0 if isinstance(value, float) else value


def columns_key(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    """Sorts rows by the named columns, left to right, ascending, nulls first; last of all -0.0 before 0.0."""
    signs = tuple(math.copysign(1.0, row[name]) for name in names if isinstance(row[name], float))
    return (*(sort_key(row[name]) for name in names), *signs)


def in_output_order(rows: Iterable[Row], names: Sequence[str]) -> list[Row]:
    """By ORDER BY, then the group's keys, then the columns left to right, nulls first."""
    return sorted(rows, key=lambda row: (row.get(ORDER, ()), columns_key(row, names)))


def visible(row: Row, names: Sequence[str]) -> Row:
    """The row without bookkeeping."""
    return {name: row[name] for name in names}


def minus(left: Iterable[Row], right: Iterable[Row], names: Sequence[str]) -> list[Row]:
    """Bag difference: every row of `left` as often as it occurs there more often than in `right`."""
    removed = Counter(row_identity(row, names) for row in right)
    remaining = []
    for row in left:
        same = row_identity(row, names)
        if removed[same] > 0:
            removed[same] -= 1
        else:
            remaining.append(row)
    return remaining
