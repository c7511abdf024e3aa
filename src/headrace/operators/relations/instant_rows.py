"""Operator for the instantaneous relation (CQL) of rows, without aggregates, for windows that do not slide; and
`Validity`, how long a row holds, which aggregates at every instant use too.

A row holds in an interval of instants: `[RANGE r]` from t to t + r, UNBOUNDED from t on, `[ROWS n]` until n more rows of its
partition have arrived. The answer is a changelog (or its insertions, or its retractions) of the instants below punctuation.
Source: CQL (Arasu, Babu, Widom); intervals as in decision D13.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column
from headrace.dataclass import dataclass
from headrace.operators.base.due import settles
from headrace.operators.base.group_codes import Ints, group
from headrace.operators.base.group_ranks import dense_ranks
from headrace.operators.base.operator import Advance, FamilyStep, Operator, Sections, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.extents import Extents
from headrace.operators.families.family import joined
from headrace.operators.families.family_operator import RowFamilyOperator
from headrace.operators.families.finishing import emit_parts
from headrace.operators.output.changelog import EmitMode, Items, Span, emit, unite
from headrace.operators.output.output_stage import Finish
from headrace.operators.output.row_operator import RowOperator
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.rows.row_state import ROWS, Held, RowLayout, hold
from headrace.operators.rows.sorted_rows import key_hashes
from headrace.time import BEGINNING, FOREVER, Duration, Instant, render_duration

_BITS: Final = (1 << 18) - 1
_MOST_NEEDED: Final = 0.75
"""The share of new rows that are needed later below which the others are not stored."""
_FEW: Final = 1 << 12
"""Rows that are sorted faster than a bit for each hash is reset."""


@dataclass(frozen=True, slots=True)
class Validity:
    """How long a row holds: `length` microseconds, or until `count` more rows of its partition, or without end.

    A partition is the first `partitions` stored values. With `ends_given` the first stored value is the last instant of
    each row; with `by_changes` it is the row's sign, +1 or -1: a row holds until an equal one is retracted.
    """

    length: Duration | None = None
    count: int | None = None
    partitions: int = 0
    ends_given: bool = False
    by_changes: bool = False

    def display(self) -> Iterator[str]:
        """As EXPLAIN shows it among an operator's settings."""
        yield f"a row is valid {self._in_words()}"

    def _in_words(self) -> str:
        if self.by_changes:
            return "until an equal row is retracted"
        if self.ends_given:
            return "as long as its pair"
        if self.length is not None and self.length <= 1:
            return "at its own instant only"
        if self.length is not None:  # the end of the range is included
            return f"for {render_duration(self.length - 1)}, both ends included"
        if self.count is not None:
            of = " of its partition" if self.partitions else ""
            return f"until {self.count} more rows{of} have arrived"
        return "without end"

    @property
    def kind(self) -> tuple[object, ...]:
        """All of it but the extent."""
        return self.length is None, self.count is None, self.partitions, self.ends_given, self.by_changes

    @property
    def known_at_once(self) -> bool:
        """Whether a row's event time determines how long it holds."""
        return self.count is None and not self.ends_given and not self.by_changes

    @property
    def for_ever(self) -> bool:
        """Whether rows never expire."""
        return self.length is None and self.known_at_once

    @property
    def extent(self) -> int:
        """The length or the count; 0 without."""
        return self.length or self.count or 0

    def ends(self, held: Held, layout: RowLayout, queries: Extents) -> Ints:
        """The instant at which each row expires. All rows must be settled; their extents are those of `queries`."""
        if self.length is not None:
            ends: Ints = held.at + queries.of_rows(held.table)
            return ends
        if self.ends_given:
            last: Ints = held.column(layout.names[0]).to_numpy(zero_copy_only=False)
            return np.where(last == FOREVER, FOREVER, np.minimum(last, FOREVER - 1) + 1)
        if self.by_changes:
            return self._matched(held, layout)
        if self.count is None:
            return np.full(held.rows, FOREVER, np.int64)
        names = [*layout.query_names, *layout.names[: self.partitions]]
        codes = group([held.column(name) for name in names], held.rows).codes
        ranks, count = dense_ranks(codes, held.at, held.position), queries.of_rows(held.table)
        width = int(ranks.max()) + 1 if held.rows else 1
        keys = codes * width + ranks
        order = np.argsort(keys, kind="stable")
        successor = np.where(ranks + count < width, keys + count, -1)
        index = np.minimum(np.searchsorted(keys, successor, sorter=order), max(held.rows - 1, 0))
        exists = keys[order[index]] == successor
        return np.where(exists, held.at[order[index]], FOREVER)

    def due_after(
        self, layout: RowLayout, runs: Sequence[Sections], queries: Extents, punctuation: Instant
    ) -> Instant:
        """When the first row that waits settles, or the first row expires whose end is known since it arrived."""
        due, knows_ends = FOREVER, self.length is not None or self.ends_given
        for held in (hold(layout, [run[ROWS]]) for run in runs if ROWS in run):
            due = min(due, settles(held.at, punctuation))
            if knows_ends:
                due = min(due, settles(self.ends(held, layout, queries), punctuation))
        return due

    def partition_columns(self, layout: RowLayout, keys: Sequence[str], *, routed: bool) -> tuple[str, ...]:
        """Stored values that separate rows: changes to rows of one value do not affect rows of another.

        `keys` are those of the groups that are emitted; `routed`: each of these is in one partition. Empty: unknown.
        """
        if self.by_changes:
            return (*layout.query_names, *keys)
        if self.count is None:
            return ()
        return (*layout.query_names, *(layout.names[: self.partitions] if routed else ()))

    def _matched(self, held: Held, layout: RowLayout) -> Ints:
        """The k-th insertion of equal rows holds until their k-th retraction; a retraction holds until it, if its row is
        here.

        If only a part of the rows is passed, rows without a partner have no end.
        """
        names = [*layout.query_names, *layout.names[self.partitions :]]
        codes = group([held.column(name) for name in names], held.rows).codes
        is_insertion = held.column(layout.names[0]).to_numpy(zero_copy_only=False) > 0
        ends = np.full(held.rows, FOREVER, np.int64)
        order = np.lexsort((held.at, codes))
        inserted, retracted = order[is_insertion[order]], order[~is_insertion[order]]
        pairs = _kth_matches(codes[inserted], codes[retracted])
        inserted, retracted = inserted[pairs[0]], retracted[pairs[1]]
        ends[inserted] = ends[retracted] = np.maximum(held.at[retracted], held.at[inserted])
        return ends

    def shown(self, held: Held, layout: RowLayout) -> np.ndarray:
        """The rows that are in answers: retractions only end others."""
        if not self.by_changes:
            return held.live
        is_insertion: np.ndarray = held.column(layout.names[0]).to_numpy(zero_copy_only=False) > 0
        return is_insertion


