"""Stored rows of a family's queries, made in one pass for all pairs of a row and a query that selects it: conditions are one index,
and windows, slots and constants are columns by query.

Values that all queries store of a row are evaluated once for it. Where queries compute the end of a row by expressions that differ in
constants alone, these become columns too, so that one evaluation serves all pairs. A pair on which an expression fails is given to its
query's own scanner, which rejects it.
Source: CACQ and PSoup (queries as data, the query SteM).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Call, Column, Expression, Literal, columns_of
from headrace.algebra.expressions.series import AT, POSITION
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, flat, picked, slots_of
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import QUERY_NUMBER, Operator, Scanned, Scanner
from headrace.operators.families.numbering import number_of
from headrace.operators.query_index.index_cache import Plans, none_yet
from headrace.operators.query_index.matching.selections import selections
from headrace.operators.rows.row_pipeline import RowFilter
from headrace.operators.rows.row_state import RowLayout
from headrace.operators.scalar import Evaluation
from headrace.operators.sharing.pairs.query_pairs import QueryPairs
from headrace.schema import BIGINT
from headrace.time import BEGINNING, FOREVER

ROWS_AT_ONCE: Final = 1 << 16
"""Rows that are matched together: half a megabyte a column."""
_MOST_OF_ROWS: Final = 0.5
"""Pairs in a portion for each row of the batch, from which on slots are computed once for all rows."""
_OF_INTEGERS: Final = frozenset({"+", "-", "least", "greatest"})
"""Functions whose constant arguments may as well be columns."""
_CONSTANT: Final = "__constant"


@dataclass(frozen=True, slots=True)
class _Template:
    """An expression whose integer constants are columns, and the constants of one query."""

    expression: Expression
    constants: tuple[int, ...]

    @staticmethod
    def of(expression: Expression) -> _Template:
        """That of an expression."""
        constants = list[int]()

        def abstracted(node: Expression) -> Expression:
            if isinstance(node, Literal) and node.type == BIGINT and isinstance(node.value, int):
                constants.append(node.value)
                return Column(f"{_CONSTANT}{len(constants) - 1}", BIGINT)
            if isinstance(node, Call) and node.type == BIGINT and node.function in _OF_INTEGERS:
                return Call(node.function, tuple(map(abstracted, node.arguments)), node.type)
            return node

        return _Template(abstracted(expression), tuple(constants))


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    """An expression for the end of a row, and by query the constants in it."""

    expression: Expression
    constants: Mapping[str, Ints]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of rows that it reads."""
        return columns_of(self.expression) - self.constants.keys()

    def of_pairs(
        self, columns: Mapping[str, pa.Array], index: Ints, queries: Ints, failed: np.ndarray
    ) -> pa.Array:
        """The end of each pair of a row of `columns` and a query; those on which the expression fails are added to `failed`."""
        read = {name: picked(flat(columns[name]), index) for name in self.columns}
        constants = {name: pa.array(of_query.take(queries)) for name, of_query in self.constants.items()}
        evaluation = Evaluation({**read, **constants}, len(index))
        values = flat(evaluation.values(self.expression))
        if evaluation.errors is not None:
            failed |= evaluation.errors.mask
        return values


_templates: Final[MadeOnce[_Template]] = MadeOnce(1 << 16)


def layout_of(query: Operator) -> RowLayout:
    """What a query stores of a row."""
    layout = query.family_rows
    assert layout is not None
    return layout


def condition_of(query: Operator) -> Expression | None:
    """The condition of a query whose only step is a filter, without which a row leaves no trace; None for others."""
    steps = query.routing_steps
    if len(steps) != 1 or not isinstance(steps[0], RowFilter) or layout_of(query).change is not None:
        return None
    return steps[0].predicate


