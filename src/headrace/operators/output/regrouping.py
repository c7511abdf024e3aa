"""Aggregation of the rows of a window, all at once: when it closes, for aggregates that compare each row with its own
group; on INVOKE, for all aggregates of a selection.

`COUNT(*) FILTER (WHERE x > AVG(x))` takes two passes over a group, one per level: first the averages, then the rows
compared with them. All groups of all windows that close together are one batch.
Source: Gehrke, Korn, Srivastava (2001), section 2: an aggregate of level i takes at most i + 1 scans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import Column, Named
from headrace.dataclass import dataclass
from headrace.operators.aggregates import aggregate_calls
from headrace.operators.aggregates.aggregate_calls import lift
from headrace.operators.aggregates.group_by import lower_distinct
from headrace.operators.aggregates.holistic import Histogram
from headrace.operators.base.group_codes import Groups, Ints, flat, group
from headrace.operators.scalar import Evaluation
from headrace.schema import BOOLEAN

_ARGUMENT = "__argument"


@dataclass(frozen=True, slots=True)
class Regroup:
    """Keys and aggregates over stored values. Conditions may read earlier aggregates, by name.

    `bounds` are columns that are equal for all rows of a window.
    """

    keys: tuple[Named, ...]
    aggregates: tuple[NamedAggregate, ...]
    bounds: tuple[str, ...] = ()

    def apply(self, columns: Mapping[str, pa.Array], windows: Ints, at: Ints) -> Regrouped:
        """One row for each window and group: columns, windows, instants, and where an aggregate has no value."""
        rows = len(windows)
        keys = [Evaluation(columns, rows).values(key.expression) for key in self.keys]
        groups = group([pa.array(windows), *keys], rows)
        first = np.zeros(groups.count, np.int64)
        first[groups.codes[::-1]] = np.arange(rows)[::-1]
        results = {name: flat(columns[name]).take(pa.array(first)) for name in self.bounds if name in columns}
        results |= {key.name: values for key, values in zip(self.keys, groups.keys[1:], strict=True)}
        failed = np.zeros(groups.count, bool)
        for item in self.aggregates:
            values, bad = _aggregated(item, columns, results, groups)
            results[item.name] = values
            failed |= bad
        return Regrouped(results, windows[first], at[first], failed)

    def of_nothing(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """The single row of a global aggregate over no rows; `columns` are empty."""
        results: dict[str, pa.Array] = {}
        for item in self.aggregates:
            results[item.name], _ = _aggregated(item, columns, results, Groups(np.empty(0, np.int64), 1, ()))
        return results


@dataclass(frozen=True, slots=True)
class Regrouped:
    """Groups of windows."""

    columns: Mapping[str, pa.Array]
    windows: Ints
    at: Ints
    failed: np.ndarray


def _aggregated(
    item: NamedAggregate, columns: Mapping[str, pa.Array], results: Mapping[str, pa.Array], groups: Groups
) -> tuple[pa.Array, np.ndarray]:
    """One aggregate of all groups, and the groups in which its condition or the aggregate fails."""
    rows, failed = len(groups.codes), np.zeros(groups.count, bool)
    call, codes, picked = item.call, groups.codes, np.arange(len(groups.codes))
    if call.condition is not None:
        group_codes = pa.array(codes)
        spread = {name: values.take(group_codes) for name, values in results.items()}
        evaluation = Evaluation({**columns, **spread}, rows)
        mask = evaluation.mask(call.condition)
        if evaluation.errors is not None:
            failed[codes[evaluation.errors.mask]] = True
            mask = mask & ~evaluation.errors.mask
        picked = np.flatnonzero(mask)
    values = pa.array(np.ones(len(picked), bool))
    if call.argument is not None:
        values = flat(Evaluation(columns, rows).values(call.argument)).take(pa.array(picked))
    owner = codes[picked]
    kind = BOOLEAN if call.argument is None else call.argument.type
    plain = replace(call, argument=Column(_ARGUMENT, kind), condition=None)
    if aggregate_calls.needs_values(plain):
        same = group([pa.array(owner), values], len(owner))
        once = np.zeros(same.count, np.int64)
        once[same.codes[::-1]] = np.arange(len(owner))[::-1]
        counts = np.bincount(same.codes, minlength=same.count)
        histogram = Histogram(owner[once], values.take(pa.array(once)), counts)
        lowered = lower_distinct(plain, Column(_ARGUMENT, kind), histogram, groups.count)
    else:
        partial_columns = aggregate_calls.partials_of([plain])
        answer = lift(partial_columns, {Column(_ARGUMENT, kind): values}, owner, groups.count)
        lowered = aggregate_calls.lower(plain, answer)
    return lowered.values, failed if lowered.errors is None else failed | lowered.errors
