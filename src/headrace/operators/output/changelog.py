"""Emission of a relation from rows with intervals of validity, after HAVING, the select list, DISTINCT and LIMIT: as a
changelog, or as its ISTREAM, DSTREAM or RSTREAM.

An *item* is a row that holds from instant `begin` (inclusive) to `end` (exclusive). Changes below `Span.emitted_to`
were emitted before; those from `Span.limit` on are not settled. Insertions and retractions of equal rows at one instant
cancel out, so that a batch emits what tuple-at-a-time processing would, consolidated per instant (decision D13).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias
from typing import Literal as Choice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.windows.window import CHANGE
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, flat, group, ints, picked, picked_rows
from headrace.operators.base.group_ranks import stable_order
from headrace.operators.base.operator import AT, QUERY_NUMBER, WINDOW
from headrace.operators.output.output_stage import Finish, finish, without_repeats
from headrace.time import BEGINNING, Instant

EmitMode = Choice["changes", "log", "istream", "dstream", "rstream"]
"""How a relation is emitted: its changes up to NOW, or (`log`) all of them, for readers that have another NOW."""
MOVED: Final = 2
"""The size of `__change` where a row of a relation is replaced by an equal one with another place in the order: readers of changes
leave it out, and the answer is ordered by it.
"""
_MOST_COPIES: Final = 1_000_000
_SIGNS: Final = np.array([1, -1], np.int8)
_Signs: TypeAlias = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Span:
    """The instants to emit: emitted_to <= instant < limit."""

    emitted_to: Instant
    limit: Instant

    def holds(self, instants: Ints) -> np.ndarray:
        """Which instants are within the span."""
        within: np.ndarray = (instants >= self.emitted_to) & (instants < self.limit)
        return within


@dataclass(frozen=True, slots=True)
class Items:
    """Rows with their intervals, as columns by internal name; `failed` marks rows whose aggregate overflowed."""

    columns: Mapping[str, pa.Array]
    begin: Ints
    end: Ints
    failed: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """Number of items."""
        return len(self.begin)

    def take(self, rows: Ints) -> Items:
        """Some of the items."""
        columns = {name: picked(flat(column), rows) for name, column in self.columns.items()}
        failed = None if self.failed is None else self.failed[rows]
        return Items(columns, self.begin[rows], self.end[rows], failed)

    def slice(self, start: int, stop: int) -> Items:
        """The items from one index to another, without a copy."""
        columns = {name: column.slice(start, stop - start) for name, column in self.columns.items()}
        failed = None if self.failed is None else self.failed[start:stop]
        return Items(columns, self.begin[start:stop], self.end[start:stop], failed)

    @staticmethod
    def joined(parts: Sequence[Items]) -> Items:
        """All of some, of which none has failed rows; one at least."""
        parts = [part for part in parts if part.rows] or parts[:1]
        if len(parts) == 1:
            return parts[0]
        names = parts[0].columns
        columns = {name: pa.concat_arrays([flat(part.columns[name]) for part in parts]) for name in names}
        return Items(
            columns, *(np.concatenate([getattr(part, at) for part in parts]) for at in ("begin", "end"))
        )


Emitted = tuple[pa.Table | None, tuple[Rejected, ...]]


def emit(plan: Finish, items: Items, span: Span, emit_mode: EmitMode) -> Emitted:
    """The changes or the stream of the items after HAVING, select list, DISTINCT and LIMIT."""
    if not items.rows:
        return None, ()
    if not plan.is_row_by_row:
        return _emit_limited(plan, items, span, emit_mode)
    numbers = np.arange(items.rows)
    rows, rejected = finish(replace(plan, distinct=False), items.columns, numbers, items.begin, items.failed)
    begin, end = items.begin, items.end
    if rows.num_rows < items.rows:
        item = ints(rows, WINDOW)
        begin, end = begin[item], end[item]
    if plan.distinct:
        codes = group(outputs(rows), rows.num_rows).codes
        first, begin, end = unite(codes, begin, end)
        rows = without_repeats(rows, pa.array(first), plan)
    entering, leaving = span.holds(begin) & (begin < end), span.holds(end) & (begin < end)
    if emit_mode == "rstream":
        chosen = np.flatnonzero(entering)
        return consolidated(rows, begin[chosen], np.ones(len(chosen), np.int8), emit_mode, chosen), rejected
    unshown = _unshown(plan, emit_mode)
    inserted, retracted = np.flatnonzero(entering), np.flatnonzero(leaving)
    instants = np.concatenate([begin[inserted], end[retracted]])
    signs = np.repeat(_SIGNS, [len(inserted), len(retracted)])
    chosen = np.concatenate([inserted, retracted])
    return consolidated(rows, instants, signs, emit_mode, chosen, unshown), rejected


def _unshown(plan: Finish, emit_mode: EmitMode) -> tuple[str, ...]:
    """The hidden columns by which an answer is ordered that its rows do not show; an answer has none in other modes."""
    return plan.unshown if emit_mode == "changes" else ()


def emit_changes(
    plan: Finish, columns: Mapping[str, pa.Array], at: Ints, signs: Ints, emit_mode: EmitMode
) -> Emitted:
    """HAVING and the select list applied to insertions (+1) and retractions (-1) at instants, row by row."""
    rows, rejected = finish(plan, columns, np.arange(len(at)), at)
    change = ints(rows, WINDOW)
    return consolidated(
        rows, at[change], signs[change], emit_mode, unshown=_unshown(plan, emit_mode)
    ), rejected


def outputs(rows: pa.Table) -> list[pa.Array]:
    """The columns that the user sees, and the query's number where there are several queries."""
    return [
        flat(rows.column(name))
        for name in rows.column_names
        if not name.startswith("__") or name == QUERY_NUMBER
    ]


