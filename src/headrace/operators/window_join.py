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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.expressions import Expression
from headrace.operators.batch import Batch, Rejected
from headrace.operators.grouping import Ints, flat
from headrace.operators.join_sides import (
    FIRST,
    SIDES,
    JoinScanner,
    Side,
    arrived,
    began_earlier,
    beginning,
    earliest,
    encounters,
    failed_pairs,
    join_lines,
    passing,
    slots_and_hashes,
    taken,
)
from headrace.operators.operator import AT, SLOT, WINDOW, BaseOperator, Sections, Step, Turn
from headrace.operators.row_store import TIME
from headrace.operators.sorted_sides import END, HASH, Sorted, in_order, meeting
from headrace.schema import Schema, to_arrow
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
class WindowJoin(BaseOperator):
    """Pairs of rows of two sides for which `condition` is true, with `until`; `shown` are the columns they have.

    `grid`: the windows slide. `tells_first`: a row without a pair tells when the first row of all came.
    """

    id: str
    query: str
    stream: str
    sides: tuple[Side, Side]
    condition: Expression | None
    shown: Schema
    grid: Grid | None
    slot: int
    tells_first: bool = False
    relations: tuple[str, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns it reads, as they are called where the streams are read together."""
        return self.sides[0].reads | self.sides[1].reads

    @property
    def makes_pairs(self) -> bool:
        """It does nothing else."""
        return True

    def display(self) -> Iterator[str]:
        """What pairs are, where rows meet, and how long they wait."""
        return join_lines(self, changes=False)

    def scanner(self, relations: Mapping[str, pa.Table]) -> JoinScanner:  # noqa: ARG002
        """Puts the rows of both sides aside, with the hashes of their keys."""
        return JoinScanner(self)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn) -> Step:
        """Tell the pairs of rows that came with those that are there, and with each other."""
        fresh = [arrived(deltas, side, Sorted.of) for side in SIDES]
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        for left, right in encounters(runs, fresh, Sorted.of):
            found = self._pairs(left, right)
            tables += [table for table, _ in found if table.num_rows]
            rejected += [failed for _, failed in found if failed is not None]
        state = {
            side: kept
            for place, (side, new) in enumerate(zip(SIDES, fresh, strict=True))
            if new is not None and (kept := self._needed(new, place, turn)).num_rows
        }
        if self.tells_first:
            tables += self._began(runs, deltas, state)
        return Step(state, pa.concat_tables(tables) if tables else None, tuple(rejected))

    def _pairs(self, left: Sorted, right: Sorted) -> list[tuple[pa.Table, Rejected | None]]:
        """The pairs of two tables; the smaller one asks."""
        if left.rows <= right.rows:
            return [self._told(left, right, *each) for each in meeting(left, right, self.sides[1].longest)]
        return [
            self._told(left, right, mine, other)
            for other, mine in meeting(right, left, self.sides[0].longest)
        ]

    def _told(self, left: Sorted, right: Sorted, mine: Ints, other: Ints) -> tuple[pa.Table, Rejected | None]:
        at = np.maximum(left.at[mine], right.at[other])
        until = np.minimum(left.until[mine], right.until[other])
        if self.grid is not None:
            shared = self.grid.last_end(until) > at
            mine, other, at, until = mine[shared], other[shared], at[shared], until[shared]
        rows = {
            **taken(left.table, self.sides[0].stored.names, mine),
            **taken(right.table, self.sides[1].stored.names, other),
        }
        keep, bad, reasons = passing(self.condition, rows, len(at))
        failed = failed_pairs(at[bad], reasons) if reasons else None
        if not keep.all():
            rows = {name: column.filter(pa.array(keep)) for name, column in rows.items()}
            at, until = at[keep], until[keep]
        return self._table(rows, at, pa.array(until)), failed

    def _table(self, rows: Mapping[str, pa.Array], at: Ints, until: pa.Array) -> pa.Table:
        shown = [until if name == UNTIL else rows[name] for name in self.shown.names]
        names = [*self.shown.names, WINDOW, AT]
        return pa.table([*shown, pa.array(np.zeros(len(at), np.int64)), pa.array(at)], names=names)

    def _needed(self, held: Sorted, place: int, turn: Turn) -> pa.Table:
        """The rows of a side that the other one may still bring a row to meet."""
        bound = self.sides[1 - place].bound(turn)
        if self.grid is None:
            return held.table.filter(pa.array(held.until >= bound))
        return held.table.filter(pa.array(self.grid.last_end(held.until) > bound))

    def _began(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], state: dict[str, pa.Table]
    ) -> list[pa.Table]:
        """A row that says when the first row came, if one came that is earlier than all before."""
        found = began_earlier(runs, deltas, self.slot)
        if found is None:
            return []
        at, state[FIRST] = found
        nulls = {field.name: pa.nulls(1, to_arrow(field.type)) for field in self.shown}
        return [self._table(nulls, np.array([at]), pa.nulls(1, pa.int64()))]

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:
        """The rows that may still meet one, in one order."""
        if section == FIRST:
            return beginning(earliest(tables), self.slot)
        return self._needed(Sorted.of(in_order(tables)), SIDES.index(section), turn)

    def meets(self, batch: Batch, side: Side) -> npt.NDArray[np.bool_]:
        """Where windows slide, the rows that an end of a window falls to."""
        if self.grid is None:
            return np.ones(batch.rows, bool)
        meets: npt.NDArray[np.bool_] = self.grid.last_end(side.until(batch)) > batch.at
        return meets

    def at_rest(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        """Rows with key hash, time and end."""
        slots, mixed = slots_and_hashes(keys, batch.rows, self.slot)
        head = [slots, mixed, batch.at, side.until(batch)]
        return pa.table(
            [*map(pa.array, head), *(flat(batch.columns[name]) for name in side.stored.names)],
            names=[SLOT, HASH, TIME, END, *side.stored.names],
        )
