"""Operator for aggregates of the instantaneous relation (CQL), for windows that do not slide: groups at every instant,
emitted as a changelog, or as its ISTREAM, DSTREAM or RSTREAM.

If a row's interval is known when it is scanned (`[RANGE r]`, UNBOUNDED) rows of one group and instant are folded then,
and rows that never expire end up in one cell per group. The last emitted row of a group is stored, so that exactly that
row is retracted. `[ROWS n]` stores its rows and emits from them in one order, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import lift
from headrace.operators.aggregates.cell_table import KEY, fresh_slots, merge
from headrace.operators.aggregates.group_by import Grouped
from headrace.operators.aggregates.synopsis_calls import uses_synopses
from headrace.operators.base.due import first_settles, waiting_settle
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import SLOT, Advance, FamilyStep, Operator, Sections, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.extents import Extents, only_slots
from headrace.operators.families.family import joined, number_last, unnumbered
from headrace.operators.families.family_operator import RowFamilyOperator
from headrace.operators.families.finishing import NUMBER, emit_items
from headrace.operators.output.changelog import EmitMode, Items, Span, emit
from headrace.operators.output.output_stage import Finish
from headrace.operators.output.row_operator import RowOperator
from headrace.operators.panes.subwindows import Subwindows
from headrace.operators.relations.instant_cells import arrived, folded, holding, tables_of, together
from headrace.operators.relations.instant_rows import Validity, span_of, touched
from headrace.operators.relations.instant_scanner import InstantScanner, instant_deltas
from headrace.operators.relations.instant_subwindow import CELLS, FIRST, at_now
from headrace.operators.relations.interval_blocks import SECTION as LIVE
from headrace.operators.relations.interval_blocks import IntervalBlocks, next_expiry, store_of
from headrace.operators.relations.interval_groups import (
    Coded,
    Columns,
    Timed,
    Valued,
    coded,
    of_intervals,
    of_moment,
)
from headrace.operators.relations.interval_segments import Intervals, intervals_of
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.rows.row_state import ROWS, RowLayout, hold
from headrace.schema import to_arrow
from headrace.time import BEGINNING, FOREVER, Duration, Instant

LAST_EMITTED: Final = "told"
_PRESENT: Final = "__present"
_UNTIL: Final = "__until"
_EXPIRES: Final = "__expires"


@dataclass(frozen=True, slots=True)
class InstantAggregate(RowFamilyOperator, RowOperator):
    """`Finish(Aggregate(Windowed(TimeRange | Unbounded | Rows)))` of one query.

    `rows` defines how rows are scanned; its stored values are the inputs of `grouped`, routed by the group's keys or to
    one slot.
    """

    id: str
    query: str
    stream: str
    validity: Validity
    rows: RowLayout
    grouped: Grouped
    finish: Finish
    emit_mode: EmitMode
    relations: tuple[str, ...] = ()
    sums_up: bool = True
    """Whether cells are summed by intervals of time; not if they are approximate and recomputed each time."""
    rule: str = ""
    family: str | None = None
    """The name of the state it shares with queries of its shape."""
    queries: Extents | None = None
    """Of an operator for several queries of a family: their extents. Their number is the first group key."""

    @property
    def is_global(self) -> bool:
        """True without GROUP BY: there is one row from the first instant on."""
        return len(self.grouped.keys) == (self.queries is not None)

    @property
    def extent(self) -> int:
        """The length or the count of its window."""
        return self.validity.extent

    @property
    def shape(self) -> tuple[object, ...] | None:
        """Windows of one kind, equal stored values (but for the ends of rows), groups and aggregates."""
        if uses_synopses(self.grouped.aggregates):
            return None
        rows = (self.rows.values[self.rows.ends_differ :], self.rows.routing)
        return (
            self.stream,
            self.validity.kind,
            rows,
            self.grouped,
            self.emit_mode,
            self.needs_all,
            self.sums_up,
        )

    @property
    def extents(self) -> Extents:
        """Of its queries, or its own."""
        return self.queries or Extents.alone(self)

    def together(self, queries: Sequence[Operator]) -> InstantAggregate:
        """One operator for all queries of its family, grouped by query first."""
        return self if self.family is None else joined(queries, lambda: self._together(queries))

    def _together(self, queries: Sequence[Operator]) -> InstantAggregate:
        grouped = Grouped((NUMBER, *self.grouped.keys), self.grouped.aggregates)
        rows = replace(self.rows, by_query=True)
        return replace(self, family=None, grouped=grouped, rows=rows, queries=Extents.of(queries))

    @property
    def folds(self) -> bool:
        """Whether rows are folded when they are scanned."""
        return self.validity.known_at_once

    @property
    def buckets(self) -> tuple[IntervalBlocks, ...]:
        """The blocks of each store's cells that neither enter nor leave in an epoch, if rows expire after a time."""
        if not (self.sums_up and self.folds) or self.validity.length is None:
            return ()
        extents = self.extents
        return tuple(
            IntervalBlocks(layout, extents, store) for store, layout in enumerate(self.grouped.layouts)
        )

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """The steps of its rows, unless it is global: then every row sets the first instant."""
        return () if self.is_global else self.rows.routing_steps

    @property
    def title(self) -> str:
        """Aggregate at every instant."""
        return "aggregate at every instant"

    @property
    def subwindows(self) -> Subwindows | None:
        """The last d, if it emits at every instant the changes over the last r >= d."""
        length = self.validity.length if self.emit_mode == "changes" and self.folds else None
        return None if length is None else Subwindows(length - 1)  # rows are there at both ends of the range

    def answer_subwindow(
        self,
        length: Duration,
        runs: Sequence[Sections],
        emitted_to: Instant,  # noqa: ARG002
        now: Instant,
    ) -> pa.Table | None:
        """R(now) of the last `length`, as changes."""
        if self.family is not None:
            runs = [{name: unnumbered(table) for name, table in run.items()} for run in runs]
        return at_now(self, runs, length, now)

    @property
    def stored_names(self) -> list[str]:
        """The stored values that `grouped` reads."""
        return [*self.rows.query_names, *self.rows.names[self.validity.partitions :]]

    def family_deltas(self, rows: pa.Table | None, first: Instant | Ints) -> Sections:
        """The rows of all queries, folded together."""
        return instant_deltas(self, rows, first)

    def slots_of_groups(self, keys: Sequence[pa.Array], count: int) -> np.ndarray:
        """The slots of groups: by their keys, or that of their query."""
        routed_to = self.rows.slot if self.rows.routing is None else None
        if self.queries is None:
            return fresh_slots(keys, count, routed_to)
        if routed_to is None:
            return fresh_slots(keys[1:], count, None)
        slots: np.ndarray = self.queries.slots[self.queries.places_of(keys[0].to_numpy())]
        return slots

    def scanner(self, relations: Mapping[str, pa.Table]) -> InstantScanner:
        """Folds a task's rows, or stores them."""
        return InstantScanner(self, self.rows.scanner(relations))

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit what changes at the instants below punctuation."""
        state, items, span = self.changed(runs, deltas, advance)
        if items is None:
            return Step(state)
        return Step(state, *emit(self.finish, items, span, self.emit_mode))

    def advance_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> FamilyStep:
        """The changes of all groups of all queries in one step, then emitted by query."""
        state, items, span = self.together(cohort.queries).changed(runs, deltas, advance)
        return FamilyStep(state, emit_items(cohort, items, span, self.emit_mode))

    def changed(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> tuple[dict[str, pa.Table], Items | None, Span]:
        """New state, and the rows of groups that have an event below punctuation, with the intervals in which they hold."""
        span = span_of(advance, self.emit_mode)
        state = arrived(self, runs, deltas, span)
        if span.limit <= span.emitted_to:
            return state, None, span
        buckets = self.buckets
        sections = [*runs, state] if buckets else [*runs, *deltas]
        first = self._first_instants(sections)
        timed, slots = (
            folded(self, sections, span) if self.folds else (_stored_rows(self, sections, span), None)
        )
        last_emitted = _last_emitted(self, only_slots(tables_of(runs, LAST_EMITTED), slots), span)
        groups = coded(
            timed,
            [last_emitted.column(name) for name in self._key_names()],
            last_emitted.num_rows,
            self._permanent_groups(),
        )
        codes = np.r_[groups.codes, groups.permanent]
        begin = np.r_[timed.begin, first]
        end = np.r_[timed.end, np.full(len(first), FOREVER)]
        intervals = intervals_of(codes, begin, end, span)
        for store in buckets:
            state.update(store.completed(runs, tables_of(sections, f"{CELLS}{store.store}"), span))
        if not intervals.count:
            return state, None, span
        if not self.folds:
            return state, _by_rows(self, groups, intervals, span, first), span
        items, after = _by_last_emitted(self, groups, intervals, last_emitted, span)
        state.update({LAST_EMITTED: after} if after.num_rows else {})
        return state, items, span

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first cell or row begins to hold or expires, or a block of cells ends."""
        punctuation = advance.punctuation
        due = waiting_settle(runs, FIRST, KEY, punctuation)
        if not self.folds:
            return min(due, self.validity.due_after(self.rows, runs, self.extents, punctuation))
        stores = [tables_of(runs, f"{CELLS}{store}") for store in range(len(self.grouped.layouts))]
        cells = [table for tables in stores for table in tables if table.num_rows]
        due = min([due, *(first_settles(ints(table, KEY), punctuation) for table in cells)])
        if self.validity.length is not None:
            due = min([due, *(next_expiry(table, self.extents, punctuation) for table in cells)])
        ends = (blocks.next_end(stores[blocks.store], punctuation) for blocks in self.buckets)
        return min([due, *ends])

    def _permanent_groups(self) -> tuple[Sequence[pa.Array], int]:
        """The keys of groups that are there also without rows, and how many there are: one for each query without GROUP BY."""
        if not self.is_global:
            return (), 0
        return ([pa.array(self.queries.numbers)], self.queries.count) if self.queries else ((), 1)

    def _first_instants(self, sections: Sequence[Sections]) -> Ints:
        """The first instant of each query without GROUP BY."""
        if not self.is_global:
            return np.empty(0, np.int64)
        extents = self.extents
        first = np.full(extents.count, FOREVER)
        for table in tables_of(sections, FIRST):
            np.minimum.at(first, extents.places(table), ints(table, KEY))
        return first

    def _key_names(self) -> list[str]:
        return [key.name for key in self.grouped.keys]

    @property
    def needs_all(self) -> bool:
        """Whether groups that do not change matter too."""
        return self.finish.needs_whole_window

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Fold what never expires; drop expired cells, and emitted rows that were emitted again since."""
        if section == FIRST:
            whole = pa.concat_tables(tables)
            places = self.extents.places(whole)
            order = np.lexsort((ints(whole, KEY), places))
            return whole.take(pa.array(order[np.r_[True, np.diff(places[order]) > 0][: len(order)]]))
        if section == LAST_EMITTED:
            whole = pa.concat_tables(tables)
            return whole.take(pa.array(_latest(self, whole, advance.emitted_to)))
        if section == ROWS:
            held = hold(self.rows, tables)
            waiting = held.at >= advance.emitted_to
            settled = np.flatnonzero(~waiting)
            ends = self.validity.ends(held.where(~waiting), self.rows, self.extents)
            waiting[settled[ends >= advance.emitted_to]] = True
            return held.where(waiting).table
        store = store_of(section) if section.startswith(LIVE) else int(section.removeprefix(CELLS))
        layout = self.grouped.layouts[store]
        needed = [holding(self, table, advance.emitted_to) for table in tables]
        return together(layout, needed) if self.buckets else merge(layout, needed)


def _stored_rows(operator: InstantAggregate, sections: Sequence[Sections], span: Span) -> Timed:
    """One cell per row, in the stream's order, with the intervals known by now."""
    held = hold(operator.rows, [section[ROWS] for section in sections if ROWS in section])
    held = held.where(held.at < span.limit)
    first, routed = operator.validity.partitions, operator.rows.routing is not None
    last = first + len(operator.grouped.keys) - len(operator.rows.query_names)
    keys = () if operator.needs_all else operator.rows.names[first:last]
    separating = operator.validity.partition_columns(operator.rows, keys, routed=routed)
    held = touched(held, separating, span.emitted_to)
    order = np.lexsort((held.position, held.at))
    held = held.take(order)
    ends = operator.validity.ends(held, operator.rows, operator.extents)
    shown = operator.validity.shown(held, operator.rows) & (ends >= span.emitted_to)
    held, ends = held.where(shown), ends[shown]
    values = [held.column(name) for name in operator.stored_names]
    keys = tuple(values[: len(operator.grouped.keys)])
    arguments = dict(zip(operator.grouped.arguments, values[len(keys) :], strict=True))
    answer = lift(operator.grouped.layouts[0].partial_columns, arguments, np.arange(held.rows), held.rows)
    distinct = {
        argument: Valued(keys, arguments[argument], held.at, ends, np.ones(held.rows, np.int64))
        for argument in operator.grouped.distinct_arguments
    }
    return Timed(keys, held.at, ends, answer, distinct)


