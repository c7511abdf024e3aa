"""Scanner of joins of changing relations that are of a family: a row of a source becomes the changes of all queries that select it,
rows of results that queries read come as one batch with the number of the query of each.

The conditions of a side are one index where they are many. Keys are hashed once for all rows, and the number is mixed into each hash.
Rows on which an expression fails are given to the scanner of their query, which rejects them.
Source: CACQ (queries as data).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression, conjunction
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, flat
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import QUERY_NUMBER, Operator
from headrace.operators.base.union_positions import input_number
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import state_name
from headrace.operators.families.numbering import mixed_bits
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.joins.join_side import Side, slots_and_hashes
from headrace.operators.query_index.index_cache import Plans, none_yet
from headrace.operators.query_index.matching.selections import selections
from headrace.operators.rows.sorted_rows import in_order, usable
from headrace.operators.scalar import Evaluation
from headrace.operators.sharing.pairs.query_pairs import QueryPairs
from headrace.operators.sharing.reader_rows import EachAlone, numbers_of, scanned_of
from headrace.time import FOREVER

if TYPE_CHECKING:
    from headrace.operators.joins.changelog_join import RelationJoin

_ROWS_AT_ONCE: Final = 1 << 16
"""Rows that are matched together."""


@dataclass(frozen=True, slots=True, eq=False)
class _Condition:
    """The condition of a query on one side."""

    predicate: Expression | None

    @staticmethod
    def of(side: Side) -> _Condition:
        """That of a side."""
        factors = tuple(step.predicate for step in side.filters)
        return _Condition(conjunction(factors) if factors else None)


@dataclass(frozen=True)
class _SidePlan(QueryPairs[_Condition]):
    """The conditions of all queries on one side."""

    @staticmethod
    def condition_of(query: _Condition) -> Expression | None:
        return query.predicate


_plans: Final = Plans(none_yet(_SidePlan))


@dataclass(frozen=True, eq=False)
class _Joins:
    """Joins of a family, in the order of their numbers, and what differs by query."""

    cohort: Cohort
    joins: Sequence[RelationJoin]

    @staticmethod
    def of(queries: Sequence[Operator]) -> _Joins:
        """Of queries in any order; of all joins only those of changing relations have families."""
        cohort = Cohort.of(queries)
        return _Joins(cohort, [cast("RelationJoin", query) for query in cohort.queries])

    @cached_property
    def together(self) -> RelationJoin:
        """One join for the rows of all."""
        return self.joins[0].together(self.cohort.queries)

    @cached_property
    def sides(self) -> Sequence[Side]:
        """The sides of a join, equal in all but conditions and how long rows hold."""
        return self.joins[0].spec.sides

    @cached_property
    def side_of(self) -> dict[int, int]:
        """The side of each input."""
        return {number: index for index, side in enumerate(self.sides) for number in side.inputs}

    @cached_property
    def conditions(self) -> Sequence[tuple[_Condition, ...]]:
        """By side, the condition of each query."""
        return [
            tuple(_Condition.of(join.spec.sides[index]) for join in self.joins)
            for index in range(len(self.sides))
        ]

    @cached_property
    def lookbacks(self) -> Sequence[Ints]:
        """By side, how long a row holds for each query."""
        ends = [[side.lookback for side in join.spec.sides] for join in self.joins]
        return [
            np.array([FOREVER if end is None else end for end in of_side], np.int64)
            for of_side in zip(*ends, strict=True)
        ]

    @cached_property
    def mixed(self) -> Ints:
        """The bits by which the number of each query changes a hash."""
        return np.array([mixed_bits(number) for number in self.cohort.numbers.tolist()], np.int64)

    @cached_property
    def slots(self) -> np.ndarray:
        """The slot of each query's rows without a key."""
        return np.array([join.spec.slot for join in self.joins], np.int16)


_known: Final[MadeOnce[_Joins]] = MadeOnce(64)


