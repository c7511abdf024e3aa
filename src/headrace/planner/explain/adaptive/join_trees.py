"""EXPLAIN ADAPTIVE of the joins that a query's sources go through one after the other, as text: their order now, with the rows that each
has made, and the orders before it with what was believed of them, and measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.dataclass import dataclass
from headrace.planner.explain.plan_graph import rows_of


@dataclass(frozen=True, slots=True)
class TreePeriod:
    """The epochs in which one order was in force; `last` None: it still is. Rows of inner joins are by 1000 rows of the sources.

    `measured` is None where no epoch of it is logged; `believed`, and `instead` of the order before, were when it was chosen.
    """

    shown: str
    first: int
    last: int | None
    measured: float | None
    believed: int | None
    instead: int

    def line(self) -> str:
        """`epochs 13 to 20: f, z, then y; 210 rows between joins by 1000 of the sources; 190 believed, instead of 2100`."""
        epochs = f"from epoch {self.first} on" if self.last is None else f"epochs {self.first} to {self.last}"
        measured = (
            "not measured" if self.measured is None else f"{rows_of(round(self.measured))} rows between joins"
        )
        why = (
            "as registered"
            if self.believed is None
            else f"{rows_of(self.believed)} believed, instead of {rows_of(self.instead)}"
        )
        return f"{epochs}: {self.shown}; {measured} for 1,000 of the sources; {why}"


def tree_lines(
    stages: Sequence[tuple[Sequence[str], int]], why: str, periods: Sequence[TreePeriod], growing: str
) -> Iterator[str]:
    """`stages` are the sides of each join with the rows that it made, innermost first; `growing`: the order that comes next, if one does."""
    if len(stages) < 2:
        return
    yield f"{len(stages)} joins one after the other, {why}:"
    for number, (sides, rows_made) in enumerate(stages, 1):
        yield f"  {number}. {', '.join(sides)}: {rows_of(rows_made)} rows made"
    if growing:
        yield f"    {growing}"
    if growing or len(periods) > 1:
        yield from (f"    {period.line()}" for period in reversed(periods))
