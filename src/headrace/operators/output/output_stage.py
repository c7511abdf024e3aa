"""Output steps of a query, above its windows: HAVING, the select list with hidden sort columns, DISTINCT, and ORDER BY
with LIMIT; before them, where a query needs it, aggregation of the window's rows (`regrouping`).

Input are rows that each belong to a window (or instant), as columns; output are result rows. All steps are per window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression, Named
from headrace.algebra.query import SortKey
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, flat, group, ints, normalise
from headrace.operators.base.operator import AT, WINDOW
from headrace.operators.base.sort_ranks import sort_rank, zero_signs
from headrace.operators.output.regrouping import Regroup
from headrace.operators.scalar import Evaluation

HIDDEN: Final = "__sort"
"""Prefix of result columns that only order the output."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The steps after aggregation, in order: having, order and limit, projection, distinct.

    `sort` are the expressions that order the output (ORDER BY, then group keys), carried as hidden columns. `regroup`,
    if there is one, aggregates the rows of a closed window first.
    """

    columns: tuple[Named, ...]
    having: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    distinct: bool = False
    sort: tuple[SortKey, ...] = ()
    regroup: Regroup | None = None

    @property
    def needs_whole_window(self) -> bool:
        """Whether all rows of a window must be in one place."""
        return self.limit is not None or self.distinct or self.regroup is not None

    @property
    def unshown(self) -> tuple[str, ...]:
        """The hidden columns that are none of the selected ones: rows that look equal may differ in them."""
        shown = {column.expression for column in self.columns}
        differs = [not self.distinct and key.expression not in shown for key in self.sort]
        return tuple(f"{HIDDEN}{index}" for index in np.flatnonzero(differs))

    @property
    def is_row_by_row(self) -> bool:
        """Whether a row's result does not depend on other rows."""
        return self.limit is None and self.regroup is None


def finish(
    plan: Finish, columns: Mapping[str, pa.Array], windows: Ints, at: Ints, failed: np.ndarray | None = None
) -> tuple[pa.Table, tuple[Rejected, ...]]:
    """Result rows of some windows; `windows` and `at` are each input row's window and emission instant.

    `failed` marks rows whose aggregate overflowed. Rejected rows have their emission instant.
    """
    rejected: list[Rejected] = []
    if plan.regroup is not None:
        groups = plan.regroup.apply(columns, windows, at)
        columns, windows, at, failed = groups.columns, groups.windows, groups.at, groups.failed
    if failed is not None and failed.any():
        rejected.append(_rejected(at, failed, "an aggregate does not fit its type"))
        columns, windows, at = _filter(columns, windows, at, ~failed)
    for predicate in plan.having:
        evaluation = Evaluation(columns, len(at))
        keep = evaluation.mask(predicate)
        if evaluation.errors is not None:
            rejected.append(_rejected_by(at, evaluation))
            keep = keep & ~evaluation.errors.mask
        columns, windows, at = _filter(columns, windows, at, keep)
    evaluation = Evaluation(columns, len(at))
    names = [column.name for column in plan.columns] + [f"{HIDDEN}{index}" for index in range(len(plan.sort))]
    expressions = [column.expression for column in plan.columns] + [key.expression for key in plan.sort]
    values = [evaluation.values(expression) for expression in expressions]
    order = [evaluation.values(key.expression) for key in plan.order] if plan.limit is not None else []
    table = pa.table([*values, pa.array(windows), pa.array(at)], names=[*names, WINDOW, AT])
    if evaluation.errors is not None:
        rejected.append(_rejected_by(at, evaluation))
        keep = pa.array(~evaluation.errors.mask)
        table, order = table.filter(keep), [value.filter(keep) for value in order]
    if plan.distinct:
        first = _first_of_each(table, len(plan.columns))
        table, order = without_repeats(table, first, plan), [value.take(first) for value in order]
    if plan.limit is not None:
        table = _top(table, plan, order)
    return table, tuple(rejected)


def without_repeats(table: pa.Table, first: pa.Array, plan: Finish) -> pa.Table:
    """The rows of DISTINCT at the given places, with the value shown for equal ones: 0.0 for -0.0."""
    rows = table.take(first)
    for index, column in enumerate(plan.columns):
        if pa.types.is_floating(rows.field(index).type):
            rows = rows.set_column(index, column.name, normalise(flat(rows.column(index))))
    return rows


def _first_of_each(table: pa.Table, outputs: int) -> pa.Array:
    groups = group(
        [flat(table.column(index)) for index in range(outputs)] + [flat(table.column(WINDOW))], table.num_rows
    )
    first = np.full(groups.count, table.num_rows, np.int64)
    np.minimum.at(first, groups.codes, np.arange(table.num_rows))
    return pa.array(np.sort(first))


def _top(table: pa.Table, plan: Finish, order: Sequence[pa.Array]) -> pa.Table:
    """The first `limit` rows of each window; ties cut by all output columns, ascending, nulls first."""
    keys = [
        sort_rank(value, key.descending, key.nulls_first)
        for value, key in zip(order, plan.order, strict=True)
    ]
    keys += [sort_rank(flat(table.column(index)), False, True) for index in range(len(plan.columns))]
    keys += zero_signs(table.column(index) for index in range(len(plan.columns)))
    windows = ints(table, WINDOW)
    by = np.lexsort([*reversed(keys), windows])
    ordered = windows[by]
    starts = (
        np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.empty(0, np.int64)
    )
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    assert plan.limit is not None
    return table.take(pa.array(by[rank < plan.limit]))


def _filter(
    columns: Mapping[str, pa.Array], windows: Ints, at: Ints, keep: np.ndarray
) -> tuple[Mapping[str, pa.Array], Ints, Ints]:
    if keep.all():
        return columns, windows, at
    mask = pa.array(keep)
    return {name: column.filter(mask) for name, column in columns.items()}, windows[keep], at[keep]


def _rejected(at: Ints, mask: np.ndarray, reason: str) -> Rejected:
    rows = np.flatnonzero(mask)
    return Rejected(at[rows], np.full(len(rows), -1), (reason,) * len(rows))


def _rejected_by(at: Ints, evaluation: Evaluation) -> Rejected:
    assert evaluation.errors is not None
    rows = np.flatnonzero(evaluation.errors.mask)
    reasons = tuple(evaluation.errors.reasons[row] for row in rows.tolist())
    return Rejected(at[rows], np.full(len(rows), -1), reasons)