@dataclass(frozen=True)
class _QueryPlan(QueryPairs[Operator]):
    """The conditions of a family's queries, and by query what else differs."""

    @staticmethod
    def condition_of(query: Operator) -> Expression | None:
        return condition_of(query)

    @cached_property
    def layout(self) -> RowLayout:
        """What every query stores, but for the end of a row."""
        return layout_of(self.queries[0])

    @cached_property
    def common(self) -> tuple[Expression, ...]:
        """The values that all queries store."""
        return self.layout.values[self.layout.ends_differ :]

    @cached_property
    def numbers(self) -> Ints:
        """The queries' numbers."""
        return np.array([number_of(query.id) for query in self.queries], np.int64)

    @cached_property
    def own_slots(self) -> np.ndarray:
        """The slots of rows that no value routes."""
        return np.array([query.own_slot for query in self.queries], np.int16)

    @cached_property
    def bounds(self) -> tuple[Ints, Ints, Ints] | None:
        """The first and last event time that each query stores, and by how much it moves them; None if all store all."""
        bounded = [layout_of(query).bounded for query in self.queries]
        low = np.array([BEGINNING if of.low is None else of.low for of in bounded], np.int64)
        high = np.array([FOREVER if of.high is None else of.high for of in bounded], np.int64)
        shift = np.array([of.shift for of in bounded], np.int64)
        stores_all = (low == BEGINNING).all() and (high == FOREVER).all() and not shift.any()
        return None if stores_all else (low, high, shift)

    @cached_property
    def ends(self) -> tuple[tuple[_Ends, ...], Ints]:
        """The expressions for the end of a row, and by query which of them is its own; none where all queries have one."""
        if not self.layout.ends_differ:
            return (), np.zeros(len(self.queries), np.int64)
        templates = [
            _templates.of((expression,), partial(_Template.of, expression))
            for expression in (layout_of(query).partition[0] for query in self.queries)
        ]
        distinct = dict.fromkeys(template.expression for template in templates)
        kinds = {expression: kind for kind, expression in enumerate(distinct)}
        kind_of = np.array([kinds[template.expression] for template in templates], np.int64)
        ends = list[_Ends]()
        for expression, kind in kinds.items():
            queries = np.flatnonzero(kind_of == kind)
            values = np.array([templates[query].constants for query in queries.tolist()], np.int64)
            constants = np.zeros((values.shape[1], len(self.queries)), np.int64)
            constants[:, queries] = values.T
            ends.append(
                _Ends(expression, {f"{_CONSTANT}{number}": row for number, row in enumerate(constants)})
            )
        return tuple(ends), kind_of

    @cached_property
    def serves_all(self) -> bool:
        """Whether pairs of all these queries can be made rows together."""
        if any(condition_of(query) is None for query in self.queries):
            return False
        moves = self.bounds is not None and self.bounds[2].any()
        read = frozenset[str]().union(*map(columns_of, self.common), *(end.columns for end in self.ends[0]))
        return not (moves and AT in read)

    @cached_property
    def routing_columns(self) -> tuple[str, ...] | None:
        """The columns of a row that decide its slot, also for all queries; None where something else does."""
        layout = self.layout
        if layout.routing is None or any(index < layout.ends_differ for index in layout.routing):
            return None
        values = [layout.values[index] for index in layout.routing] or [Column(POSITION, BIGINT)]
        columns = tuple(value.name for value in values if isinstance(value, Column))
        return columns if len(columns) == len(values) else None


_plans: Final = Plans(none_yet(_QueryPlan))


@dataclass(slots=True)
class _Values:
    """What queries store of the rows of a batch."""

    plan: _QueryPlan
    batch: Batch
    by_row: np.ndarray | None = None
    """The slots of all rows, once most are in pairs."""

    def slots(self, rows: Ints, queries: Ints) -> np.ndarray | None:
        """The slots of pairs; None where they are those of their values."""
        plan, batch = self.plan, self.batch
        if plan.layout.routing is None:
            return plan.own_slots.take(queries)
        if plan.routing_columns is None or (self.by_row is None and len(rows) < batch.rows * _MOST_OF_ROWS):
            return None
        if self.by_row is None:
            readable = batch.readable
            self.by_row = slots_of([flat(readable[name]) for name in plan.routing_columns], batch.rows)
        return self.by_row.take(rows)

    def of_pairs(self, rows: Ints, queries: Ints) -> tuple[list[pa.Array], np.ndarray]:
        """The stored values of pairs, and on which of them an expression fails."""
        read, index = self._read(rows)
        columns = read.readable
        evaluation = Evaluation(columns, read.rows)
        common = [flat(evaluation.values(value)) for value in self.plan.common]
        failed = np.zeros(len(rows), bool) if evaluation.errors is None else evaluation.errors.mask[index]
        values = [picked(value, index) for value in common]
        if self.plan.ends[0]:
            values.insert(0, self._ends(columns, index, queries, failed))
        return values, failed

    def _read(self, rows: Ints) -> tuple[Batch, Ints]:
        """The rows that are in pairs, if something is computed of them, and where the row of each pair is among them."""
        if all(isinstance(value, Column) for value in self.plan.common):
            return self.batch, rows
        is_read = np.zeros(self.batch.rows, bool)
        is_read[rows] = True
        return self.batch.where(is_read), (np.cumsum(is_read) - 1)[rows]

    def _ends(
        self, columns: Mapping[str, pa.Array], index: Ints, queries: Ints, failed: np.ndarray
    ) -> pa.Array:
        """The end of each pair; those on which an expression fails are added to `failed`."""
        ends, kind_of = self.plan.ends
        if len(ends) == 1:
            return ends[0].of_pairs(columns, index, queries, failed)
        kinds = kind_of[queries]
        chosen = [np.flatnonzero(kinds == kind) for kind in range(len(ends))]
        parts = list[pa.Array]()
        for end, pairs in zip(ends, chosen, strict=True):
            of_kind = np.zeros(len(pairs), bool)
            parts.append(end.of_pairs(columns, index[pairs], queries[pairs], of_kind))
            failed[pairs] |= of_kind
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(chosen))))


