"""Groups of aggregates at every instant: common codes for their cells, distinct values and emitted rows; and the key
and aggregate columns of each interval between two changes of a group, or of all groups at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import BY_VALUE, AggregateCall
from headrace.algebra.expressions.expression import Column, Expression
from headrace.dataclass import dataclass
from headrace.operators.aggregates import aggregate_calls
from headrace.operators.aggregates.aggregate_calls import Answer, Lowered, lift
from headrace.operators.aggregates.cell_table import reduce_answer, select
from headrace.operators.aggregates.group_by import Grouped, lower_distinct
from headrace.operators.aggregates.holistic import Histogram, lower_by_value
from headrace.operators.base.group_codes import Groups, Ints, flat, group
from headrace.operators.output.changelog import unite
from headrace.operators.relations.interval_segments import Intervals, spread
from headrace.operators.relations.segment_values import lower_over_intervals, value_intervals

Columns = dict[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Valued:
    """Values of an argument: the group, value and interval of each, and how many rows have it."""

    keys: tuple[pa.Array, ...]
    values: pa.Array
    begin: Ints
    end: Ints
    counts: Ints


@dataclass(frozen=True, slots=True)
class Timed:
    """Cells of rows (or of rows folded per instant) with their keys and intervals; and the distinct values."""

    keys: tuple[pa.Array, ...]
    begin: Ints
    end: Ints
    answer: Answer
    distinct: Mapping[Expression, Valued]

    @property
    def rows(self) -> int:
        """Number of intervals."""
        return len(self.begin)


@dataclass(frozen=True, slots=True)
class Coded:
    """`Timed` with group codes that all its parts, the last emitted groups and the permanent groups share."""

    timed: Timed
    groups: Groups
    codes: Ints
    last_emitted: Ints
    distinct: Mapping[Expression, Ints]
    permanent: Ints


def coded(
    timed: Timed,
    last_emitted: Sequence[pa.Array],
    emitted_rows: int,
    permanent: tuple[Sequence[pa.Array], int] = ((), 0),
) -> Coded:
    """Number the groups; `permanent` are the keys of those that are there with or without rows, and their number."""
    parts = [timed.keys, tuple(last_emitted), *(valued.keys for valued in timed.distinct.values())]
    sizes = [timed.rows, emitted_rows, *(len(valued.begin) for valued in timed.distinct.values())]
    if permanent[1]:
        parts.append(tuple(permanent[0]))
    columns = [pa.concat_arrays([flat(part[index]) for part in parts]) for index in range(len(timed.keys))]
    groups = group(columns, sum(sizes) + permanent[1])
    codes, last_codes, *distinct, permanent_codes = np.split(groups.codes, np.cumsum(sizes))
    of_arguments = dict(zip(timed.distinct, distinct, strict=True))
    return Coded(timed, groups, codes, last_codes, of_arguments, permanent_codes)


def of_intervals(
    grouped: Grouped, groups: Coded, intervals: Intervals
) -> tuple[Columns, np.ndarray, np.ndarray]:
    """Columns of every interval, where an aggregate overflowed, and the number of rows of each."""
    timed = groups.timed
    run = intervals.cover(groups.codes, timed.begin, timed.end)
    answer = spread(grouped.layouts[0].partial_columns, timed.answer, *run, intervals.count)

    def over_distinct(call: AggregateCall, argument: Expression) -> Lowered:
        valued, codes = timed.distinct[argument], groups.distinct[argument]
        if call.function in BY_VALUE:
            low, high = intervals.cover(codes, valued.begin, valued.end)
            held = value_intervals(codes, valued.values, low, high, valued.counts)
            return lower_over_intervals(call, held, intervals)
        same = group([pa.array(codes), valued.values], len(codes)).codes
        first, begin, end = unite(same, valued.begin, valued.end)
        value = Column("__value", argument.type)
        plain = AggregateCall(call.function, value, call.type)
        partial_columns = aggregate_calls.partials_of([plain])
        cells = lift(
            partial_columns, {value: valued.values.take(pa.array(first))}, np.arange(len(first)), len(first)
        )
        low, high = intervals.cover(codes[first], begin, end)
        return aggregate_calls.lower(plain, spread(partial_columns, cells, low, high, intervals.count))

    keys = [key.take(pa.array(intervals.group)) for key in groups.groups.keys]
    columns, failed = _lowered(grouped, keys, answer, over_distinct, intervals.count)
    return columns, failed, answer.cells[grouped.layouts[0].partial_columns[0]][0]


def of_moment(
    grouped: Grouped, groups: Coded, alive: Callable[[Ints, Ints], np.ndarray], *, is_global: bool
) -> tuple[Columns, np.ndarray, Ints]:
    """Columns of every group over the rows that are alive, in the order of `timed`; where one overflowed; and the groups.

    Equal rows give equal bits, since they are combined one after the other.
    """
    timed, count = groups.timed, groups.groups.count
    there = alive(timed.begin, timed.end)
    codes = groups.codes[there]
    answer = reduce_answer(grouped.layouts[0], select(timed.answer, there), codes, count)
    present = (
        np.arange(count)
        if is_global
        else np.flatnonzero(answer.cells[grouped.layouts[0].partial_columns[0]][0] > 0)
    )

    def over_distinct(call: AggregateCall, argument: Expression) -> Lowered:
        valued, owner = timed.distinct[argument], groups.distinct[argument]
        alive_rows = np.flatnonzero(alive(valued.begin, valued.end))
        values = valued.values.take(pa.array(alive_rows))
        if call.function in BY_VALUE:
            return lower_by_value(
                call, Histogram(owner[alive_rows], values, valued.counts[alive_rows]), count
            )
        same = group([pa.array(owner[alive_rows]), values], len(alive_rows))
        first = np.full(same.count, len(alive_rows), np.int64)
        np.minimum.at(first, same.codes, np.arange(len(alive_rows)))
        histogram = Histogram(owner[alive_rows], values, valued.counts[alive_rows]).take(first)
        return lower_distinct(call, argument, histogram, count)

    keys = list(groups.groups.keys)
    columns, failed = _lowered(grouped, keys, answer, over_distinct, count)
    picked = pa.array(present)
    return {name: column.take(picked) for name, column in columns.items()}, failed[present], present


def _lowered(
    grouped: Grouped,
    keys: Sequence[pa.Array],
    answer: Answer,
    over_distinct: Callable[[AggregateCall, Expression], Lowered],
    rows: int,
) -> tuple[Columns, np.ndarray]:
    columns = {key.name: values for key, values in zip(grouped.keys, keys, strict=True)}
    failed = np.zeros(rows, bool)
    for item in grouped.aggregates:
        argument = (
            aggregate_calls.effective_argument(item.call) if aggregate_calls.needs_values(item.call) else None
        )
        lowered = (
            aggregate_calls.lower(item.call, answer)
            if argument is None
            else over_distinct(item.call, argument)
        )
        columns[item.name] = lowered.values
        if lowered.errors is not None:
            failed |= lowered.errors
    return columns, failed
