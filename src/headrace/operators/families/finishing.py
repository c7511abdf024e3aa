"""Output steps (HAVING, select list, ORDER BY, LIMIT) over rows of several queries of a family: queries with equal
steps are finished together, and results and failed rows are separated by query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, Named
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.group_ranks import stable_order
from headrace.operators.base.operator import AT, QUERY_NUMBER, Operator, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.numbering import id_of
from headrace.operators.output.changelog import EmitMode, Emitted, Items, Span, emit
from headrace.operators.output.output_stage import Finish
from headrace.schema import BIGINT
from headrace.time import Instant

_ITEMS_AT_ONCE: Final = 1 << 15
"""Items of several queries that are emitted together, about: half a megabyte a column of their changes."""
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
    steps = dict[int, Step]()
    for plan, places in plans_of([plan_of(query) for query in cohort.queries]):
        are_all = len(places) == len(cohort.queries)
        rows = (
            np.arange(len(numbers)) if are_all else np.flatnonzero(np.isin(numbers, cohort.numbers[places]))
        )
        if not len(rows):
            continue
        table, bad = emit(with_number(plan), rows) if plan.is_row_by_row else (None, ())
        if plan.is_row_by_row and not bad:
            steps |= _steps(cohort, table)
            continue
        for index in places:
            of_query = rows[numbers[rows] == cohort.numbers[index]]
            steps[index] = Step({}, *emit(plan, of_query)) if len(of_query) else Step()
    without_rows = Step()
    return {query.id: steps.get(index, without_rows) for index, query in enumerate(cohort.queries)}


def _steps(cohort: Cohort, table: pa.Table | None) -> Iterator[tuple[int, Step]]:
    """The step of each query of a cohort that has results, by its place."""
    for number, part, instants in by_query_with_instants(table):
        yield int(np.searchsorted(cohort.numbers, number)), Step({}, part, instants=instants)


def emit_items(cohort: Cohort, items: Items | None, span: Span, emit_mode: EmitMode) -> dict[str, Step]:
    """The same of items, which have the query's number among their columns."""
    if items is None or not items.rows:
        without_rows = Step()
        return {query.id: without_rows for query in cohort.queries}
    numbers = flat(items.columns[QUERY_NUMBER]).to_numpy()

    def emitted(plan: Finish, rows: Ints) -> Emitted:
        return emit(plan, items if len(rows) == items.rows else items.take(rows), span, emit_mode)

    return emit_by_query(cohort, numbers, emitted)


def emit_parts(cohort: Cohort, parts: Sequence[Items], span: Span, emit_mode: EmitMode) -> dict[str, Step]:
    """The same of items in several parts; of many items those of some queries at a time, whose columns stay in the processor's cache."""
    count = sum(part.rows for part in parts)
    if count <= _ITEMS_AT_ONCE or len(cohort.queries) == 1:
        return emit_items(cohort, Items.joined(parts) if parts else None, span, emit_mode)
    numbers, ordered = zip(*map(_by_number, parts), strict=True)
    starts = [np.append(np.searchsorted(of_part, cohort.numbers), len(of_part)) for of_part in numbers]
    portion = np.sum(starts, axis=0)[:-1] // _ITEMS_AT_ONCE
    steps = dict[str, Step]()
    for low, high in pairwise([0, *(np.flatnonzero(np.diff(portion)) + 1).tolist(), len(portion)]):
        edges = [(int(start[low]), int(start[high])) for start in starts]
        together = Items.joined([part.slice(*edge) for part, edge in zip(ordered, edges, strict=True)])
        some = Cohort(cohort.queries[low:high], cohort.numbers[low:high])
        steps |= emit_items(some, together, span, emit_mode)
    return steps


def _by_number(items: Items) -> tuple[Ints, Items]:
    """Items in the order of their queries' numbers, with these; stable."""
    numbers = flat(items.columns[QUERY_NUMBER]).to_numpy()
    if not (numbers[1:] < numbers[:-1]).any():
        return numbers, items
    order = stable_order(numbers)
    return order.columns[0], items.take(order.rows)


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
    plain, indices, begins, ends = _separated(table)
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        yield int(indices[begin]), plain.slice(begin, end - begin)


def by_query_with_instants(
    table: pa.Table | None,
) -> Iterator[tuple[int, pa.Table, tuple[Instant, Instant] | None]]:
    """The same of results, with the first and the last of their instants, if those of all queries ascend."""
    if table is None or not table.num_rows:
        return
    plain, indices, begins, ends = _separated(table)
    at = ints(plain, AT)
    ascend = not ((at[1:] < at[:-1]) & (indices[1:] == indices[:-1])).any()
    columns = (indices[begins], begins, ends - begins, at[begins], at[ends - 1])
    for index, begin, rows, first, last in zip(*(values.tolist() for values in columns), strict=True):
        yield index, plain.slice(begin, rows), (first, last) if ascend else None


@dataclass(frozen=True, slots=True, eq=False)
class ResultsByQuery:
    """The results of some queries in one table: query by query, ascending, those of each in the order of instants.

    The arrays have an entry for each of them: its number, its rows, and its first and last instant.
    """

    table: pa.Table
    numbers: Ints
    rows: Ints
    first: Ints
    last: Ints

    @staticmethod
    def of(table: pa.Table, numbers: Ints) -> ResultsByQuery:
        """Rows with the index of their query, as one table; `numbers` are those of all queries."""
        indices, at = ints(table, QUERY_NUMBER), ints(table, AT)
        later = indices[1:] > indices[:-1]
        if not (later | ((indices[1:] == indices[:-1]) & (at[1:] >= at[:-1]))).all():
            order = np.lexsort((at, indices))
            return ResultsByQuery.of(table.take(pa.array(order)), numbers)
        ends = np.append(np.flatnonzero(later) + 1, len(indices))
        begins = np.append(0, ends[:-1])
        plain = table.drop_columns([QUERY_NUMBER])
        return ResultsByQuery(plain, numbers[indices[begins]], ends - begins, at[begins], at[ends - 1])

    @property
    def queries(self) -> list[str]:
        """The ids of the queries."""
        return [id_of(number) for number in self.numbers.tolist()]


def _separated(table: pa.Table) -> tuple[pa.Table, Ints, Ints, Ints]:
    """The rows in the order of queries, without the column of their index, the indices, and where each one's begin and end."""
    indices, plain = ints(table, QUERY_NUMBER), table.drop_columns([QUERY_NUMBER])
    if (np.diff(indices) < 0).any():
        order = np.argsort(indices, kind="stable")
        plain, indices = plain.take(pa.array(order)), indices[order]
    begins = np.flatnonzero(np.append(True, indices[1:] != indices[:-1]))
    return plain, indices, begins, np.append(begins[1:], len(indices))