@dataclass(slots=True)
class QueryRows:
    """The rows of a task that queries of a family store, each with its query's number."""

    plan: _QueryPlan
    relations: Mapping[str, pa.Table]
    tables: list[pa.Table] = field(default_factory=list)
    kept: Ints = field(init=False)
    """The rows that each query stores."""
    alone: dict[int, Scanner] = field(default_factory=dict)
    """By the place of a query: the scanner that gets the rows on which an expression fails for it, and rejects them."""

    def __post_init__(self) -> None:
        self.kept = np.zeros(len(self.plan.queries), np.int64)

    @staticmethod
    def of(queries: tuple[Operator, ...], relations: Mapping[str, pa.Table]) -> QueryRows | None:
        """The scan of these queries; None where each has to scan by itself."""
        plan = _plans.of(queries)
        return QueryRows(plan, relations) if plan.serves_all else None

    def add(self, batch: Batch) -> None:
        """Add a batch of accepted rows: some at a time, so that columns from which the rows of pairs are taken stay in the processor's cache."""
        for part in batch.parts(ROWS_AT_ONCE) if batch.rows > ROWS_AT_ONCE else (batch,):
            self._add(part)

    def _add(self, batch: Batch) -> None:
        matched = selections(self.plan.index, batch.columns, batch.rows)
        for slot, failed in matched.failed.items():
            queries = np.flatnonzero(self.plan.slots == slot)
            self._reject(batch, np.tile(failed.rows, len(queries)), np.repeat(queries, len(failed.rows)))
        values = _Values(self.plan, batch)
        for rows, queries in self.plan.portions(matched.pairs()):
            self._store(values, rows, queries)

    def _reject(self, batch: Batch, rows: Ints, queries: Ints) -> None:
        """Give pairs on which an expression fails to the scanner of each query."""
        for query in np.unique(queries).tolist():
            if query not in self.alone:
                self.alone[query] = layout_of(self.plan.queries[query]).scanner(self.relations)
            self.alone[query].add(batch.take(np.unique(rows[queries == query])))

    def _store(self, values: _Values, rows: Ints, queries: Ints) -> None:
        """Add the stored rows of pairs."""
        plan, batch = self.plan, values.batch
        at = batch.at.take(rows)
        if plan.bounds is not None:
            low, high, shift = (bound[queries] for bound in plan.bounds)
            keep = (at >= low) & (at <= high)
            rows, queries, at = rows[keep], queries[keep], at[keep] + shift[keep]
        if not len(rows):
            return
        stored, failed = values.of_pairs(rows, queries)
        if failed.any():
            self._reject(batch, rows[failed], queries[failed])
            self._store(values, rows[~failed], queries[~failed])
            return
        self.kept += np.bincount(queries, minlength=len(self.kept))
        of_pairs, slots = Batch({}, at, batch.position.take(rows)), values.slots(rows, queries)
        table = plan.layout.table(of_pairs, stored, np.ones(len(rows), bool), slots)
        self.tables.append(table.append_column(QUERY_NUMBER, pa.array(plan.numbers.take(queries))))

    def finish(self, rows_in: int) -> Iterator[tuple[Operator, Scanned]]:
        """Each query that stores or rejects some of `rows_in` rows, with the number of the former and the latter."""
        for query in np.union1d(np.flatnonzero(self.kept), np.array([*self.alone], np.int64)).tolist():
            rejected = self.alone[query].finish().rejected if query in self.alone else ()
            yield self.plan.queries[query], Scanned({}, rejected, rows_in, int(self.kept[query]))
