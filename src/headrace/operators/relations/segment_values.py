"""Which values does a group have in each of its segments, and how often: percentile, mode and the like over time.

A value's count changes only where one of its rows comes or goes; between that it is one entry of every segment. Segments are
gone through a stretch at a time, since of a long window over values that seldom repeat there are as many entries as its rows
times its changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.operators.aggregates.aggregate_calls import Lowered
from headrace.operators.aggregates.holistic import Histogram, lower_by_value
from headrace.operators.base.group_codes import Ints, flat, group
from headrace.operators.relations.interval_segments import Segments

ENTRIES: Final = 1 << 21
"""Entries that are gone through at once: some 100 MB."""


@dataclass(frozen=True, slots=True)
class ValueIntervals:
    """Value `values[i]` is there `counts[i]` times in the segments [low, high); pieces of one value are disjoint, all are sorted by low."""

    low: Ints
    high: Ints
    values: pa.Array
    counts: Ints


def lower_over_segments(call: AggregateCall, found: ValueIntervals, segments: Segments) -> Lowered:
    """The aggregate of each segment."""
    made = [
        lower_by_value(call, _histogram(found, segments, start, stop), stop - start).values
        for start, stop in _interval_batches(found, segments.count)
    ]
    if not made:
        return lower_by_value(call, Histogram(found.low[:0], found.values[:0], found.counts[:0]), 0)
    return Lowered(pa.concat_arrays([flat(values) for values in made]))


def value_intervals(codes: Ints, values: pa.Array, low: Ints, high: Ints, counts: Ints) -> ValueIntervals:
    """Of rows with values of groups `codes`, each in a run of segments: how often each value is where."""
    there = np.flatnonzero((low < high) & values.is_valid().to_numpy(zero_copy_only=False))
    values, low, high, counts = values.take(pa.array(there)), low[there], high[there], counts[there]
    same = group([pa.array(codes[there]), values], len(there))
    member = np.zeros(same.count, np.int64)
    member[same.codes] = np.arange(len(there))
    whose, place = np.r_[same.codes, same.codes], np.r_[low, high]
    order = np.lexsort((place, whose))
    whose, place = whose[order], place[order]
    count = np.cumsum(np.r_[counts, -counts][order])  # nothing is left where a value's events end
    until = np.r_[place[1:], 0] if len(place) else place
    lasts = np.flatnonzero((count > 0) & (until > place))
    lasts = lasts[np.argsort(place[lasts], kind="stable")]
    return ValueIntervals(
        place[lasts], until[lasts], values.take(pa.array(member[whose[lasts]])), count[lasts]
    )


def _interval_batches(found: ValueIntervals, segments: int) -> Iterator[tuple[int, int]]:
    """Runs of segments of about `ENTRIES` entries, at least one segment each."""
    change = np.zeros(segments + 1, np.int64)
    np.add.at(change, found.low, 1)
    np.add.at(change, found.high, -1)
    upto = np.cumsum(np.cumsum(change)[:-1])
    start = 0
    while start < segments:
        before = int(upto[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(upto, before + ENTRIES, side="right")))
        yield start, stop
        start = stop


def _histogram(found: ValueIntervals, segments: Segments, start: int, stop: int) -> Histogram:
    """One entry for each segment in [start, stop) that a piece covers."""
    first = int(np.searchsorted(segments.group, segments.group[start]))
    near = slice(*np.searchsorted(found.low, [first, stop]).tolist())
    low, high = np.maximum(found.low[near], start), np.minimum(found.high[near], stop)
    times = np.maximum(high - low, 0)
    source = np.repeat(np.arange(len(low)), times)
    step = np.arange(len(source)) - np.repeat(np.cumsum(times) - times, times)
    values = found.values[near].take(pa.array(source))
    return Histogram(low[source] + step - start, values, found.counts[near][source])
