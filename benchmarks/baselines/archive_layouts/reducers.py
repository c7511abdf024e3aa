"""Reduction functions of scans: how much of a unit may be left out, uniformly, by age, by load, or by what was read so far.

A unit is a block or a run, an interval of event times. It may be reduced no more than its least reducible row, which is its newest one. Chandrasekaran and Franklin 2004, r-UDFs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc


class Reducer(Protocol):
    """What decides on the reduction of a scan; scans with the same `name` share a copy where a layout makes one."""

    name: str

    def level(self, newest: int) -> float:
        """The share of a unit's rows that may be left out, from 0 to 1; `newest` is its last event time."""

    def observe(self, rows: pa.Table) -> None:
        """Take in the rows of a unit after it was scanned."""


class _Unobserving:
    """A reducer on which rows have no effect."""

    def observe(self, rows: pa.Table) -> None:
        """Take in nothing."""


@dataclass(slots=True)
class Uniform(_Unobserving):
    """The same reduction of all rows."""

    reduction: float
    name: str = "uniform"

    def level(self, newest: int) -> float:
        del newest
        return self.reduction


@dataclass(slots=True)
class Age(_Unobserving):
    """More reduction of older rows: `steps` are ages with the reduction from there on, ascending."""

    now: int
    steps: Sequence[tuple[int, float]]
    name: str = "age"

    def level(self, newest: int) -> float:
        return max((reduction for age, reduction in self.steps if self.now - newest >= age), default=0.0)


@dataclass(slots=True)
class Load(_Unobserving):
    """A reduction that follows the load: a batch of work should take `target` seconds.

    What remains is multiplied by 0.9 of the target to the batch's time. It is never less than `least`, a block of a run, nor
    raised by more than that at a time.
    """

    target: float
    least: float
    keep: float = 1.0
    name: str = "load"

    def level(self, newest: int) -> float:
        del newest
        return 1 - self.keep

    def took(self, seconds: float) -> None:
        """Take in how long a batch took."""
        wanted = min(max(self.keep * 0.9 * self.target / seconds, self.least), 1.0)
        self.keep = min(wanted, self.keep + self.least)


@dataclass(slots=True)
class UntilAccurate:
    """No reduction until the mean of a column is known within a share of it with 95 %, and nothing more is read then."""

    column: str
    within: float
    rows: int = 0
    total: float = 0.0
    squares: float = 0.0
    name: str = "accurate"

    def level(self, newest: int) -> float:
        del newest
        return 1.0 if self.half_width <= self.within * abs(self.mean) else 0.0

    def observe(self, rows: pa.Table) -> None:
        values = rows.column(self.column).combine_chunks().to_numpy(zero_copy_only=False)
        self.rows += pc.count(rows.column(self.column)).as_py()
        self.total += float(values.sum())
        self.squares += float((values**2).sum())

    @property
    def mean(self) -> float:
        """Of the rows that were read."""
        return self.total / self.rows if self.rows else 0.0

    @property
    def half_width(self) -> float:
        """Of the mean's 95 % interval; infinite below two rows."""
        if self.rows < 2:
            return math.inf
        variance = max(self.squares - self.total**2 / self.rows, 0.0) / (self.rows - 1)
        return 1.96 * math.sqrt(variance / self.rows)
