"""When are two answers the same? In any order, doubles within rounding, everything else exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any


class Close:
    """A double that equals every double within 1e-9 of it, relatively."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Close) and math.isclose(self.value, other.value, rel_tol=1e-9, abs_tol=1e-9)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return repr(self.value)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value if math.isinf(value) else Close(value)
    return value


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, float(f"{value:.6g}"))
    if isinstance(value, list | tuple):
        return (1, tuple(_rank(part) for part in value))
    return (1, float(value) if isinstance(value, Decimal) else value)


def _place(row: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Doubles decide last, so that a rounding error cannot tear rows apart that differ elsewhere."""
    exact = [(9,) if isinstance(value, float) else _rank(value) for value in row]
    return exact, [_rank(value) for value in row if isinstance(value, float)]


def canonical(answer: Iterable[Any]) -> list[Any]:
    """A bag that can be compared: rows (or tuples that end in a row) in one order, NaN = NaN, doubles within 1e-9.

    Everything but doubles must be exactly equal. Columns are compared by name, whatever their order.
    """

    def flat(item: Any) -> tuple[Any, ...]:
        parts = item if isinstance(item, tuple) else (item,)
        return tuple(
            value
            for part in parts
            for value in ((part[name] for name in sorted(part)) if isinstance(part, Mapping) else (part,))
        )

    ordered = sorted((flat(item) for item in answer), key=_place)
    return [tuple(_comparable(value) for value in row) for row in ordered]
