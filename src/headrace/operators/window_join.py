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
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.expressions import Expression, columns_of
from headrace.operators.batch import Batch, Rejected
from headrace.operators.grouping import SLOTS, Ints, flat
from headrace.operators.members import member_of
from headrace.operators.operator import AT, SLOT, WINDOW, Scanned, Sections, Step, Turn
from headrace.operators.row_steps import Keep, RowPipeline, columns_read
from headrace.operators.row_store import TIME
from headrace.operators.scalar import Evaluation
from headrace.operators.sorted_sides import END, HASH, Sorted, in_order, key_hashes, meeting, usable
from headrace.schema import Schema, to_arrow
from headrace.time import FOREVER, Duration, Instant

UNTIL: Final = "until"
"""The column of a pair that says the last instant at which it holds; NULL in a row that only says when a stream began."""
FIRST: Final = "first"
_SIDES: Final = ("left", "right")


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
class Side:
    """One side of a join: the numbers of its streams among those that are read, and what is kept of their rows.

    `reach`: how long a row holds, None without end; or `ends`, a column that says until when. `longest`: no row holds longer.
    """

    members: tuple[int, ...]
    stored: Schema
    keeps: tuple[Keep, ...]
    keys: tuple[Expression, ...]
    reach: Duration | None
    ends: str | None = None
    longest: Duration | None = None

    @property
    def reads(self) -> frozenset[str]:
        """The columns it reads."""
        found = columns_read(self.keeps) | frozenset(self.stored.names)
        found = found.union(*(columns_of(key) for key in self.keys))
        return found | {self.ends} if self.ends is not None else found

    def until(self, batch: Batch) -> Ints:
        """The last instant at which each row holds."""
        if self.ends is not None:
            found: Ints = flat(batch.columns[self.ends]).to_numpy(zero_copy_only=False)
            return found
        return np.full(batch.rows, FOREVER) if self.reach is None else batch.at + self.reach

    def bound(self, turn: Turn) -> Instant:
        """What its streams have promised."""
        if not turn.each:
            return turn.now
        return min(turn.each[member] for member in self.members)


@dataclass(frozen=True, slots=True)
class WindowJoin:
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

    def scanner(self, relations: Mapping[str, pa.Table]) -> JoinScanner:  # noqa: ARG002
        """Puts the rows of both sides aside, with the hashes of their keys."""
        return JoinScanner(self)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn) -> Step:
        """Tell the pairs of rows that came with those that are there, and with each other."""
        fresh = [_fresh(deltas, side) for side in _SIDES]
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        for left, right in self._encounters(runs, fresh):
            found = self._pairs(left, right)
            tables += [table for table, _ in found if table.num_rows]
            rejected += [failed for _, failed in found if failed is not None]
        state = {
            side: kept
            for place, (side, new) in enumerate(zip(_SIDES, fresh, strict=True))
            if new is not None and (kept := self._needed(new, place, turn)).num_rows
        }
        if self.tells_first:
            tables += self._began(runs, deltas, state)
        return Step(state, pa.concat_tables(tables) if tables else None, tuple(rejected))

    def _encounters(
        self, runs: Sequence[Sections], fresh: Sequence[Sorted | None]
    ) -> Iterator[tuple[Sorted, Sorted]]:
        """(left rows, right rows) that have not met: at least one of the two is new."""
        left, right = fresh
        for run in runs:
            if left is not None and "right" in run:
                yield left, Sorted.of(run["right"])
            if right is not None and "left" in run:
                yield Sorted.of(run["left"]), right
        if left is not None and right is not None:
            yield left, right

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
            **_taken(left.table, self.sides[0].stored.names, mine),
            **_taken(right.table, self.sides[1].stored.names, other),
        }
        failed = None
        if self.condition is not None:
            evaluation = Evaluation(rows, len(at))
            keep = evaluation.mask(self.condition)
            if evaluation.errors is not None:
                bad = np.flatnonzero(evaluation.errors.mask)
                reasons = tuple(evaluation.errors.reasons[row] for row in bad.tolist())
                failed = Rejected(at[bad], np.full(len(bad), -1), reasons)
                keep = keep & ~evaluation.errors.mask
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
        new = [delta[FIRST] for delta in deltas if FIRST in delta]
        if not new:
            return []
        earliest = _earliest(new)
        if earliest >= _earliest([run[FIRST] for run in runs if FIRST in run]):
            return []
        state[FIRST] = _first(earliest, self.slot)
        nulls = {field.name: pa.nulls(1, to_arrow(field.type)) for field in self.shown}
        return [self._table(nulls, np.array([earliest]), pa.nulls(1, pa.int64()))]

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:
        """The rows that may still meet one, in one order."""
        if section == FIRST:
            return _first(_earliest(tables), self.slot)
        return self._needed(Sorted.of(in_order(tables)), _SIDES.index(section), turn)


