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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import AT, SLOT, Advance, Sections, Step
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
from headrace.operators.rows.sorted_rows import HASH, in_order, of_one_hash
from headrace.time import BEGINNING, FOREVER

_WEIGHT: Final = "__weight"
"""How often a row comes with a change; negative where it goes."""
_REASON: Final = "__reason"


@dataclass(frozen=True, slots=True)
class RelationJoin(TwoSided):
    """Pairs of rows of two sides, as changes."""

    spec: JoinSpec

    def at_rest(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        """The changes that rows are; of a row that leaves after a time both."""
        slots, mixed = slots_and_hashes(keys, batch.rows, self.spec.slot)
        weight = np.ones(batch.rows, np.int64)
        if side.changes is not None:
            weight = flat(batch.columns[side.changes]).cast(pa.int64()).to_numpy(zero_copy_only=False)
        kept = [flat(batch.columns[name]) for name in side.stored.names]
        names = [SLOT, HASH, TIME, _WEIGHT, *side.stored.names]
        came = pa.table([*map(pa.array, (slots, mixed, batch.at, weight)), *kept], names=names)
        if side.lookback is None:
            return came
        head = map(pa.array, (slots, mixed, batch.at + side.lookback + 1, -weight))
        return pa.concat_tables([came, pa.table([*head, *kept], names=names)])

    @property
    def reads_changes(self) -> bool:
        """Its sides are changes."""
        return True

    def display(self) -> Iterator[str]:
        """What pairs are, where changes meet, and how long they wait."""
        return join_lines(self, changes=True)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Tell what the changes that came make with those that are there, and with each other."""
        came = arrived(deltas)
        tables: list[pa.Table] = []
        failing: list[pa.Table] = []
        for left, right in encounters(runs, came, _Changes.of):
            for mine, other in _meeting(left, right):
                table, failed = self._changed_pairs(left, right, mine, other)
                tables += [table] if table.num_rows else []
                failing += [] if failed is None else [failed]
        state = self.kept(came, advance)
        told = [self._changelog(pa.concat_tables(tables))] if tables else []
        told += self.began(runs, deltas, state)
        return Step(state, pa.concat_tables(told) if told else None, _failed(failing))

    def _changed_pairs(
        self, left: _Changes, right: _Changes, mine: Ints, other: Ints
    ) -> tuple[pa.Table, pa.Table | None]:
        """What changes make together: the shown columns, when, and how often; and what the condition failed on."""
        at = np.maximum(left.at[mine], right.at[other])
        weight = left.weight[mine] * right.weight[other]
        rows = self.both(left.table, right.table, mine, other)
        keep, bad, reasons = passing(self.spec.condition, rows, len(at))
        names = self.spec.shown.names[:-1]
        shown = [*(rows[name] for name in names), pa.array(at), pa.array(weight)]
        table = pa.table(shown, names=[*names, AT, _WEIGHT])
        failed = None
        if reasons:
            columns = {**rows, AT: pa.array(at), _WEIGHT: pa.array(weight)}
            failed = pa.table(columns).take(pa.array(bad)).append_column(_REASON, pa.array(reasons))
        return (table if keep.all() else table.filter(pa.array(keep))), failed

    def _changelog(self, pairs: pa.Table) -> pa.Table:
        """Each row as often as it comes or goes at an instant, after what cancels out."""
        names = self.spec.shown.names[:-1]
        weight = ints(pairs, _WEIGHT)
        if (weight < 0).any():
            pairs, weight = _net(pairs, [*names, AT], weight)
        copies = pa.array(np.repeat(np.arange(pairs.num_rows), np.abs(weight)))
        pairs, sign = pairs.take(copies), np.repeat(np.sign(weight), np.abs(weight))
        rows = {name: flat(pairs.column(name)) for name in names}
        return self.pairs(rows, ints(pairs, AT), pa.array(sign, pa.int8()))

    def needed(self, rows: pa.Table, place: int, advance: Advance) -> pa.Table:
        """The changes of a side, with those added up that no change to come of the other side is before."""
        bound = self.spec.sides[1 - place].bound(advance)
        if bound == FOREVER:
            return rows.slice(0, 0)
        done = ints(rows, TIME) <= bound
        if not done.any():
            return rows
        settled = rows.filter(pa.array(done))
        held, weight = _net(settled, self.spec.sides[place].stored.names, ints(settled, _WEIGHT))
        for name, values in ((TIME, np.full(held.num_rows, BEGINNING)), (_WEIGHT, weight)):
            held = held.set_column(held.column_names.index(name), name, pa.array(values))
        return in_order([held, rows.filter(pa.array(~done))])


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
    union, weight = _net(whole, [n for n in whole.column_names if n != _WEIGHT], ints(whole, _WEIGHT))
    came = np.repeat(np.arange(union.num_rows), np.maximum(weight, 0))
    reasons = tuple(union.column(_REASON).take(pa.array(came)).to_pylist())
    return (failed_pairs(ints(union, AT)[came], reasons),) if reasons else ()


def _net(table: pa.Table, names: Sequence[str], weight: Ints) -> tuple[pa.Table, Ints]:
    """One row of each kind that does not cancel out, and how often it is left."""
    groups = group([flat(table.column(name)) for name in names], table.num_rows)
    total = np.zeros(groups.count, np.int64)
    np.add.at(total, groups.codes, weight)
    first = np.empty(groups.count, np.int64)
    first[groups.codes[::-1]] = np.arange(table.num_rows)[::-1]
    left = np.flatnonzero(total)
    return table.take(pa.array(first[left])), total[left]