def touched(held: Held, partition_columns: Sequence[str], emitted_to: Instant) -> Held:
    """The rows that a change since `emitted_to` may affect, by the values that separate rows.

    They are found by some bits of their hashes, so a few more rows may be among them.
    """
    if not partition_columns:
        return held
    hashes = key_hashes([held.column(name) for name in partition_columns], held.rows)
    if held.rows <= _FEW:
        return held.where(np.isin(hashes, hashes[held.at >= emitted_to]))
    bits = hashes & _BITS
    changed = np.zeros(_BITS + 1, bool)
    changed[bits[held.at >= emitted_to]] = True
    return held.where(changed[bits])


def _pieces(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The rows of tables in tables of one piece of memory, which are read without a copy; small ones are one."""
    small = [table for table in tables if table.num_rows <= _FEW]
    is_one = len(small) == 1 and small[0].column(0).num_chunks == 1
    pieces = small if is_one else [pa.concat_tables(small).combine_chunks()] if small else []
    for table in tables:
        if table.num_rows > _FEW:
            is_cut = table.column(0).num_chunks * _FEW > table.num_rows + _FEW
            whole = table.combine_chunks() if is_cut else table
            pieces += [pa.Table.from_batches([batch]) for batch in whole.to_batches()]
    return pieces


def _kth_matches(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Indices of the k-th of each code in two ascending columns of codes, for every k that both have."""
    first = np.searchsorted(left, left)
    partner = np.searchsorted(right, left) + np.arange(len(left)) - first
    exists = partner < np.searchsorted(right, left, side="right")
    return np.flatnonzero(exists), partner[exists]


def span_of(advance: Advance, emit_mode: EmitMode) -> Span:
    """The instants to emit: up to punctuation; at the end NOW for relations, everything for streams."""
    if not advance.final:
        return Span(advance.emitted_to, advance.punctuation)
    if emit_mode != "changes":
        return Span(advance.emitted_to, FOREVER)
    return Span(
        advance.emitted_to,
        max(advance.emitted_to, advance.max_event_time + 1)
        if advance.max_event_time != BEGINNING
        else advance.emitted_to,
    )


@dataclass(frozen=True, slots=True)
class InstantRows(RowFamilyOperator, RowOperator):
    """`Finish(Windowed(TimeRange | Unbounded | Rows))` of one query."""

    id: str
    query: str
    stream: str
    validity: Validity
    rows: RowLayout
    finish: Finish
    emit_mode: EmitMode
    relations: tuple[str, ...] = ()
    rule: str = ""
    family: str | None = None
    """The name of the state it shares with queries of its shape."""
    queries: Extents | None = None
    """Of an operator for several queries of a family: their extents."""

    @property
    def extent(self) -> int:
        """The length or the count of its window."""
        return self.validity.extent

    @property
    def shape(self) -> tuple[object, ...]:
        """Windows of one kind, equal stored values, and whether they are DISTINCT or limited."""
        finish = (self.finish.distinct, self.finish.is_row_by_row, self._partition_columns())
        return self.stream, self.validity.kind, self.rows.shape, self.emit_mode, finish

    def together(self, queries: Sequence[Operator]) -> InstantRows:
        """One operator for all queries of its family."""
        return self if self.family is None else joined(queries, lambda: self._together(queries))

    def _together(self, queries: Sequence[Operator]) -> InstantRows:
        rows = replace(self.rows, by_query=True)
        return replace(self, family=None, rows=rows, queries=Extents.of(queries))

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """The steps of its rows."""
        return self.rows.routing_steps

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Store new rows; emit what changes at the instants below punctuation."""
        state, parts, span = self.changed(runs, deltas, advance)
        if not parts:
            return Step(state)
        return Step(state, *emit(self.finish, Items.joined(parts), span, self.emit_mode))

    def advance_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> FamilyStep:
        """The same for all queries in one step, then emitted by query."""
        state, parts, span = self.together(cohort.queries).changed(runs, deltas, advance)
        return FamilyStep(state, emit_parts(cohort, parts, span, self.emit_mode))

    def changed(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> tuple[Sections, list[Items], Span]:
        """New state, and rows with the intervals in which they hold, of each piece of memory."""
        arrived = [delta[ROWS] for delta in deltas if ROWS in delta]
        state = {ROWS: pa.concat_tables(arrived)} if arrived else {}
        span = span_of(advance, self.emit_mode)
        if span.limit <= span.emitted_to:
            return state, [], span
        stored = [run[ROWS] for run in runs if ROWS in run]
        if self._emits_each_row:
            return *self._each_row(stored, arrived, span), span
        held = hold(self.rows, [*stored, *arrived])
        held = held.where(held.at < span.limit)
        held = touched(held, self._partition_columns(), span.emitted_to)
        end = self._ends(held)
        live = self.validity.shown(held, self.rows) & (end >= span.emitted_to)
        shown = held.where(live)
        names = [*self.rows.names, *self.rows.query_names]
        return state, [Items({name: shown.column(name) for name in names}, shown.at, end[live])], span

    @property
    def _emits_each_row(self) -> bool:
        """Whether a row is emitted when it begins to hold and when it expires, whatever other rows there are."""
        knows_ends = self.validity.known_at_once or self.validity.ends_given
        return knows_ends and self.finish.is_row_by_row and not self.finish.distinct

    def _each_row(
        self, stored: Sequence[pa.Table], arrived: Sequence[pa.Table], span: Span
    ) -> tuple[Sections, list[Items]]:
        """The new rows that are stored, and the rows of all tables that begin to hold or expire in the span, of each piece of memory.

        New rows that do both are not stored, if they are many: nothing later depends on these. Only times are read of rows that do neither.
        """
        changing, needed = list[Items](), list[pa.Table]()
        for table in _pieces(stored):
            held = hold(self.rows, [table])
            changing.append(self._changing(held, self._ends(held), span))
        for table in _pieces(arrived):
            held = hold(self.rows, [table])
            end = self._ends(held)
            changing.append(self._changing(held, end, span))
            needed.append(held.where((held.at >= span.limit) | (end >= span.limit)).table)
        count = sum(table.num_rows for table in needed)
        if count >= _MOST_NEEDED * sum(table.num_rows for table in arrived):
            needed = list(arrived)
        return {ROWS: pa.concat_tables(needed)} if needed else {}, changing

    def _changing(self, held: Held, end: Ints, span: Span) -> Items:
        """The rows that begin to hold or expire in the span."""
        shown = self.validity.shown(held, self.rows) & (held.at < span.limit) & (end >= span.emitted_to)
        shown &= (held.at >= span.emitted_to) | (end < span.limit)
        names = [*self.rows.names, *self.rows.query_names]
        items = Items({name: held.column(name) for name in names}, held.at, end)
        return items if shown.all() else items.take(np.flatnonzero(shown))

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first row begins to hold, or expires."""
        queries = self.queries or Extents.alone(self)
        return self.validity.due_after(self.rows, runs, queries, advance.punctuation)

    def _ends(self, held: Held) -> Ints:
        return self.validity.ends(held, self.rows, self.queries or Extents.alone(self))

    def _partition_columns(self) -> tuple[str, ...]:
        if not self.finish.is_row_by_row:
            return ()
        shown = [expression.expression for expression in self.finish.columns]
        outputs = [expression.name for expression in shown if isinstance(expression, Column)]
        columns = outputs if len(outputs) == len(shown) else []
        return self.validity.partition_columns(self.rows, columns, routed=not self.finish.distinct)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:  # noqa: ARG002
        """Without rows that expire before the next emitted instant, or that were inserted and never expire."""
        held = hold(self.rows, tables)
        return held.where(self._needed(held, advance)).table

    def _needed(self, held: Held, advance: Advance) -> np.ndarray:
        waiting: np.ndarray = held.at >= advance.emitted_to
        settled = np.flatnonzero(~waiting)
        alive = self._ends(held.where(~waiting)) >= advance.emitted_to
        if self.validity.for_ever and self.finish.is_row_by_row:
            alive &= False
            if self.finish.distinct:
                alive |= self._first_of_each(held.where(~waiting))
        waiting[settled[alive]] = True
        return waiting

    def _first_of_each(self, held: Held) -> np.ndarray:
        """Of rows that never expire, the earliest of each distinct one."""
        names = [*self.rows.query_names, *self.rows.names[self.validity.partitions :]]
        codes = group([held.column(name) for name in names], held.rows).codes
        first, _, _ = unite(codes, held.at, np.full(held.rows, FOREVER, np.int64))
        chosen = np.zeros(held.rows, bool)
        chosen[first] = True
        return chosen
