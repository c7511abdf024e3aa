"""Values of a group in each of its intervals with their counts: percentile, mode and the like over time.

A value's count changes only where one of its rows is inserted or retracted; between that it is one entry of every
interval. Intervals are processed in batches, since a long window over values that seldom repeat has as many entries as
its rows times its changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Lowered
from headrace.operators.aggregates.holistic import Histogram, lower_by_value
from headrace.operators.base.group_codes import Ints, flat, group
from headrace.operators.relations.interval_segments import Intervals

ENTRIES: Final = 1 << 21
"""Entries that are processed at once: some 100 MB."""


@dataclass(frozen=True, slots=True)
class ValueIntervals:
    """Value `values[i]` occurs `counts[i]` times in the intervals [low, high); runs of one value are disjoint, all are
    sorted by low.
    """

    low: Ints
    high: Ints
    values: pa.Array
    counts: Ints


def lower_over_intervals(call: AggregateCall, valued: ValueIntervals, intervals: Intervals) -> Lowered:
    """The aggregate of each interval."""
    parts = [
        lower_by_value(call, _histogram(valued, intervals, start, stop), stop - start).values
        for start, stop in _interval_batches(valued, intervals.count)
    ]
    if not parts:
        return lower_by_value(call, Histogram(valued.low[:0], valued.values[:0], valued.counts[:0]), 0)
    return Lowered(pa.concat_arrays([flat(values) for values in parts]))


def value_intervals(codes: Ints, values: pa.Array, low: Ints, high: Ints, counts: Ints) -> ValueIntervals:
    """Counts of values over time, from rows of groups `codes` that each cover a run of intervals."""
    there = np.flatnonzero((low < high) & values.is_valid().to_numpy(zero_copy_only=False))
    values, low, high, counts = values.take(pa.array(there)), low[there], high[there], counts[there]
    same = group([pa.array(codes[there]), values], len(there))
    row_of_value = np.zeros(same.count, np.int64)
    row_of_value[same.codes] = np.arange(len(there))
    owner, index = np.r_[same.codes, same.codes], np.r_[low, high]
    order = np.lexsort((index, owner))
    owner, index = owner[order], index[order]
    count = np.cumsum(np.r_[counts, -counts][order])  # zero after the last event of a value
    until = np.r_[index[1:], 0] if len(index) else index
    lasts = np.flatnonzero((count > 0) & (until > index))
    lasts = lasts[np.argsort(index[lasts], kind="stable")]
    return ValueIntervals(
        index[lasts], until[lasts], values.take(pa.array(row_of_value[owner[lasts]])), count[lasts]
    )


def _interval_batches(valued: ValueIntervals, intervals: int) -> Iterator[tuple[int, int]]:
    """Runs of intervals of about `ENTRIES` entries, at least one interval each."""
    change = np.zeros(intervals + 1, np.int64)
    np.add.at(change, valued.low, 1)
    np.add.at(change, valued.high, -1)
    upto = np.cumsum(np.cumsum(change)[:-1])
    start = 0
    while start < intervals:
        before = int(upto[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(upto, before + ENTRIES, side="right")))
        yield start, stop
        start = stop


def _histogram(valued: ValueIntervals, intervals: Intervals, start: int, stop: int) -> Histogram:
    """One entry for each interval in [start, stop) that a run covers."""
    first = int(np.searchsorted(intervals.group, intervals.group[start]))
    near = slice(*np.searchsorted(valued.low, [first, stop]).tolist())
    low, high = np.maximum(valued.low[near], start), np.minimum(valued.high[near], stop)
    times = np.maximum(high - low, 0)
    source = np.repeat(np.arange(len(low)), times)
    step = np.arange(len(source)) - np.repeat(np.cumsum(times) - times, times)
    values = valued.values[near].take(pa.array(source))
    return Histogram(low[source] + step - start, values, valued.counts[near][source])