def _by_last_emitted(
    operator: InstantAggregate, groups: Coded, intervals: Intervals, last_emitted: pa.Table, span: Span
) -> tuple[Items, pa.Table]:
    """Intervals after the last emitted rows, and the new last emitted rows of the groups that have an event."""
    columns, failed, number = of_intervals(operator.grouped, groups, intervals)
    always = operator.is_global and operator.emit_mode != "rstream"  # which emits only groups with rows
    alive = np.ones(intervals.count, bool) if always else number > 0
    shown, stop = _until_event(operator, groups.last_emitted, intervals)
    shown &= ints(last_emitted, _PRESENT)
    before = {name: flat(last_emitted.column(name)).filter(pa.array(shown)) for name in columns}
    items = _joined(
        [
            (before, np.full(shown.sum(), BEGINNING), stop[shown], np.zeros(shown.sum(), bool)),
            (_only(columns, alive), intervals.start[alive], intervals.ends()[alive], failed[alive]),
        ]
    )
    last = intervals.is_last() & alive
    timed = groups.timed
    there = (timed.begin < span.limit) & (timed.end >= span.limit)
    expires = np.full(groups.groups.count, FOREVER, np.int64)
    if not operator.is_global:
        np.minimum.at(expires, groups.codes[there], timed.end[there])
    keys = [key.take(pa.array(intervals.group[last])) for key in groups.groups.keys]
    slots = operator.slots_of_groups(keys, int(last.sum()))
    bookkeeping = {
        SLOT: pa.array(slots),
        _PRESENT: pa.array(~failed[last]),
        _UNTIL: pa.array(np.full(last.sum(), span.limit)),
        _EXPIRES: pa.array(expires[intervals.group[last]]),
    }
    return items, number_last(pa.table({**_only(columns, last), **bookkeeping}))