def consolidated(
    rows: pa.Table,
    instants: Ints,
    signs: _Signs,
    emit_mode: EmitMode,
    changed: Ints | None = None,
    unshown: Sequence[str] = (),
) -> pa.Table:
    """The net change of each distinct row at each instant, repeated by its multiplicity, in the order of instants; of several queries one
    after the other. `changed` is the row of each change; without it each row has one.

    Only rows of an instant (and query) that has changes of both signs are compared with each other. Equal ones that differ in
    hidden columns (`unshown`) do not cancel out, and are `MOVED`.
    """
    of_query = [ints(rows, QUERY_NUMBER)] if QUERY_NUMBER in rows.column_names else []
    if changed is not None:
        of_query = [numbers[changed] for numbers in of_query]
    order = stable_order(*of_query, instants)
    *of_query, instants = order.columns
    changed, net = order.rows if changed is None else changed[order.rows], signs[order.rows]
    compared, moved = _may_cancel(order.begins, net), np.zeros(0, np.int64)
    if len(compared):
        taken = rows.take(pa.array(changed[compared]))
        shown = [*outputs(taken), pa.array(instants[compared])]
        groups = group([*shown, *(flat(taken.column(name)) for name in unshown)], len(compared))
        first = np.full(groups.count, len(changed), np.int64)
        np.minimum.at(first, groups.codes, compared)
        sums = np.bincount(groups.codes, net[compared], groups.count).astype(np.int64)
        net = net.astype(np.int64)
        if unshown:
            alike = group(shown, len(compared)).codes[np.searchsorted(compared, first)]
            moved = np.zeros(len(changed), np.int64)
            moved[first] = _moved(alike, sums)
            sums -= moved[first]
        net[compared] = 0
        net[first] = sums
    both = emit_mode in ("changes", "log")
    copies = np.abs(net) if both else np.maximum(-net if emit_mode == "dstream" else net, 0)
    if (copies != 1).any():
        repeated = np.repeat(np.arange(len(changed)), copies)
        net = np.sign(net[repeated])
        if moved.any():
            moves = np.repeat(np.arange(len(changed)), np.abs(moved))
            net = np.concatenate([net, MOVED * np.sign(moved[moves])])
            repeated = np.concatenate([repeated, moves])
            in_place = np.argsort(repeated, kind="stable")
            repeated, net = repeated[in_place], net[in_place]
        changed, instants = changed[repeated], instants[repeated]
        of_query = [numbers[repeated] for numbers in of_query]
    columns = {AT: pa.array(instants), WINDOW: pa.array(np.zeros(len(changed), np.int64))}
    if of_query:
        columns[QUERY_NUMBER] = pa.array(of_query[0])
    others = picked_rows(rows.drop_columns([*columns]), changed)
    columns |= dict(zip(others.column_names, others.columns, strict=True))
    changes = pa.table({name: columns[name] for name in rows.column_names})
    return changes.append_column(CHANGE, pa.array(net.astype(np.int8, copy=False))) if both else changes


def _moved(alike: Ints, sums: Ints) -> Ints:
    """How many of the net changes are of rows that only move: as many insertions as retractions of each row that looks the same.

    `alike` is the number of what is shown of each.
    """
    order = np.argsort(alike, kind="stable")
    codes, sizes = alike[order], (np.maximum(sums, 0)[order], np.maximum(-sums, 0)[order])
    pairs = np.minimum(*(np.bincount(codes, size).astype(np.int64) for size in sizes))
    starts = np.r_[True, codes[1:] != codes[:-1]]
    moved = np.zeros(len(sums), np.int64)
    for sign, size in zip((1, -1), sizes, strict=True):
        before = np.cumsum(size) - size
        before -= before[starts][np.cumsum(starts) - 1]  # those of the same rows alone
        moved[order] += sign * np.clip(pairs[codes] - before, 0, size)
    return moved


