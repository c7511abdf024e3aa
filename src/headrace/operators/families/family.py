"""Families: queries with the same windows and aggregates under different conditions, which store their state together.

A thousand alerts differ in their WHERE, their HAVING and their columns, hardly ever in their windows. Such queries are
a *family*: one set of tables holds the partials of all of them, with the query's number as the first group key, so that
sealing panes, building blocks and combining windows are done once for all, whatever their number. Each query keeps its
own progress: a *cohort* is those queries that have the same `Advance`, and the rest of the family's rows wait. Source:
CACQ and PSoup (queries as data).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Column
from headrace.operators.aggregates.synopsis_aggregates import uses_synopses
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import (
    Operator,
)

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate

ROW_LAYOUT_SUFFIX: Final = "/rows"
"""Suffix of a state's name in `row_layout_states`: all its rows are stored as rows as they arrive, without folding."""

QUERY_NUMBER: Final = "__member"
"""The column of the query's number where the windows of a whole family are computed at once: its first group key."""

STORED_QUERY_NUMBER: Final = "k0"
"""The name of that column in a state table, where group keys are named by their position."""

_NUMBERED: Final = re.compile(r"q(\d+)")


def in_family(operator: PaneAggregate) -> PaneAggregate:
    """The operator with the name of its family, if its query is in the query log and its shape allows it."""
    if operator.answers_empty or operator.revisions is not None or not _NUMBERED.fullmatch(operator.id):
        return operator
    if uses_synopses(operator.aggregates):
        return operator
    window = (operator.stream, operator.panes, operator.range, operator.window_alias)
    shape = (window, operator.keys, operator.aggregates)
    is_plain = all(isinstance(key.expression, Column) for key in operator.keys) and all(
        (item.call.share, item.call.most, item.call.half_life) == (None, None, None)
        and item.call == AggregateCall(item.call.function, item.call.argument, item.call.type)
        and isinstance(item.call.argument, Column | None)
        for item in operator.aggregates
    )
    name = _of_plain(shape) if is_plain else _name(shape)
    return _with_shared_parts(replace(operator, family=name))


def _name(shape: object) -> str:
    return f"f{hashlib.blake2b(repr(shape).encode(), digest_size=9).hexdigest()}"


_of_plain: Final = lru_cache(4096)(_name)
"""Cached for shapes without constants: a cache key compares by `==`, which does not separate 0.0 from -0.0."""


_shared_shapes: Final[dict[str, PaneAggregate]] = {}
"""The first operator of each family: its panes, keys and aggregates are those of all."""

_shared_finishes: Final[dict[object, PaneAggregate]] = {}
"""The first operator with each finish in a family."""

_MOST_SHARED: Final = 4096


def _with_shared_parts(operator: PaneAggregate) -> PaneAggregate:
    """The operator, with parts equal to those of its family as the same objects: less to store and to send."""
    for shared in (_shared_shapes, _shared_finishes):
        if len(shared) >= _MOST_SHARED:
            shared.clear()
    above = operator.finish
    expressions = [column.expression for column in above.columns] + [key.expression for key in above.sort]
    is_plain = not (above.having or above.order or above.regroup)
    is_plain = is_plain and all(isinstance(expression, Column) for expression in expressions)
    finish = (operator.family, above if is_plain else repr(above))
    by_family = _shared_shapes.setdefault(str(operator.family), operator)
    by_finish = _shared_finishes.setdefault(finish, operator)
    return replace(
        operator,
        panes=by_family.panes,
        keys=by_family.keys,
        aggregates=by_family.aggregates,
        finish=by_finish.finish,
    )


def number_of(operator_id: str) -> int:
    """A query's number: that of its generation, which is never reused, so old rows cannot be mistaken for its own."""
    return int(operator_id.removeprefix("q"))


def with_stored_layout(operator: Operator, row_layout_states: Collection[str]) -> Operator:
    """The operator of scan tasks while its state is among `row_layout_states`: see `ROW_LAYOUT_SUFFIX`."""
    name = state_name(operator)
    return (
        operator.with_row_layout(folds=name + ROW_LAYOUT_SUFFIX not in row_layout_states)
        if name in row_layout_states
        else operator
    )


def state_name(operator: Operator) -> str:
    """The name of the operator's state: its family's, or its own."""
    return operator.family_key or operator.id


@dataclass(frozen=True, slots=True)
class QueryRowCounts:
    """Rows per query in a state table: numbers ascending."""

    numbers: Ints
    rows: Ints

    @staticmethod
    def of(table: pa.Table) -> QueryRowCounts:
        """Count a table's rows by query."""
        numbers, rows = np.unique(ints(table, STORED_QUERY_NUMBER), return_counts=True)
        return QueryRowCounts(numbers, rows)

    def among(self, queries: Ints) -> Ints:
        """The rows of each of `queries` (ascending)."""
        row_counts = np.zeros(len(queries), np.int64)
        indices = np.searchsorted(queries, self.numbers)
        is_present = indices < len(queries)
        is_present[is_present] = queries[indices[is_present]] == self.numbers[is_present]
        row_counts[indices[is_present]] = self.rows[is_present]
        return row_counts
