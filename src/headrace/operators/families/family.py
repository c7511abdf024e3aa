"""Families: queries that differ only in conditions, columns and extents of windows, and store their state together.
This file names families and their state, adds and reads the query's number in state rows, and counts rows by query.

A thousand alerts differ in their WHERE, their HAVING and their columns, hardly ever in their aggregates. Such queries are
a *family*: one set of tables holds the rows of all of them, each with its query's number (of cells it is the first group
key), so that an epoch is one pass over the tables for all queries, whatever their number. Each query keeps its own
progress: a *cohort* is those queries that have the same `Advance`, and the rest of the family's rows wait. What differs
from query to query is data: an array by number (`extents.Extents`), or a plan by which rows are finished (`finishing`).
Source: CACQ and PSoup (queries as data).

Contract. A class of operators has families when it extends `family_operator.FamilyOperator` with a field `family`, the hash of
what its queries have in common (`family_name`), and defines `together` (one operator over all rows, used to compact
them) and `advance_family` (one step for a cohort, which splits results by query). Its own sections become the family's
by `numbered`. All else, such as cohorts, expiry and deltas, follows, and callers ask for no class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Column
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import FIRST_KEY, KEY
from headrace.operators.aggregates.synopsis_calls import uses_synopses
from headrace.operators.base.block_codes import counted
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import QUERY_NUMBER, Operator
from headrace.operators.families.numbering import is_numbered
from headrace.operators.panes.panes import Panes

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate

ROW_LAYOUT_SUFFIX: Final = "/rows"
"""Suffix of a state's name in `row_layout_states`: all its rows are stored as rows as they arrive, without folding."""


def in_family(operator: PaneAggregate) -> PaneAggregate:
    """The operator with the name of its family, if its query is in the query log and its shape allows it."""
    if operator.answers_empty or operator.revisions is not None or not is_numbered(operator.id):
        return operator
    if uses_synopses(operator.aggregates):
        return operator
    panes = operator.panes
    window = (operator.stream, panes.grid, panes.back is None, operator.window_alias)
    shape = (window, operator.keys, operator.aggregates)
    is_plain = all(isinstance(key.expression, Column) for key in operator.keys) and all(
        (item.call.share, item.call.most, item.call.half_life) == (None, None, None)
        and item.call == AggregateCall(item.call.function, item.call.argument, item.call.type)
        and isinstance(item.call.argument, Column | None)
        for item in operator.aggregates
    )
    name = _of_plain(shape) if is_plain else family_name(shape)
    return _with_shared_parts(replace(operator, family=name))


_Joined = TypeVar("_Joined")
_joined: Final[MadeOnce[Any]] = MadeOnce(4096)


def joined(queries: Sequence[Operator], join: Callable[[], _Joined]) -> _Joined:
    """What `join` makes of these queries, once for the same objects."""
    family: _Joined = _joined.of(tuple(queries), join)
    return family


def family_name(shape: object) -> str:
    """The name of a family: a hash of what its queries have in common."""
    return f"f{hashlib.blake2b(repr(shape).encode(), digest_size=9).hexdigest()}"


_of_plain: Final = lru_cache(4096)(family_name)
"""Cached for shapes without constants: a cache key compares by `==`, which does not separate 0.0 from -0.0."""


_shared_shapes: Final[dict[str, PaneAggregate]] = {}
"""The first operator of each family: its keys and aggregates are those of all."""

_shared_panes: Final[dict[Panes, Panes]] = {}
"""Equal panes as one object."""

_shared_finishes: Final[dict[object, PaneAggregate]] = {}
"""The first operator with each finish in a family."""

_MOST_SHARED: Final = 4096


def _with_shared_parts(operator: PaneAggregate) -> PaneAggregate:
    """The operator, with parts equal to those of its family as the same objects: less to store and to send."""
    shared: dict[Any, Any]
    for shared in (_shared_shapes, _shared_finishes, _shared_panes):
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
        panes=_shared_panes.setdefault(operator.panes, operator.panes),
        keys=by_family.keys,
        aggregates=by_family.aggregates,
        finish=by_finish.finish,
    )


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


def numbers_in(table: pa.Table) -> Ints:
    """The number of the query of each row of a family's state."""
    return ints(table, _number_column(table))


def _number_column(table: pa.Table) -> str:
    return FIRST_KEY if KEY in table.column_names else QUERY_NUMBER


def numbered(table: pa.Table, number: int | Ints) -> pa.Table:
    """A table of one query's state as rows of its family's: of cells the number is the first key, else a column.

    `number` is that of all rows, or of each.
    """
    column = pa.array(np.broadcast_to(np.asarray(number, np.int64), table.num_rows))
    if KEY not in table.column_names:
        return table.append_column(QUERY_NUMBER, column)
    names, keys = table.column_names[2:], 0
    while keys < len(names) and names[keys] == f"k{keys}":
        names[keys], keys = f"k{keys + 1}", keys + 1
    return pa.table(
        [*table.columns[:2], column, *table.columns[2:]], names=[*table.column_names[:2], FIRST_KEY, *names]
    )


def number_last(table: pa.Table) -> pa.Table:
    """The table with the column of the number, if it has one, where `numbered` adds it."""
    names = table.column_names
    if QUERY_NUMBER not in names:
        return table
    return table.select([*(name for name in names if name != QUERY_NUMBER), QUERY_NUMBER])


def unnumbered(table: pa.Table) -> pa.Table:
    """The inverse, for a table with rows of one query."""
    if KEY not in table.column_names:
        return table.drop_columns([QUERY_NUMBER])
    names, key = table.column_names, 3
    while key < len(names) and names[key] == f"k{key - 2}":
        names[key], key = f"k{key - 3}", key + 1
    return table.rename_columns(names).remove_column(2)


@dataclass(frozen=True, slots=True)
class QueryRowCounts:
    """Rows per query in a state table: numbers ascending."""

    numbers: Ints
    rows: Ints

    @staticmethod
    def of(table: pa.Table) -> QueryRowCounts:
        """Count a table's rows by query."""
        return QueryRowCounts(*counted(table.column(_number_column(table))))

    def among(self, queries: Ints) -> Ints:
        """The rows of each of `queries` (ascending, at least one)."""
        row_counts = np.zeros(len(queries), np.int64)
        places = queries[1:].searchsorted(self.numbers, "right")  # of the last one that is not greater
        is_present = queries.take(places) == self.numbers
        row_counts[places[is_present]] = self.rows[is_present]
        return row_counts
