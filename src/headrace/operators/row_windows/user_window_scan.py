"""Scanner of `[WINDOW name(args)]`, windows of a user's class: the class is called for the windows of each row of a
batch, rows on which it fails are rejected, and the others are folded (or stored) by window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.algebra.windows.contract_check import bounds_of, called
from headrace.algebra.windows.user_windows import UserWindow
from headrace.algebra.windows.window import Custom
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.operator import Scanned
from headrace.operators.rows.row_pipeline import RowPipeline
from headrace.operators.rows.row_state import ROWS, RowLayout

START: Final = "__start"
END: Final = "__end"
_ROW: Final = "__row"


@dataclass(frozen=True, slots=True)
class Assigned:
    """(row, window) pairs with the windows' bounds, and the rows on which the class failed, with the reasons."""

    row: Ints
    number: Ints
    start: Ints
    end: Ints
    failed: dict[int, str]


def assigned(kind: UserWindow, at: Ints, on: Sequence[pa.Array]) -> Assigned:
    """The windows of rows. After a failure by halves, so that only rows that fail on their own are errors."""
    try:
        row, number = called(kind, at, on)
        distinct, index = np.unique(number, return_inverse=True)
        starts, ends = bounds_of(kind, distinct)
        start, end = starts[index], ends[index]
        if ((at[row] < start) | (at[row] >= end)).any():
            raise ValueError("a row is outside the bounds of its window")  # noqa: TRY301 reported like any other
        return Assigned(row, number, start, end, {})
    except Exception as failure:  # noqa: BLE001 whatever a user's class raises is an error of its rows
        if len(at) <= 1:
            none = np.empty(0, np.int64)
            reasons = {0: f"{type(failure).__name__}: {failure}"} if len(at) else {}
            return Assigned(none, none, none, none, reasons)
        half = len(at) // 2
        low = assigned(kind, at[:half], [array.slice(0, half) for array in on])
        high = assigned(kind, at[half:], [array.slice(half) for array in on])
        return Assigned(
            np.r_[low.row, high.row + half],
            np.r_[low.number, high.number],
            np.r_[low.start, high.start],
            np.r_[low.end, high.end],
            low.failed | {row + half: reason for row, reason in high.failed.items()},
        )


@dataclass(slots=True)
class UserScanner:
    """The scan half of `UserWindows`, for one task."""

    window: Custom
    on: tuple[Expression, ...]
    layout: RowLayout
    grouped: Grouped | None
    below: RowPipeline
    above: RowPipeline
    tables: list[list[pa.Table]] = field(default_factory=list)
    rows_in: int = 0
    rows_kept: int = 0

    def add(self, batch: Batch) -> None:
        """Add a batch."""
        self.rows_in += batch.rows
        batch = self.below.apply(batch)
        batch, on = self.below.evaluate(batch, self.on)
        if not batch.rows:
            return
        windows = assigned(self.window.kind, batch.at, on)
        if windows.failed:
            self._reject(batch, windows.failed)
        rows_above = self.above.apply(batch.with_columns({_ROW: pa.array(np.arange(batch.rows))}))
        rows_above, values = self.above.evaluate(rows_above, self.layout.stored)
        numbers = flat(rows_above.columns[_ROW]).to_numpy(zero_copy_only=False)
        copy, pair = _copies(numbers, windows.row, batch.rows)
        self.rows_kept += rows_above.rows
        if len(copy):
            self._store(
                rows_above.take(copy), [flat(value).take(pa.array(copy)) for value in values], windows, pair
            )

    def _reject(self, batch: Batch, failed: dict[int, str]) -> None:
        rows = np.array(sorted(failed))
        reasons = tuple(f"the window {self.window.name}: {failed[row]}" for row in rows.tolist())
        self.below.rejected.append(Rejected(batch.at[rows], batch.position[rows], reasons))

    def _store(self, rows: Batch, values: Sequence[pa.Array], windows: Assigned, pair: Ints) -> None:
        number = windows.number[pair]
        if self.grouped is None:
            table = self.layout.table(rows, values, np.ones(rows.rows, bool))
            self.tables.append([_bounded(table.append_column(KEY, pa.array(number)), windows)])
            return
        folded = fold(self.grouped, number, values, self.layout.slot)
        self.tables.append([_bounded(cells, windows) for cells in folded])

    def finish(self) -> Scanned:
        """The deltas: rows of windows, or a section of cells for each store."""
        deltas: dict[str, pa.Table] = {}
        for store in range(len(self.tables[0]) if self.tables else 0):
            section = ROWS if self.grouped is None else f"cells{store}"
            deltas[section] = pa.concat_tables([tables[store] for tables in self.tables])
        return Scanned(deltas, (*self.below.rejected, *self.above.rejected), self.rows_in, self.rows_kept)


def _copies(rows: Ints, paired: Ints, count: int) -> tuple[Ints, Ints]:
    """Copies of rows, one per window: (index of the row, the pair)."""
    order = np.argsort(paired, kind="stable")
    counts = np.bincount(paired, minlength=count)
    before = np.cumsum(counts) - counts
    copies = counts[rows]
    copy = np.repeat(np.arange(len(rows)), copies)
    offset = np.arange(len(copy)) - np.repeat(np.cumsum(copies) - copies, copies)
    return copy, order[np.repeat(before[rows], copies) + offset]


def _bounded(table: pa.Table, windows: Assigned) -> pa.Table:
    """The table with the bounds of the windows whose numbers are its keys."""
    distinct, first = np.unique(windows.number, return_index=True)
    at = first[np.searchsorted(distinct, ints(table, KEY))]
    return table.append_column(START, pa.array(windows.start[at])).append_column(
        END, pa.array(windows.end[at])
    )


__all__ = ["END", "START", "Assigned", "UserScanner", "assigned"]
