"""State tables of counts and sums for approximate operators: exact cells by group and pane (or instant) while they are
few, exponential histograms by group when there are many; their loading, absorption of cells, and compaction.

State rows are of two kinds. A *cell* is what one pane adds to one group, exact. A *histogram* is everything of a group
below the pane `__key`: for each measure a count and the coded times of its buckets. A newer histogram of a group
replaces the older one and all cells below its pane. A group's cells are absorbed into its histogram when there are
about half as many as buckets, so that what an epoch writes grows with its input.

Where the error may be doubled, a histogram row has the number of doublings it was made with, and older buckets with sizes of their
own. When that number changes, all buckets become such older ones, with fewer of them if it rises, and a new histogram begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY, SLOT, Layout
from headrace.operators.base.group_codes import Groups, Ints, flat, group, ints
from headrace.operators.panes.pane_keys import block_key
from headrace.operators.panes.panes import LOWEST
from headrace.operators.partials.encoding import PartialColumn, load, whole_numbers
from headrace.schema import BIGINT, to_arrow
from headrace.synopses.histograms.bucket_coding import decoded_older, encoded_older
from headrace.synopses.histograms.buckets import Buckets
from headrace.synopses.histograms.canonical_form import MOST, Form
from headrace.synopses.histograms.delta_coding import decode, encode
from headrace.synopses.histograms.exponential_histogram import Cells, Histograms

_LEAST_CELLS: Final = 8


@dataclass(frozen=True, slots=True)
class HistogramLayout:
    """Keys and measures of a group: each measure is a non-negative integer (a count or a sum), with the form of its
    histogram.
    """

    layout: Layout
    forms: tuple[Form, ...]
    doubled: int | None = None
    """How often the error is doubled now; None: it never is, and no older buckets are stored."""

    def forms_of(self, doubled: int) -> tuple[Form, ...]:
        """The forms with their error doubled so often."""
        return tuple(form.coarser(doubled) for form in self.forms) if doubled else self.forms

    @property
    def measures(self) -> range:
        """Numbers of the measures, in the order of the layout's partials."""
        return range(len(self.forms))

    def schema(self) -> pa.Schema:
        """The Arrow schema of state rows."""
        fields = [pa.field(KEY, pa.int64()), pa.field(SLOT, pa.int16())]
        keys = zip(self.layout.key_names, self.layout.keys, strict=True)
        fields += [pa.field(name, to_arrow(key.expression.type)) for name, key in keys]
        for measure in self.measures:
            fields += [pa.field(f"n{measure}", pa.int64()), pa.field(f"b{measure}", pa.large_binary())]
        return pa.schema([*fields, *self._older_fields()])

    def _older_fields(self) -> list[pa.Field]:
        """Older buckets, by measure, with the doublings of the newer ones."""
        measures = () if self.doubled is None else self.measures
        return [pa.field(f"older{measure}", pa.binary()) for measure in measures]

    def cells(self, sealed: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """Cells of sealed panes, and the rows of the table that are left out since a number does not fit."""
        bad = np.zeros(sealed.num_rows, bool)
        columns: list[pa.Array] = [flat(sealed.column(name)) for name in (KEY, SLOT, *self.layout.key_names)]
        for measure, partial_column in enumerate(self.layout.partial_columns):
            values, failed = _numbers(
                partial_column, [flat(sealed.column(n)) for n in self.layout.cell_names(measure)]
            )
            bad |= failed
            columns += [values, pa.nulls(len(values), pa.large_binary())]
        columns += [pa.nulls(sealed.num_rows, field.type) for field in self._older_fields()]
        return pa.table(columns, schema=self.schema()).filter(pa.array(~bad)), bad

    def compact(self, tables: Sequence[pa.Table], horizon: int | None, *, fit: bool = True) -> pa.Table:
        """Without what newer histograms replace, and what is below the pane `horizon`; to `fit`, histograms of a smaller error than
        that of now get it.
        """
        whole = pa.concat_tables(tables)
        keys, coded = _keys_and_kinds(whole)
        codes, count = _codes(self, whole)
        until = _until(codes, keys, coded, count)
        is_current = np.where(coded, keys == until[codes], keys >= until[codes])
        if horizon is not None:
            low = block_key(0, horizon)
            is_current &= np.where(coded, keys > low, keys >= low)
        current = whole.filter(pa.array(is_current))
        return self._fitted(current, horizon) if fit else current

    def _fitted(self, rows: pa.Table, horizon: int | None) -> pa.Table:
        if not self.doubled:
            return rows
        keys, coded = _keys_and_kinds(rows)
        at = np.flatnonzero(coded)
        _, doubled = decoded_older(keys[at] - block_key(0, 0), flat(rows.column("older0").take(pa.array(at))))
        is_finer = np.zeros(rows.num_rows, bool)
        is_finer[at] = doubled < self.doubled
        finer = GroupHistograms.of(self, [rows.filter(pa.array(is_finer))], horizon)
        return pa.concat_tables([rows.filter(pa.array(~is_finer)), finer.as_histograms()])


def _numbers(partial_column: PartialColumn, columns: Sequence[pa.Array]) -> tuple[pa.Array, np.ndarray]:
    cells, _ = load(partial_column, columns)
    if partial_column.encoding == "limbs2":
        values, bad = whole_numbers(cells, BIGINT)
        return values, bad
    return pa.array(cells[0]), np.zeros(len(cells[0]), bool)


def as_cells(partial_column: PartialColumn, values: Ints) -> tuple[Ints, ...]:
    """Integers as the cells of a partial."""
    return (values & 0xFFFFFFFF, values >> 32) if partial_column.encoding == "limbs2" else (values,)


def _keys_and_kinds(table: pa.Table) -> tuple[Ints, np.ndarray]:
    """The pane of each row, and which rows are histograms."""
    keys: Ints = ints(table, KEY)
    coded: np.ndarray = flat(table.column("b0")).is_valid().to_numpy(zero_copy_only=False)
    return keys, coded


def _codes(layout: HistogramLayout, table: pa.Table) -> tuple[Ints, int]:
    groups = _groups(layout, table)
    return groups.codes, groups.count


def _groups(layout: HistogramLayout, table: pa.Table) -> Groups:
    return group([flat(table.column(name)) for name in layout.layout.key_names], table.num_rows)


def _until(codes: Ints, keys: Ints, coded: np.ndarray, count: int) -> Ints:
    until = np.full(count, block_key(0, LOWEST))
    np.maximum.at(until, codes[coded], keys[coded])
    return until


@dataclass(frozen=True, slots=True)
class GroupHistograms:
    """A task's groups: their histograms, one per measure, with older buckets, and their exact cells, sorted by group, then pane.

    `until` is the key of the pane up to which a group's histogram is; `of_others` are the groups whose stored histogram has another error
    than that of now.
    """

    layout: HistogramLayout
    groups: Groups
    slots: np.ndarray
    histograms: tuple[Histograms, ...]
    codes: Ints
    panes: Ints
    values: tuple[Ints, ...]
    table: pa.Table
    older: tuple[Buckets, ...] = ()
    until: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    of_others: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @staticmethod
    def of(layout: HistogramLayout, tables: Sequence[pa.Table], horizon: int | None) -> GroupHistograms:
        """What the tables hold at or above the pane `horizon`."""
        whole = pa.concat_tables([layout.schema().empty_table(), *tables])
        groups = _groups(layout, whole)
        keys, coded = _keys_and_kinds(whole)
        until = _until(groups.codes, keys, coded, groups.count)
        low = block_key(0, LOWEST if horizon is None else horizon)
        last = np.full(groups.count, -1, np.int64)
        newest = np.flatnonzero(coded & (keys == until[groups.codes]))
        last[groups.codes[newest]] = newest
        exact = np.flatnonzero(~coded & (keys >= np.maximum(until[groups.codes], low)))
        exact = exact[np.lexsort((keys[exact], groups.codes[exact]))]
        slots = np.zeros(groups.count, np.int16)
        slots[groups.codes] = ints(whole, SLOT)
        read, older, of_others = _stored(layout, whole, last, keys, low - block_key(0, 0))
        exact_rows = whole.take(pa.array(exact))
        values = tuple(ints(exact_rows, f"n{measure}") for measure in layout.measures)
        panes = keys[exact] - block_key(0, 0)
        return GroupHistograms(
            layout,
            groups,
            slots,
            read,
            groups.codes[exact],
            panes,
            values,
            exact_rows,
            older,
            until,
            of_others,
        )

    @property
    def _held(self) -> tuple[Histograms | Buckets, ...]:
        """All buckets, by measure."""
        return (*self.histograms, *self.older)

    @property
    def is_empty(self) -> bool:
        """True when nothing is held."""
        return not len(self.panes) and not any(len(held.times) for held in self._held)

    def extent(self) -> tuple[int, int]:
        """The least and the greatest pane; undefined if empty."""
        times = (held.times for held in self._held)
        parts = [part for part in (self.panes, *times) if len(part)]
        return min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)

    def cells(self, measure: int) -> Cells:
        """What the histograms of a measure and their older buckets are equivalent to."""
        if not self.older:
            return self.histograms[measure].cells()
        return Buckets.of(self.histograms[measure]).followed_by(self.older[measure]).cells()

    def as_histograms(self) -> pa.Table:
        """State rows of all groups, up to where their histograms are."""
        return self._settled(np.arange(self.groups.count), self.until - block_key(0, 0))

    def at_rest(self, fresh_from: int, edge: int, *, settle: bool, refit: bool = False) -> pa.Table:
        """New state rows: cells from the pane `fresh_from` on, and histograms up to `edge` for groups with many cells.

        Groups without such a cell stay as they are: a visit in which nothing begins or expires then changes no later answer. To `refit`, those
        of another error than that of now get a new histogram all the same.
        """
        pending = np.bincount(self.codes, minlength=self.groups.count)
        is_fresh = self.panes >= fresh_from
        buckets = sum(
            (np.diff(held.offsets) for held in self._held),
            np.zeros(self.groups.count, np.int64),
        )
        many = pending > np.maximum(buckets // 2, _LEAST_CELLS)
        many &= np.bincount(self.codes[is_fresh], minlength=self.groups.count) > 0
        many[self.of_others] |= refit
        many &= settle
        for measure in self.layout.measures:
            added = np.zeros(self.groups.count)
            np.add.at(added, self.codes, self.values[measure].astype(float))
            held = self.histograms[measure].totals + (self.older[measure].totals() if self.older else 0)
            many &= (added + held) * max(many.sum(), 1) < MOST
        stay_cells = is_fresh & ~many[self.codes]
        return pa.concat_tables(
            [
                self.table.filter(pa.array(stay_cells)),
                self._settled(np.flatnonzero(many), np.full(int(many.sum()), edge)),
            ]
        )

    def _settled(self, chosen: Ints, bases: Ints) -> pa.Table:
        """State rows of some groups, each up to its own pane, with all of their cells."""
        rank = np.full(self.groups.count, -1, np.int64)
        rank[chosen] = np.arange(len(chosen))
        chosen_cells = np.flatnonzero(rank[self.codes] >= 0)
        order = chosen_cells[np.argsort(self.panes[chosen_cells], kind="stable")]
        columns: list[pa.Array] = [pa.array(bases + block_key(0, 0)), pa.array(self.slots[chosen])]
        columns += [flat(key).take(pa.array(chosen)) for key in self.groups.keys]
        for histograms, values in zip(self.histograms, self.values, strict=True):
            full = histograms.take(chosen).absorb(rank[self.codes[order]], self.panes[order], values[order])
            columns += [pa.array(full.totals), encode(bases, full.offsets, full.times)]
        doubled = self.layout.doubled or 0
        columns += [encoded_older(bases, older.take(chosen), doubled) for older in self.older]
        return pa.table(columns, schema=self.layout.schema())


def _stored(
    layout: HistogramLayout, whole: pa.Table, last: Ints, keys: Ints, low: int
) -> tuple[tuple[Histograms, ...], tuple[Buckets, ...], Ints]:
    """Histograms of the error of now, by measure, older buckets, and the groups whose stored histogram has another error; `last[group]` is the
    row of the group's histogram, -1 if there is none.
    """
    if layout.doubled is None:
        read = (_histograms(layout.forms[m], whole, m, last, keys).since(low) for m in layout.measures)
        return tuple(read), (), np.empty(0, np.int64)
    there = np.flatnonzero(last >= 0)
    of_group = np.full(len(last), -1)
    histograms, buckets = [], []
    for measure in layout.measures:
        stored = flat(whole.column(f"older{measure}").take(pa.array(last[there])))
        held, of_group[there] = decoded_older(keys[last[there]] - block_key(0, 0), stored)
        many = np.zeros(len(last), np.int64)
        many[there] = np.diff(held.offsets)
        older = Buckets(np.r_[0, np.cumsum(many)], held.times, held.sizes)
        for doubled in np.unique(of_group[(of_group >= 0) & (of_group != layout.doubled)]).tolist():
            rows = np.where(of_group == doubled, last, -1)
            of_others = _histograms(layout.forms_of(doubled)[measure], whole, measure, rows, keys)
            older = Buckets.of(of_others).followed_by(older)
        form = layout.forms_of(layout.doubled)[measure]
        rows = np.where(of_group == layout.doubled, last, -1)
        histograms.append(_histograms(form, whole, measure, rows, keys).since(low))
        if ((of_group >= 0) & (of_group < layout.doubled)).any():
            older = older.thinned(form.first, histograms[-1].totals)
        buckets.append(older.since(low))
    with_others = np.flatnonzero((of_group >= 0) & (of_group != layout.doubled))
    return tuple(histograms), tuple(buckets), with_others


def _histograms(form: Form, whole: pa.Table, measure: int, rows: Ints, keys: Ints) -> Histograms:
    """One measure's histograms of all groups; `rows[group]` is the row of the group's histogram, -1 if there is none."""
    there = np.flatnonzero(rows >= 0)
    picked = pa.array(rows[there])
    offsets, times = decode(
        keys[rows[there]] - block_key(0, 0), flat(whole.column(f"b{measure}").take(picked))
    )
    totals = np.zeros(len(rows), np.int64)
    totals[there] = flat(whole.column(f"n{measure}").take(picked)).to_numpy()
    many = np.zeros(len(rows), np.int64)
    many[there] = np.diff(offsets)
    return Histograms(form, totals, np.r_[0, np.cumsum(many)], times)
