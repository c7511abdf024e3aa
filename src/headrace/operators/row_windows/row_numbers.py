"""Numbering of the rows of each partition for `[RANGE r SLIDE n ROWS]`: the rows that end a window, every n-th, and the
state that this needs.

A number in order of arrival is known when the row arrives; a number in stream order when the row is below punctuation.
State: a *mark* per row (or only per row that ends a window) until the row is below punctuation, and how many rows each
partition has numbered: counts of epochs are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.window import Numbering
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Groups, flat, group, ints
from headrace.operators.base.group_ranks import dense_ranks
from headrace.operators.base.operator import SLOT, Sections
from headrace.operators.families.family import number_last
from headrace.operators.row_windows.window_bins import Ends
from headrace.operators.rows.row_state import POSITION, TIME
from headrace.time import Instant

MARKS: Final = "marks"
COUNTS: Final = "counts"
_COUNT: Final = "__count"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Every `every`-th row of a partition ends a window; `parts` are the partition's columns."""

    parts: tuple[str, ...]
    every: int
    numbered: Numbering

    def partition(self, tables: Sequence[pa.Table]) -> Groups:
        """The partitions of the rows of several tables, one after the other."""
        columns = [
            pa.concat_arrays([flat(table.column(name)) for table in tables]) if tables else pa.nulls(0)
            for name in self.parts
        ]
        return group(columns, sum(table.num_rows for table in tables))


def ends_among(
    numbers: Numbers, arrived: pa.Table, runs: Sequence[Sections], span: tuple[Instant, Instant]
) -> tuple[dict[str, pa.Table], Ends]:
    """The state of marks of new rows, and where windows end within `span` (emitted_to, limit)."""
    emitted_to, limit = span
    fresh = arrived.select([SLOT, TIME, POSITION, *numbers.parts])
    counts = [run[COUNTS] for run in runs if COUNTS in run]
    state: dict[str, pa.Table] = {}
    early = numbers.numbered == "row_num"
    if early:
        fresh = _due(numbers, fresh, counts, state)
    waiting = [
        _within(run[MARKS], emitted_to, limit).select(fresh.column_names) for run in runs if MARKS in run
    ]
    due = pa.concat_tables([*waiting, _within(fresh, emitted_to, limit)])
    later = fresh.filter(pa.array(ints(fresh, TIME) >= limit))
    if later.num_rows:
        state[MARKS] = number_last(later)
    if not early:
        due = _due(numbers, due, counts, state)
    return state, _distinct(numbers, due)


def _within(table: pa.Table, emitted_to: Instant, limit: Instant) -> pa.Table:
    at = ints(table, TIME)
    return table.filter(pa.array((at >= emitted_to) & (at < limit)))


def _due(
    numbers: Numbers, rows: pa.Table, counts: Sequence[pa.Table], state: dict[str, pa.Table]
) -> pa.Table:
    """The rows that end windows, among rows that are numbered now; the new counts are added to `state`."""
    if numbers.every == 1 or not rows.num_rows:
        return rows
    groups = numbers.partition([rows, *counts])
    codes, older = groups.codes[: rows.num_rows], groups.codes[rows.num_rows :]
    base = np.zeros(groups.count, np.int64)
    np.add.at(base, older, np.concatenate([np.empty(0, np.int64), *(ints(t, _COUNT) for t in counts)]))
    at = ints(rows, TIME) if numbers.numbered == "rank" else np.zeros(rows.num_rows, np.int64)
    ranks = dense_ranks(codes, at, ints(rows, POSITION))
    last = np.zeros(groups.count, np.int64)
    np.maximum.at(last, codes, ranks)
    first = np.full(groups.count, -1, np.int64)
    first[codes[::-1]] = np.arange(rows.num_rows)[::-1]
    new = np.flatnonzero(last)
    counted = rows.take(pa.array(first[new])).select([SLOT, *numbers.parts])
    state[COUNTS] = number_last(counted.append_column(_COUNT, pa.array(last[new])))
    return rows.filter(pa.array((base[codes] + ranks) % numbers.every == 0))


def _distinct(numbers: Numbers, rows: pa.Table) -> Ends:
    """Each partition's ends, each once."""
    at = ints(rows, TIME)
    codes = numbers.partition([rows]).codes
    order = np.lexsort((at, codes))
    fresh = (
        np.r_[True, (np.diff(codes[order]) != 0) | (np.diff(at[order]) != 0)]
        if len(order)
        else np.zeros(0, bool)
    )
    chosen = order[fresh]
    picked = pa.array(chosen)
    return Ends(
        at[chosen], codes[chosen], tuple(flat(rows.column(name)).take(picked) for name in numbers.parts)
    )


def added(numbers: Numbers, tables: Sequence[pa.Table]) -> pa.Table:
    """One count per partition."""
    whole = pa.concat_tables(tables)
    groups = numbers.partition([whole])
    total = np.zeros(groups.count, np.int64)
    np.add.at(total, groups.codes, ints(whole, _COUNT))
    first = np.full(groups.count, whole.num_rows, np.int64)
    np.minimum.at(first, groups.codes, np.arange(whole.num_rows))
    first_rows = whole.take(pa.array(first)).drop_columns([_COUNT])
    return number_last(first_rows.append_column(_COUNT, pa.array(total)))
