"""Counts of archived rows by interval and columns, and the share that a reducer keeps of each group of rows by them.

The counts are of all rows that came before, and of the new ones, but never of which rows were kept: so the share of a row follows
from the stream alone, and rows of one share are a uniform sample. With C rows of a group counted so far, Y the sum of their values and
Q the sum of the squares, what is kept of the new rows is

    rows(n …):   min(1, n / C)                 error(p …):   1 / (1 + (p Y / z)^2 / Q)

rounded up to a power of two. The second is the share f at which z sqrt(Q (1 - f) / f), half the width of a 95 % interval of the sum over a
rare group, is p of the sum. A group whose rows come in several parts keeps about n (1 + ln(C / n)) rows. Groups of an interval that
punctuation has passed have no counts any more; rows of it that come late are counted from none. Source: OSCAR, stateful reduction functions; Särndal,
Swensson and Wretman, Model Assisted Survey Sampling, 1992, 3.2 (Bernoulli sampling).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.archive.estimates import Doubles, Z
from headrace.catalog.reductions import Counted
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, as_int64, flat, group, ints
from headrace.time import Instant

LEAST: Final = 2.0**-20
"""The least share that is kept of any rows."""
_WINDOW: Final = "window"
_TOTALS: Final = ("rows", "total", "squares")


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted of each interval and group: `table` has the interval's number, the columns, rows, sum and squares.

    `reduced` has the columns alone: of each group of which in any interval not every row was kept.
    """

    table: pa.Table | None = None
    reduced: pa.Table | None = None

    def with_rows(self, by: Counted, rows: pa.Table, at: Ints) -> tuple[Counts, Doubles]:
        """The counts with more rows, and the share that is kept of each of these."""
        window = np.floor_divide(at, by.every)
        names = [_WINDOW, *by.columns]
        here = pa.table([pa.array(window), *(flat(rows.column(name)) for name in by.columns)], names=names)
        values = _values(by, rows)
        known = 0 if self.table is None else self.table.num_rows
        both = here if self.table is None else pa.concat_tables([self.table.select(names), here])
        groups = group([flat(both.column(name)) for name in names], both.num_rows).dense()
        totals = [
            np.bincount(groups.codes[known:], weights, groups.count).astype(np.float64)
            for weights in (np.ones(len(at)), values, values**2)
        ]
        if self.table is not None:
            for total, name in zip(totals, _TOTALS, strict=True):
                np.add.at(total, groups.codes[:known], self.table.column(name).to_numpy())
        columns = dict(zip(names, groups.keys, strict=True))
        columns |= {name: pa.array(total) for name, total in zip(_TOTALS, totals, strict=True)}
        shares = _shares(by, *totals)[groups.codes[known:]]
        return Counts(pa.table(columns), self._reduced(by, here.filter(pa.array(shares < 1)))), shares

    def _reduced(self, by: Counted, rows: pa.Table) -> pa.Table | None:
        """The reduced groups, with those of more rows; None where groups have no columns."""
        if not by.columns:
            return None
        names = list(by.columns)
        both = (
            rows.select(names)
            if self.reduced is None
            else pa.concat_tables([self.reduced, rows.select(names)])
        )
        return pa.table(group([flat(both.column(name)) for name in names], both.num_rows).keys, names=names)

    def since(self, by: Counted, punctuation: Instant) -> Counts:
        """Those of intervals of which accepted rows may come."""
        assert self.table is not None
        open_ = (ints(self.table, _WINDOW) + 1) > np.floor_divide(punctuation, by.every)
        return Counts(self.table.filter(pa.array(open_)), self.reduced)


def _values(by: Counted, rows: pa.Table) -> Doubles:
    if not by.of:
        return np.zeros(rows.num_rows)
    column = flat(rows.column(by.of)).cast(pa.float64(), safe=False).fill_null(0.0)
    values: Doubles = column.to_numpy(zero_copy_only=False)
    return values


def _shares(by: Counted, rows: Doubles, total: Doubles, squares: Doubles) -> Doubles:
    """The share of each group: a power of two; all of it where values are no numbers."""
    with np.errstate(all="ignore"):
        if by.of:
            share = 1 / (1 + (by.within * total / Z) ** 2 / squares)
        else:
            share = by.rows / rows
        share = np.where(np.isfinite(share) & (share > 0), np.clip(share, LEAST, 1.0), 1.0)
    rounded: Doubles = 2.0 ** np.ceil(np.log2(share) - 1e-12)
    return rounded


def strata(shares: Doubles) -> list[tuple[float, npt.NDArray[np.bool_]]]:
    """Each share, descending, and which rows have it."""
    return [(float(share), shares == share) for share in np.unique(shares)[::-1]]


def times(rows: pa.Table, time: str) -> Ints:
    """The event times of archived rows."""
    at: Ints = as_int64(flat(rows.column(time)))
    return at
