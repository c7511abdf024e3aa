"""Join of two streams under windows: pairs, and the last instant at which each holds.

A row holds from its time t to t + RANGE, a pair while both of its rows do: from `at`, the later of the two times, to
`until`, the earlier of the two ends. That is the relation of CQL at every instant. With sliding windows, a pair is in
the windows that end in (at, until], so a pair without a window end in that interval is dropped. A pair is emitted once,
when its second row arrives, whatever the order in which the streams arrive; readers do not need pairs in order.
State: each side's rows in runs sorted by (key hash, time). New rows search the other side's runs: the cost follows the
new rows and the pairs they make. A row is stored while the *other* stream may still bring a row to join it with; a row
already below the other stream's punctuation is never stored.
Source: Li 2008, chapter 7 (OA-Join, Figures 7-1 and 7-2); each side's RANGE is the lifetime of its own rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints, flat
from headrace.operators.base.operator import SLOT, Advance, Sections, Step
from headrace.operators.joins.join_side import (
    JoinSpec,
    Side,
    TwoSided,
    arrived,
    encounters,
    failed_pairs,
    join_lines,
    passing,
    slots_and_hashes,
)
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import END, HASH, Sorted, overlapping_pairs
from headrace.time import Duration, Instant

UNTIL: Final = "until"
"""The column of a pair's last instant; NULL in a row that only marks when a stream began."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The ends of sliding windows: `anchor + i*slide`."""

    slide: Duration
    anchor: Instant

    def last_end(self, until: Ints) -> Ints:
        """The last end at or before each instant."""
        ends: Ints = until - (until - self.anchor) % self.slide
        return ends


@dataclass(frozen=True, slots=True)
class WindowJoin(TwoSided):
    """Pairs of rows of two sides, with `until`; with `grid` the windows slide."""

    spec: JoinSpec
    grid: Grid | None = None

    def display(self) -> Iterator[str]:
        """The join condition, the key by which rows are joined, and how long they are stored."""
        return join_lines(self, changes=False)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit the pairs of new rows with stored ones and with each other."""
        new_rows = arrived(deltas)
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        for left, right in encounters(runs, new_rows, Sorted.of):
            pairs = self._pairs(left, right)
            tables += [table for table, _ in pairs if table.num_rows]
            rejected += [failed for _, failed in pairs if failed is not None]
        state = self.new_state(new_rows, advance)
        tables += self.began(runs, deltas, state)
        return Step(state, pa.concat_tables(tables) if tables else None, tuple(rejected))

    def _pairs(self, left: Sorted, right: Sorted) -> list[tuple[pa.Table, Rejected | None]]:
        """The pairs of two tables; the smaller one searches the larger."""
        if left.rows <= right.rows:
            return [
                self._joined(left, right, *rows)
                for rows in overlapping_pairs(left, right, self.spec.sides[1].longest)
            ]
        return [
            self._joined(left, right, left_rows, right_rows)
            for right_rows, left_rows in overlapping_pairs(right, left, self.spec.sides[0].longest)
        ]

    def _joined(
        self, left: Sorted, right: Sorted, left_rows: Ints, right_rows: Ints
    ) -> tuple[pa.Table, Rejected | None]:
        at = np.maximum(left.at[left_rows], right.at[right_rows])
        until = np.minimum(left.until[left_rows], right.until[right_rows])
        if self.grid is not None:
            shared = self.grid.last_end(until) > at
            left_rows, right_rows, at, until = (
                left_rows[shared],
                right_rows[shared],
                at[shared],
                until[shared],
            )
        rows = self.both(left.table, right.table, left_rows, right_rows)
        keep, bad, reasons = passing(self.spec.condition, rows, len(at))
        failed = failed_pairs(at[bad], reasons) if reasons else None
        if not keep.all():
            rows = {name: column.filter(pa.array(keep)) for name, column in rows.items()}
            at, until = at[keep], until[keep]
        return self.pairs(rows, at, pa.array(until)), failed

    def needed(self, rows: pa.Table, index: int, advance: Advance) -> pa.Table:
        """The rows of a side that a row of the other side may still be joined with."""
        bound, until = self.spec.sides[1 - index].bound(advance), Sorted.of(rows).until
        if self.grid is None:
            return rows.filter(pa.array(until >= bound))
        return rows.filter(pa.array(self.grid.last_end(until) > bound))

    def can_match(self, batch: Batch, side: Side) -> npt.NDArray[np.bool_]:
        """With sliding windows, the rows that are in a window."""
        if self.grid is None:
            return np.ones(batch.rows, bool)
        is_in_window: npt.NDArray[np.bool_] = self.grid.last_end(side.until(batch)) > batch.at
        return is_in_window

    def at_rest(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        """Rows with key hash, time and end."""
        slots, mixed = slots_and_hashes(keys, batch.rows, self.spec.slot)
        head = [slots, mixed, batch.at, side.until(batch)]
        return pa.table(
            [*map(pa.array, head), *(flat(batch.columns[name]) for name in side.stored.names)],
            names=[SLOT, HASH, TIME, END, *side.stored.names],
        )
