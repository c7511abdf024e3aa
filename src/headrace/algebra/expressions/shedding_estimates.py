"""Equations of the estimates and errors of a query WITH SHEDDING, and constants for what computes them: the hidden
columns with weights of rows, and which aggregates have an estimate.

Each row that is kept represents w = 1 / keep rows. COUNT, SUM and AVG are estimates over weighted rows (Horvitz and Thompson
1952), unbiased but for AVG, a ratio; their error is half the width of a 95 % interval, from the variance of independent draws:

    estimate of SUM(x)   T = sum w x            error  z sqrt(sum w (w - 1) x^2)
    estimate of AVG(x)   r = T / W, W = sum w   error  z sqrt(sum w (w - 1) (x - r)^2) / W

over the rows where x is not NULL; COUNT is the SUM of 1. Where all rows of a group have weight 1, an estimate is the
exact answer and its error 0. A row's weight is a column that no query can name.
"""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions.expression import Column
from headrace.schema import DOUBLE

WEIGHT: Final = "#weight"
"""The number of rows that a row represents, itself included: w."""
MORE: Final = "#more"
"""The number of shed rows that it represents: w - 1."""
SPREAD: Final = "#spread"
"""Its contribution to the variance of a count: w (w - 1)."""

ESTIMATED: Final = ("count", "sum", "avg")
"""Aggregates that are estimated from weighted rows."""
ONE_SIDED: Final = ("min", "max")
"""Aggregates that fewer rows bound on one side: a shed row may have a smaller, or a greater, value."""
PARTS: Final = ("estimate", "error", "kept")
"""The parts of an estimate; see `AggregateCall.part`. `kept`: the share of a group's rows that was used."""

Z: Final = 1.959963984540054
"""Half the width of a 95 % interval of the normal distribution, in standard deviations."""


def weight_of(alias: str, part: str = WEIGHT) -> Column:
    """One of these columns of the rows of a stream."""
    return Column(f"{alias}.{part}", DOUBLE)
