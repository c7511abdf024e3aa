"""Output steps (HAVING, select list, ORDER BY, LIMIT) over rows of several queries of a family: queries with equal
steps are finished together, and results and failed rows are separated by query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, Named
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.operator import QUERY_NUMBER, Operator, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.output.changelog import EmitMode, Emitted, Items, Span, emit
from headrace.operators.output.output_stage import Finish
from headrace.schema import BIGINT

NUMBER: Final = Named(QUERY_NUMBER, Column(QUERY_NUMBER, BIGINT))
"""The query's number, as a group key and as a result column."""


def plans_of(plans: Sequence[Finish]) -> list[tuple[Finish, list[int]]]:
    """The places of equal plans."""
    same: dict[int, tuple[Finish, list[int]]] = {}  # thousands share one object, so hash its id
    for index, plan in enumerate(plans):
        same.setdefault(id(plan), (plan, []))[1].append(index)
    if len(same) == 1:
        return list(same.values())
    places: dict[Finish, list[int]] = {}
    for plan, indices in same.values():
        places.setdefault(plan, []).extend(indices)
    return list(places.items())


def emit_by_query(cohort: Cohort, numbers: Ints, emit: Callable[[Finish, Ints], Emitted]) -> dict[str, Step]:
    """What each query of a cohort emits of rows with these numbers; `emit` gives it for a plan and some of the rows.

    Queries with an equal plan are emitted together, and one by one if a row fails, to know whose it is.
    """
    if len(cohort.queries) == 1:  # most families have one query
        rows = np.arange(len(numbers))
        table, failed = emit(plan_of(cohort.queries[0]), rows) if len(rows) else (None, ())
        return {cohort.queries[0].id: Step({}, table, failed)}
    tables: dict[int, pa.Table | None] = {}
    rejected: dict[int, tuple[Rejected, ...]] = {}
    for plan, places in plans_of([plan_of(query) for query in cohort.queries]):
        rows = np.flatnonzero(np.isin(numbers, cohort.numbers[places]))
        if not len(rows):
            continue
        table, bad = emit(with_number(plan), rows) if plan.is_row_by_row else (None, ())
        if plan.is_row_by_row and not bad:
            tables |= {int(np.searchsorted(cohort.numbers, number)): part for number, part in by_query(table)}
            continue
        for index in places:
            of_query = rows[numbers[rows] == cohort.numbers[index]]
            tables[index], rejected[index] = emit(plan, of_query) if len(of_query) else (None, ())
    return {
        query.id: Step({}, tables.get(index), rejected.get(index, ()))
        for index, query in enumerate(cohort.queries)
    }


def emit_items(cohort: Cohort, items: Items | None, span: Span, emit_mode: EmitMode) -> dict[str, Step]:
    """The same of items, which have the query's number among their columns."""
    if items is None or not items.rows:
        return {query.id: Step() for query in cohort.queries}
    numbers = flat(items.columns[QUERY_NUMBER]).to_numpy()

    def emitted(plan: Finish, rows: Ints) -> Emitted:
        return emit(plan, items if len(rows) == items.rows else items.take(rows), span, emit_mode)

    return emit_by_query(cohort, numbers, emitted)


def with_number(plan: Finish) -> Finish:
    """The plan with the query's number as its last column."""
    regroup = plan.regroup
    if regroup is not None:  # a window is of one query
        regroup = replace(regroup, bounds=(*regroup.bounds, QUERY_NUMBER))
    return replace(plan, columns=(*plan.columns, NUMBER), regroup=regroup)


def plan_of(query: Operator) -> Finish:
    """The steps above a query's windows."""
    plan = query.finishing
    assert plan is not None
    return plan


def by_query(table: pa.Table | None) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each query in their order, without the column of its index."""
    if table is None or not table.num_rows:
        return
    indices = ints(table, QUERY_NUMBER)
    plain = table.drop_columns([QUERY_NUMBER])
    if (np.diff(indices) < 0).any():
        order = np.argsort(indices, kind="stable")
        plain, indices = plain.take(pa.array(order)), indices[order]
    starts = np.flatnonzero(np.r_[True, indices[1:] != indices[:-1]])
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(indices)], strict=True):
        yield int(indices[start]), plain.slice(start, stop - start)
