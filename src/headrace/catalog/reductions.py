"""Reductions of an archive: which share of its rows it keeps, by their age, by its load and by what it has counted of them; and
reducers, which are reductions with a name, each with a copy of its own.

Source: OSCAR (Chandrasekaran and Franklin 2004), reduction functions that are uniform, by age, by load and stateful.
"""

from __future__ import annotations

from typing import Final

from headrace.dataclass import dataclass
from headrace.time import Duration, render_duration

UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")
"""Units of bytes, each a thousand of the one before."""


@dataclass(frozen=True, slots=True)
class Load:
    """`load(10 GB, 1000000 ROWS BEHIND)`: how many bytes are stored, and how many rows may wait for the vacuum before it keeps
    fewer of them; None for any number.
    """

    bytes: int | None = None
    behind: int | None = None

    def __str__(self) -> str:
        """The reducer as it is written."""
        parts = [] if self.bytes is None else [render_bytes(self.bytes)]
        parts += [] if self.behind is None else [f"{self.behind} ROWS BEHIND"]
        return f"load({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Counted:
    """`rows(100 PER a, b EVERY 1 HOUR)` and `error(2 PERCENT OF x PER a EVERY 1 HOUR)`: of the rows of an interval with equal
    `columns` about `rows` are kept, or so many that the error of the sum of the column `of` is at most `within` of it.
    """

    columns: tuple[str, ...]
    every: Duration
    rows: int = 0
    within: float = 0.0
    of: str = ""

    def __str__(self) -> str:
        """The reducer as it is written."""
        amount = f"error({100 * self.within:g} PERCENT OF {self.of}" if self.of else f"rows({self.rows}"
        per = f" PER {', '.join(self.columns)}" if self.columns else ""
        return f"{amount}{per} EVERY {render_duration(self.every)})"


@dataclass(frozen=True, slots=True)
class Reduction:
    """What is kept of an archive: the least share of those of its parts. `ages` are ascending, each with the share that is dropped."""

    ages: tuple[tuple[Duration, float], ...] = ()
    load: Load | None = None
    counted: Counted | None = None

    @property
    def first_age(self) -> Duration | None:
        """The age from which rows are reduced whatever the load is; None where load alone reduces them."""
        if self.ages:
            return self.ages[0][0]
        return None if self.counted is None else 0

    @property
    def is_by_counts(self) -> bool:
        """Whether counts alone reduce it, so that what they have not reduced is whole."""
        return self.counted is not None and not self.ages and self.load is None

    def __str__(self) -> str:
        """The reduction as it is written."""
        parts = [] if not self.ages else [_by_age(self.ages)]
        parts += [str(part) for part in (self.load, self.counted) if part is not None]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Reducer:
    """CREATE REDUCER: the reduction of a copy of a stream's archive."""

    name: str
    reduction: Reduction


def render_bytes(size: int) -> str:
    """A number of bytes in the greatest unit of which it is a whole number.

    >>> render_bytes(10_000_000), render_bytes(1_500)
    ('10 MB', '1500 B')
    """
    unit = 0
    while size and size % 1000 == 0 and unit < len(UNITS) - 1:
        size, unit = size // 1000, unit + 1
    return f"{size} {UNITS[unit]}"


def _by_age(ages: tuple[tuple[Duration, float], ...]) -> str:
    if ages[0][0] == 0 and len(ages) == 1:
        return f"uniform({ages[0][1]:g})"
    return f"age({', '.join(f'{render_duration(age)} {share:g}' for age, share in ages)})"
