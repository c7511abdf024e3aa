"""A join of relations that change: what comes to the pairs, and what goes from them, as rows come and go on either side?

A relation is known by its changes: a row comes (+1) or goes (-1) at an instant, and R(t) is the sum of those up to t. The pairs of
two relations at t are then the sum, over all changes of the one and all of the other that are not after t, of the products of
their signs. So each change meets each change of the other side once, and what the two make comes or goes at the later of
their instants, whatever the order in which the sides arrive. A window of time tells both changes of a row when it comes;
windows of rows, and queries, tell theirs as rows of a stream.

State: each side's changes in runs sorted by (key hash, time); new ones search the other side's runs, so the cost follows
them and the pairs they make. Changes that the other side has passed by are added up, row by row: what is left of them is what the
relation holds, and nothing of what came and went.
Source: the binary join of STREAM over streams of insertions and deletions (Babu 2005, section 2.3), for any cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.expressions import Expression
from headrace.algebra.windows import CHANGE
from headrace.operators.batch import Batch, Rejected
from headrace.operators.grouping import Ints, flat, group, ints
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
from headrace.operators.sorted_sides import HASH, in_order, of_one_hash
from headrace.schema import Schema, to_arrow
from headrace.time import BEGINNING, FOREVER

_WEIGHT: Final = "__weight"
"""How often a row comes with a change; negative where it goes."""
_REASON: Final = "__reason"
_TINY: Final = pa.int8()


@dataclass(frozen=True, slots=True)
class RelationJoin(BaseOperator):
    """Pairs of rows of two sides for which `condition` is true, as changes; `shown` are the columns they have.

    `tells_first`: a row without a pair, of which the change is NULL, tells when the first row of all came.
    """

    id: str
    query: str
    stream: str
    sides: tuple[Side, Side]
    condition: Expression | None
    shown: Schema
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

    @property
    def reads_changes(self) -> bool:
        """Its sides are changes."""
        return True

    def display(self) -> Iterator[str]:
        """What pairs are, where changes meet, and how long they wait."""
        return join_lines(self, changes=True)

    def scanner(self, relations: Mapping[str, pa.Table]) -> JoinScanner:  # noqa: ARG002
        """Puts the changes of both sides aside, with the hashes of their keys."""
        return JoinScanner(self)

    def meets(self, batch: Batch, side: Side) -> npt.NDArray[np.bool_]:  # noqa: ARG002
        """Every row may."""
        return np.ones(batch.rows, bool)

    def at_rest(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        """The changes that rows are; of a row that leaves after a time both."""
        slots, mixed = slots_and_hashes(keys, batch.rows, self.slot)
        weight = np.ones(batch.rows, np.int64)
        if side.changes is not None:
            weight = flat(batch.columns[side.changes]).cast(pa.int64()).to_numpy(zero_copy_only=False)
        kept = [flat(batch.columns[name]) for name in side.stored.names]
        names = [SLOT, HASH, TIME, _WEIGHT, *side.stored.names]
        came = pa.table([*map(pa.array, (slots, mixed, batch.at, weight)), *kept], names=names)
        if side.reach is None:
            return came
        head = map(pa.array, (slots, mixed, batch.at + side.reach + 1, -weight))
        return pa.concat_tables([came, pa.table([*head, *kept], names=names)])

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn) -> Step:
        """Tell what the changes that came make with those that are there, and with each other."""
        fresh = [arrived(deltas, side, _Changes.of) for side in SIDES]
        tables: list[pa.Table] = []
        failing: list[pa.Table] = []
        for left, right in encounters(runs, fresh, _Changes.of):
            for mine, other in _meeting(left, right):
                table, failed = self._met(left, right, mine, other)
                tables += [table] if table.num_rows else []
                failing += [] if failed is None else [failed]
        state = {
            side: kept
            for place, (side, new) in enumerate(zip(SIDES, fresh, strict=True))
            if new is not None and (kept := self._settled(new.table, place, turn)).num_rows
        }
        told = [self._told(pa.concat_tables(tables))] if tables else []
        if self.tells_first:
            told += self._began(runs, deltas, state)
        return Step(state, pa.concat_tables(told) if told else None, _failed(failing))

    def _met(
        self, left: _Changes, right: _Changes, mine: Ints, other: Ints
    ) -> tuple[pa.Table, pa.Table | None]:
        """What changes make together: the shown columns, when, and how often; and what the condition failed on."""
        at = np.maximum(left.at[mine], right.at[other])
        weight = left.weight[mine] * right.weight[other]
        rows = {
            **taken(left.table, self.sides[0].stored.names, mine),
            **taken(right.table, self.sides[1].stored.names, other),
        }
        keep, bad, reasons = passing(self.condition, rows, len(at))
        shown = [rows[name] for name in self.shown.names if name != CHANGE]
        names = [*(name for name in self.shown.names if name != CHANGE), AT, _WEIGHT]
        table = pa.table([*shown, pa.array(at), pa.array(weight)], names=names)
        failed = None
        if reasons:
            columns = {**rows, AT: pa.array(at), _WEIGHT: pa.array(weight)}
            failed = pa.table(columns).take(pa.array(bad)).append_column(_REASON, pa.array(reasons))
        return (table if keep.all() else table.filter(pa.array(keep))), failed

    def _told(self, met: pa.Table) -> pa.Table:
        """Each row as often as it comes or goes at an instant, after what cancels out."""
        names = [name for name in self.shown.names if name != CHANGE]
        weight = ints(met, _WEIGHT)
        if (weight < 0).any():
            met, weight = _net(met, [*names, AT], weight)
        copies = pa.array(np.repeat(np.arange(met.num_rows), np.abs(weight)))
        met, sign = met.take(copies), np.repeat(np.sign(weight), np.abs(weight))
        rows = {name: flat(met.column(name)) for name in names}
        return self._table(rows, ints(met, AT), pa.array(sign, _TINY))

    def _table(self, rows: Mapping[str, pa.Array], at: Ints, change: pa.Array) -> pa.Table:
        shown = [change if name == CHANGE else rows[name] for name in self.shown.names]
        names = [*self.shown.names, WINDOW, AT]
        return pa.table([*shown, pa.array(np.zeros(len(at), np.int64)), pa.array(at)], names=names)

    def _began(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], state: dict[str, pa.Table]
    ) -> list[pa.Table]:
        """A row that says when the first row came, if one came that is earlier than all before."""
        found = began_earlier(runs, deltas, self.slot)
        if found is None:
            return []
        at, state[FIRST] = found
        nulls = {field.name: pa.nulls(1, to_arrow(field.type)) for field in self.shown}
        return [self._table(nulls, np.array([at]), pa.nulls(1, _TINY))]

    def _settled(self, changes: pa.Table, place: int, turn: Turn) -> pa.Table:
        """The changes of a side, with those added up that no change to come of the other side is before."""
        bound = self.sides[1 - place].bound(turn)
        if bound == FOREVER:
            return changes.slice(0, 0)
        done = ints(changes, TIME) <= bound
        if not done.any():
            return changes
        settled = changes.filter(pa.array(done))
        held, weight = _net(settled, self.sides[place].stored.names, ints(settled, _WEIGHT))
        for name, values in ((TIME, np.full(held.num_rows, BEGINNING)), (_WEIGHT, weight)):
            held = held.set_column(held.column_names.index(name), name, pa.array(values))
        return in_order([held, changes.filter(pa.array(~done))])

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:
        """What each relation holds, and the changes that are still to be met one by one."""
        if section == FIRST:
            return beginning(earliest(tables), self.slot)
        return self._settled(in_order(tables), SIDES.index(section), turn)


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of one side, in order of (hash, time)."""

    table: pa.Table
    hash: Ints
    at: Ints
    weight: Ints

    @staticmethod
    def of(table: pa.Table) -> _Changes:
        """A table that is in order."""
        return _Changes(table, *(ints(table, name) for name in (HASH, TIME, _WEIGHT)))