def _by_rows(
    operator: InstantAggregate, groups: Coded, intervals: Intervals, span: Span, first: Ints
) -> Items:
    """Intervals between the rows of the last instant and those of the newest one."""
    columns, failed, number = of_intervals(operator.grouped, groups, intervals)
    is_last = intervals.is_last()
    alive = ~is_last & (operator.is_global | (number > 0))
    old, old_failed, old_groups = of_moment(
        operator.grouped,
        groups,
        lambda begin, end: (begin < span.emitted_to) & (end >= span.emitted_to),
        is_global=operator.is_global,
    )
    shown, stop = _until_event(operator, old_groups, intervals)
    if operator.is_global:
        first_of_group = np.full(groups.groups.count, FOREVER)
        first_of_group[groups.permanent] = first
        shown &= first_of_group[old_groups] < span.emitted_to
    new, new_failed, new_groups = of_moment(
        operator.grouped,
        groups,
        lambda begin, end: (begin < span.limit) & (end >= span.limit),
        is_global=operator.is_global,
    )
    start = np.full(groups.groups.count, FOREVER, np.int64)
    start[intervals.group[is_last]] = intervals.start[is_last]
    changed = start[new_groups] != FOREVER
    return _joined(
        [
            (_only(old, shown), np.full(shown.sum(), BEGINNING), stop[shown], old_failed[shown]),
            (_only(columns, alive), intervals.start[alive], intervals.ends()[alive], failed[alive]),
            (
                _only(new, changed),
                start[new_groups[changed]],
                np.full(changed.sum(), FOREVER),
                new_failed[changed],
            ),
        ]
    )


