"""When are two answers the same? In any order, doubles within rounding, everything else exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any


class Close(float):
    """A double that equals every double within 1e-9 of it, relatively."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isclose(
            float(self), float(other), rel_tol=1e-9, abs_tol=1e-9
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0


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
    """Doubles decide last, so that a rounding error cannot separate rows that differ elsewhere."""
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


def within_rounding(value: Any) -> Any:
    """A value of the same shape whose doubles equal those within 1e-9 of them; NaN equals NaN."""
    if isinstance(value, Mapping):
        return {name: within_rounding(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(within_rounding(part) for part in value)
    return _comparable(value)


def sort_key(value: Any) -> tuple[str, str]:
    """What orders values that `within_rounding` may call equal: the text without doubles, then with rounded ones."""
    return repr(_rounded(value, exact=True)), repr(_rounded(value, exact=False))


def _rounded(value: Any, *, exact: bool) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(part, exact=exact) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part, exact=exact) for part in value]
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return "double" if exact else f"{value + 0.0:.6g}"
