"""What tasks have measured of thousands of operators, pickled by column: most columns are one number, and the others are arrays."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from headrace.observation import OperatorObservation

Packed: TypeAlias = Any
"""A column: the number that all have, an array of all, or a tuple of all where they are of several types."""


class OperatorObservations(dict[str, OperatorObservation]):
    """Measurements by operator. A receipt is pickled for each process on its way, and tuples one by one take three times as long."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Names and columns."""
        return _restored, (tuple(self), tuple(map(_packed, zip(*self.values(), strict=True))))


def _packed(column: tuple[Any, ...]) -> Packed:
    kinds = set(map(type, column))
    if not kinds <= {int} and not kinds <= {float}:
        return column
    if column.count(column[0]) == len(column):
        return column[0]
    try:
        return np.array(column, np.float64 if float in kinds else np.int64)
    except OverflowError:
        return column


def _restored(names: tuple[str, ...], columns: tuple[Packed, ...]) -> OperatorObservations:
    values = map(OperatorObservation._make, zip(*map(_each, columns), strict=False))
    return OperatorObservations(zip(names, values, strict=False))


def _each(column: Packed) -> Iterable[Any]:
    if isinstance(column, np.ndarray):
        return column.tolist()  # type: ignore[no-any-return]
    return column if isinstance(column, tuple) else repeat(column)