@dataclass(slots=True)
class JoinScanner:
    """The scan half: both sides' rows with key hash, time and end, routed by key."""

    operator: WindowJoin
    pipelines: tuple[RowPipeline, ...] = field(init=False)
    tables: tuple[list[pa.Table], list[pa.Table]] = field(default_factory=lambda: ([], []))
    first: Instant = FOREVER
    rows_in: int = 0
    rows_kept: int = 0

    def __post_init__(self) -> None:
        self.pipelines = tuple(RowPipeline.of(side.keeps, {}) for side in self.operator.sides)

    def add(self, batch: Batch) -> None:
        """Take in a batch of one of the streams."""
        if not batch.rows:
            return
        place = int(member_of(batch) not in self.operator.sides[0].members)
        side, pipeline = self.operator.sides[place], self.pipelines[place]
        self.rows_in += batch.rows
        batch = pipeline.apply(self._noting_first(batch, side))
        batch, keys = pipeline.evaluate(batch, side.keys)
        keep = usable(keys, batch.rows)
        if self.operator.grid is not None:
            keep = keep & (self.operator.grid.last_end(side.until(batch)) > batch.at)
        batch, keys = batch.where(keep), [flat(key).filter(pa.array(keep)) for key in keys]
        if batch.rows:
            self.rows_kept += batch.rows
            self.tables[place].append(self._table(batch, keys, side))

    def _noting_first(self, batch: Batch, side: Side) -> Batch:
        """The rows that can meet others. Among pairs there are rows that only say when their streams began."""
        if side.ends is None:
            self.first = min(self.first, int(batch.at.min()))
            return batch
        pairs = flat(batch.columns[side.ends]).is_valid().to_numpy(zero_copy_only=False)
        if not pairs.all():
            self.first = min(self.first, int(batch.at[~pairs].min()))
        return batch.where(pairs)

    def _table(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        mixed = key_hashes(keys, batch.rows)
        if keys:
            slots = (mixed.view(np.uint64) % np.uint64(SLOTS)).astype(np.int16)
        else:
            slots = np.full(batch.rows, self.operator.slot, np.int16)
        head = [slots, mixed, batch.at, side.until(batch)]
        return pa.table(
            [*map(pa.array, head), *(flat(batch.columns[name]) for name in side.stored.names)],
            names=[SLOT, HASH, TIME, END, *side.stored.names],
        )

    def finish(self) -> Scanned:
        """The deltas: a section for each side."""
        deltas = {
            side: pa.concat_tables(tables) for side, tables in zip(_SIDES, self.tables, strict=True) if tables
        }
        if self.operator.tells_first and self.first != FOREVER:
            deltas[FIRST] = _first(self.first, self.operator.slot)
        rejected = tuple(each for pipeline in self.pipelines for each in pipeline.rejected)
        return Scanned(deltas, rejected, self.rows_in, self.rows_kept)


def _fresh(deltas: Sequence[Sections], side: str) -> Sorted | None:
    tables = [delta[side] for delta in deltas if side in delta]
    return Sorted.of(in_order(tables)) if tables else None


def _taken(table: pa.Table, names: Sequence[str], rows: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
    picked = pa.array(rows)
    return {name: flat(table.column(name)).take(picked) for name in names}


def _first(at: Instant, slot: int) -> pa.Table:
    return pa.table({SLOT: pa.array([slot], pa.int16()), TIME: pa.array([at], pa.int64())})


def _earliest(tables: Sequence[pa.Table]) -> Instant:
    return min(
        (int(flat(table.column(TIME)).to_numpy().min()) for table in tables if table.num_rows),
        default=FOREVER,
    )