def _until_event(operator: InstantAggregate, groups: Ints, intervals: Intervals) -> tuple[np.ndarray, Ints]:
    """Which of the groups' former rows matter, and until when each holds: the first event of its group."""
    index = np.minimum(np.searchsorted(intervals.group, groups), intervals.count - 1)
    touched = intervals.group[index] == groups
    shown = touched | operator.needs_all
    return shown, np.where(touched, intervals.start[index], FOREVER)


def _only(columns: Columns, keep: np.ndarray) -> Columns:
    mask = pa.array(keep)
    return {name: flat(column).filter(mask) for name, column in columns.items()}


def _joined(parts: Sequence[tuple[Columns, Ints, Ints, np.ndarray]]) -> Items:
    names = list(parts[-1][0])
    columns = {name: pa.concat_arrays([flat(part[0][name]) for part in parts]) for name in names}
    begin, end, failed = (np.concatenate([part[index] for part in parts]) for index in (1, 2, 3))
    return Items(columns, begin, end, failed if failed.any() else None)


def _last_emitted(operator: InstantAggregate, tables: Sequence[pa.Table], span: Span) -> pa.Table:
    if not tables:
        schema = pa.schema([pa.field(_PRESENT, pa.bool_())])
        for key in operator.grouped.keys:
            schema = schema.append(pa.field(key.name, to_arrow(key.expression.type)))
        for item in operator.grouped.aggregates:
            schema = schema.append(pa.field(item.name, to_arrow(item.call.type)))
        return schema.empty_table()
    whole = pa.concat_tables(tables)
    return whole.take(pa.array(_latest(operator, whole, span.emitted_to)))


def _latest(operator: InstantAggregate, last_emitted: pa.Table, emitted_to: Instant) -> Ints:
    """The last emitted row of each group. A group that expired was emitted again, or is retracted."""
    until = ints(last_emitted, _UNTIL)
    valid = np.flatnonzero(ints(last_emitted, _EXPIRES) >= emitted_to)
    keys = [flat(last_emitted.column(key.name)).take(pa.array(valid)) for key in operator.grouped.keys]
    codes = group(keys, len(valid)).codes
    order = np.lexsort((until[valid], codes))
    last = np.r_[codes[order][1:] != codes[order][:-1], True] if len(order) else np.zeros(0, bool)
    rows: Ints = np.sort(valid[order[last]])
    return rows