def _meeting(left: _Changes, right: _Changes) -> Iterator[tuple[Ints, Ints]]:
    """(left row, right row) of one hash; the smaller side asks."""
    if len(left.hash) <= len(right.hash):
        return of_one_hash(left.hash, right.hash)
    return ((mine, other) for other, mine in of_one_hash(right.hash, left.hash))


def _failed(failing: Sequence[pa.Table]) -> tuple[Rejected, ...]:
    """Pairs on which the condition failed as they came; where they go, and where two that went meet, they are no more."""
    if not failing:
        return ()
    whole = pa.concat_tables(failing)
    met, weight = _net(whole, [n for n in whole.column_names if n != _WEIGHT], ints(whole, _WEIGHT))
    came = np.repeat(np.arange(met.num_rows), np.maximum(weight, 0))
    reasons = tuple(met.column(_REASON).take(pa.array(came)).to_pylist())
    return (failed_pairs(ints(met, AT)[came], reasons),) if reasons else ()


def _net(table: pa.Table, names: Sequence[str], weight: Ints) -> tuple[pa.Table, Ints]:
    """One row of each kind that does not cancel out, and how often it is left."""
    groups = group([flat(table.column(name)) for name in names], table.num_rows)
    total = np.zeros(groups.count, np.int64)
    np.add.at(total, groups.codes, weight)
    first = np.empty(groups.count, np.int64)
    first[groups.codes[::-1]] = np.arange(table.num_rows)[::-1]
    left = np.flatnonzero(total)
    return table.take(pa.array(first[left])), total[left]