def _may_cancel(begins: np.ndarray, signs: _Signs) -> Ints:
    """The changes of a query and an instant that has both insertions and retractions; `begins`: the first of each."""
    several = np.flatnonzero(~(begins & np.append(begins[1:], True)))
    run = np.cumsum(begins[several])
    inserted, retracted = (
        np.bincount(run[of_sign], minlength=len(run) + 1) > 0
        for of_sign in (signs[several] > 0, signs[several] < 0)
    )
    cancel: Ints = several[inserted[run] & retracted[run]]
    return cancel


def unite(codes: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """The union of the intervals of each code: a representative row, begin and end of each maximal interval."""
    there = np.flatnonzero(begin < end)
    order = there[np.lexsort((begin[there], codes[there]))]
    codes, begin, end = codes[order], begin[order], end[order]
    if not len(order):
        return order, begin, end
    ends, rank = np.unique(end, return_inverse=True)
    base = codes * len(ends)  # the running maximum of a code is above all of the codes before it
    max_end = ends[np.maximum.accumulate(base + rank) - base]
    fresh = np.r_[True, (codes[1:] != codes[:-1]) | (begin[1:] > max_end[:-1])]
    starts = np.flatnonzero(fresh)
    stops = np.r_[starts[1:], len(order)] - 1
    return order[starts], begin[starts], max_end[stops]


def _emit_limited(plan: Finish, items: Items, span: Span, emit_mode: EmitMode) -> Emitted:
    """ORDER BY and LIMIT: the whole relation at every instant at which an item begins or ends, and the differences."""
    held = (items.begin < items.end) & (items.end >= span.emitted_to) & (items.begin < span.limit)
    begin, end = items.begin, items.end
    events = np.concatenate([begin[held], end[held]])
    points = np.unique(events[span.holds(events)])
    if not len(points):
        return None, ()
    low = np.where(begin < span.emitted_to, 0, 1 + np.searchsorted(points, begin))
    high = np.where(held, 1 + np.searchsorted(points, end), low)
    moments = np.r_[BEGINNING, points]
    tables: list[pa.Table] = []
    rejected: list[Rejected] = []
    for start, stop in _portions(low, high, len(moments)):
        at, rows, bad = _at_points(plan, items, np.maximum(low, start), np.minimum(high, stop), moments)
        rejected += bad
        if emit_mode == "rstream":
            is_new = at > start
            chosen = np.flatnonzero(is_new)
            signs = np.ones(len(chosen), np.int64)
            tables.append(consolidated(rows, moments[at[chosen]], signs, emit_mode, chosen))
            continue
        entering, leaving = at > start, at + 1 < stop
        chosen = np.concatenate([np.flatnonzero(entering), np.flatnonzero(leaving)])
        point = np.concatenate([at[entering], at[leaving] + 1])
        signs = np.repeat([1, -1], [entering.sum(), leaving.sum()])
        unshown = _unshown(plan, emit_mode)
        tables.append(consolidated(rows, moments[point], signs, emit_mode, chosen, unshown))
    return (pa.concat_tables(tables) if tables else None), tuple(rejected)


def _portions(low: Ints, high: Ints, points: int) -> list[tuple[int, int]]:
    """Runs of points evaluated together, each beginning with the last point of the one before."""
    size = np.zeros(points + 1, np.int64)
    np.add.at(size, low, 1)
    np.add.at(size, np.maximum(low, high), -1)
    total = np.cumsum(np.cumsum(size[:points]))
    portions: list[tuple[int, int]] = []
    start = 0
    while start < points - 1 or not portions:
        before = total[start - 1] if start else 0
        stop = int(np.searchsorted(total, before + _MOST_COPIES, side="right"))
        stop = min(points, max(stop, start + 2))
        portions.append((start, stop))
        start = stop - 1
        if stop == points:
            break
    return portions


def _at_points(
    plan: Finish, items: Items, low: Ints, high: Ints, moments: Ints
) -> tuple[Ints, pa.Table, Sequence[Rejected]]:
    """The finished relation at each point: the point of each row, and the rows."""
    copies = np.maximum(high - low, 0)
    source = np.repeat(np.arange(items.rows), copies)
    point = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies) + np.repeat(low, copies)
    indices = pa.array(source)
    columns = {name: flat(column).take(indices) for name, column in items.columns.items()}
    failed = items.failed[source] if items.failed is not None else None
    rows, rejected = finish(plan, columns, point, moments[point], failed)
    return ints(rows, WINDOW), rows, rejected
