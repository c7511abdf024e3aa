"""A fixed cost and a cost per row from measurements at several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.contenders import FARTHEST


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds = `fixed` + `per_row` * rows, up to `farthest` rows."""

    fixed: float
    per_row: float
    farthest: int

    def seconds(self, rows: int) -> float:
        """Raises `ValueError` where nothing was measured near enough."""
        if rows > self.farthest:
            raise ValueError(f"Expected at most {self.farthest:,} rows to extrapolate to, found {rows:,}.")
        return self.fixed + self.per_row * rows


def costs(measured: Sequence[tuple[int, float]]) -> Costs:
    """Least squares over the median seconds of each number of rows; neither cost is below zero.

    Every size has the same weight, by its relative error. Noise that would make one cost negative is in favour of the contender: the other cost explains all.
    """
    sizes = sorted({rows for rows, _ in measured})
    medians = [median(seconds for rows, seconds in measured if rows == size) for size in sizes]
    x, y = np.array(sizes, float), np.array(medians)
    scaled = np.column_stack([1 / y, x / y])
    fixed, per_row = (float(cost) for cost in np.linalg.lstsq(scaled, np.ones(len(x)), rcond=None)[0])
    if fixed < 0:
        fixed, per_row = 0.0, float(np.mean(x / y) / np.mean((x / y) ** 2))
    elif per_row < 0:
        fixed, per_row = float(np.mean(1 / y) / np.mean(1 / y**2)), 0.0
    return Costs(fixed, per_row, FARTHEST * sizes[-1])
