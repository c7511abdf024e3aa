"""A join of two streams under windows: which pairs are there, and until when does each of them hold?

A row holds from its time t to t + RANGE, a pair while both of its rows do: from `at`, the later of the two times, to
`until`, the earlier of the two ends. That is the relation of CQL at every instant; where windows slide, a pair is in the
windows that end in (at, until], so a pair that no window's end falls to is none. A pair is told once, when its second
row comes, whatever the order in which the streams arrive; nobody who reads the pairs needs them in order.

State: each side's rows in runs sorted by (key hash, time). New rows search the other side's runs: the cost follows the
new rows and the pairs they make. A row stays as long as the *other* stream may still bring one to meet it, and one that
the other stream has passed already is never stored.
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
"""The column of a pair that says the last instant at which it holds; NULL in a row that only says when a stream began."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Where windows that slide end: at `anchor + i*slide`."""

    slide: Duration
    anchor: Instant

    def last_end(self, until: Ints) -> Ints:
        """The last end at or before each instant."""
        found: Ints = until - (until - self.anchor) % self.slide
        return found


@dataclass(frozen=True, slots=True)
class WindowJoin(TwoSided):
    """Pairs of rows of two sides, with `until`; `grid`: the windows slide."""

    spec: JoinSpec
    grid: Grid | None = None

    def display(self) -> Iterator[str]:
        """What pairs are, where rows meet, and how long they wait."""
        return join_lines(self, changes=False)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Tell the pairs of rows that came with those that are there, and with each other."""
        came = arrived(deltas)
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        for left, right in encounters(runs, came, Sorted.of):
            found = self._pairs(left, right)
            tables += [table for table, _ in found if table.num_rows]
            rejected += [failed for _, failed in found if failed is not None]
        state = self.kept(came, advance)
        tables += self.began(runs, deltas, state)
        return Step(state, pa.concat_tables(tables) if tables else None, tuple(rejected))

    def _pairs(self, left: Sorted, right: Sorted) -> list[tuple[pa.Table, Rejected | None]]:
        """The pairs of two tables; the smaller one asks."""
        if left.rows <= right.rows:
            return [
                self._joined(left, right, *each)
                for each in overlapping_pairs(left, right, self.spec.sides[1].longest)
            ]
        return [
            self._joined(left, right, mine, other)
            for other, mine in overlapping_pairs(right, left, self.spec.sides[0].longest)
        ]

    def _joined(
        self, left: Sorted, right: Sorted, mine: Ints, other: Ints
    ) -> tuple[pa.Table, Rejected | None]:
        at = np.maximum(left.at[mine], right.at[other])
        until = np.minimum(left.until[mine], right.until[other])
        if self.grid is not None:
            shared = self.grid.last_end(until) > at
            mine, other, at, until = mine[shared], other[shared], at[shared], until[shared]
        rows = self.both(left.table, right.table, mine, other)
        keep, bad, reasons = passing(self.spec.condition, rows, len(at))
        failed = failed_pairs(at[bad], reasons) if reasons else None
        if not keep.all():
            rows = {name: column.filter(pa.array(keep)) for name, column in rows.items()}
            at, until = at[keep], until[keep]
        return self.pairs(rows, at, pa.array(until)), failed

    def needed(self, rows: pa.Table, place: int, advance: Advance) -> pa.Table:
        """The rows of a side that the other one may still bring a row to meet."""
        bound, until = self.spec.sides[1 - place].bound(advance), Sorted.of(rows).until
        if self.grid is None:
            return rows.filter(pa.array(until >= bound))
        return rows.filter(pa.array(self.grid.last_end(until) > bound))

    def can_match(self, batch: Batch, side: Side) -> npt.NDArray[np.bool_]:
        """Where windows slide, the rows that an end of a window falls to."""
        if self.grid is None:
            return np.ones(batch.rows, bool)
        meets: npt.NDArray[np.bool_] = self.grid.last_end(side.until(batch)) > batch.at
        return meets

    def at_rest(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        """Rows with key hash, time and end."""
        slots, mixed = slots_and_hashes(keys, batch.rows, self.spec.slot)
        head = [slots, mixed, batch.at, side.until(batch)]
        return pa.table(
            [*map(pa.array, head), *(flat(batch.columns[name]) for name in side.stored.names)],
            names=[SLOT, HASH, TIME, END, *side.stored.names],
        )