@dataclass(slots=True)
class JoinRows:
    """The changes of both sides of joins of a family."""

    joins: _Joins
    tables: tuple[list[pa.Table], ...] = field(init=False)
    rows_in: Ints = field(init=False)
    """The rows that each query got."""
    kept: Ints = field(init=False)
    """The rows that each query stores."""
    alone: EachAlone = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.joins.joins)
        self.tables = tuple([] for _ in self.joins.sides)
        self.rows_in, self.kept = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.alone = EachAlone(self.joins.cohort)

    @staticmethod
    def of(queries: tuple[Operator, ...]) -> JoinRows:
        """The scan of these joins, which read the same source streams."""
        return JoinRows(_known.of(queries, lambda: _Joins.of(queries)))

    @property
    def representative(self) -> str:
        """The first query's id."""
        return self.joins.cohort.queries[0].id

    def add(self, batch: Batch) -> None:
        """Add rows of one input: for the queries whose numbers they have, or for all."""
        if not batch.rows:
            return
        index = self.joins.side_of[input_number(batch)]
        if QUERY_NUMBER in batch.columns:
            places = np.searchsorted(self.joins.cohort.numbers, numbers_of(batch))
            self.rows_in += np.bincount(places, minlength=len(self.rows_in))
            for rows in self._passing(batch, places, index):
                self._take(batch.take(rows), places[rows], index)
            return
        self.rows_in += batch.rows
        for part in batch.parts(_ROWS_AT_ONCE) if batch.rows > _ROWS_AT_ONCE else (batch,):
            for rows, places in self._selecting(part, index):
                self._take(part.take(rows), places, index)

    def _selecting(self, batch: Batch, index: int) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of a row and the place of a query that selects it."""
        plan = _plans.of(self.joins.conditions[index])
        matched = selections(plan.index, batch.columns, batch.rows)
        for slot, failed in matched.failed.items():
            places = np.flatnonzero(plan.slots == slot)
            self._reject(batch, np.tile(failed.rows, len(places)), np.repeat(places, len(failed.rows)))
        yield from plan.portions(matched.pairs())

    def _passing(self, batch: Batch, places: Ints, index: int) -> Iterator[Ints]:
        """The rows that pass the condition of their query, those of one condition at a time."""
        plan = _plans.of(self.joins.conditions[index])
        slots = plan.slots[places]
        for predicate, slot in plan.slot_of.items():
            rows = np.flatnonzero(slots == slot)
            if predicate is None or not len(rows):
                yield rows
                continue
            some = batch.take(rows)
            evaluation = Evaluation(some.readable, len(rows))
            keep = evaluation.mask(predicate)
            if evaluation.errors is not None:
                failed = rows[evaluation.errors.mask]
                self._reject(batch, failed, places[failed])
                keep = keep & ~evaluation.errors.mask
            yield rows[keep]

    def _reject(self, batch: Batch, rows: Ints, places: Ints) -> None:
        """Give rows on which an expression fails to the scanners of their queries."""
        self.alone.add(batch.take(rows), places)

    def _take(self, batch: Batch, places: Ints, index: int) -> None:
        """Store rows for the queries in these places, whose conditions they pass."""
        side = self.joins.sides[index]
        marks = side.ends if side.changes is None else side.changes
        if marks is not None:  # some rows only mark when their streams began
            real = flat(batch.columns[marks]).is_valid().to_numpy(zero_copy_only=False)
            batch, places = batch.where(real), places[real]
        evaluation = Evaluation(batch.readable, batch.rows)
        keys = [flat(evaluation.values(key)) for key in side.keys]
        keep = usable(keys, batch.rows)
        if evaluation.errors is not None:
            failed = evaluation.errors.mask
            self._reject(batch, np.flatnonzero(failed), places[failed])
            keep &= ~failed
        if side.time is not None:
            batch = batch.with_columns({side.time: pa.array(batch.at)})
        if not keep.all():
            batch, places = batch.where(keep), places[keep]
            keys = [key.filter(pa.array(keep)) for key in keys]
        if batch.rows:
            self._store(batch, keys, places, index)

    def _store(self, batch: Batch, keys: Sequence[pa.Array], places: Ints, index: int) -> None:
        """Add the changes that rows with these keys are."""
        joins = self.joins
        self.kept += np.bincount(places, minlength=len(self.kept))
        slots, mixed = slots_and_hashes(keys, batch.rows, 0)
        if not keys:
            slots = joins.slots[places]
        numbered = batch.with_columns({QUERY_NUMBER: pa.array(joins.cohort.numbers[places])})
        lookback = joins.lookbacks[index][places]
        changes = joins.together.changes(
            numbered, joins.sides[index], slots, mixed ^ joins.mixed[places], lookback
        )
        self.tables[index].append(changes)

    def finish(self) -> ScanOutput:
        """The deltas of all queries as one table for each side, and what was scanned for those with rows."""
        output, queries = ScanOutput(), self.joins.cohort.queries
        output.add_without_deltas(scanned_of(queries, self.rows_in, self.kept))
        for section, tables in zip(self.joins.together.sections, self.tables, strict=True):
            if tables:
                output.put(f"{state_name(queries[0])}/{section}", in_order(tables))
        self.alone.finish(output, self.rows_in, self.kept)
        return output
