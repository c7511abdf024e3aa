"""Operator for the inner join of two changing relations: a changelog of pairs from the changelogs of both sides.

A relation is given by its changes: a row is inserted (+1) or retracted (-1) at an instant, and R(t) is the sum of those
up to t. The pairs of two relations at t are then the sum of sign products over all changes of both sides that are not
after t. So each change is joined with each change of the other side once, and the pair is inserted or retracted at the
later of the two instants, whatever the order in which the sides arrive. A time window emits both changes of a row when
the row arrives; windows of rows, and queries, emit theirs as rows of a stream.
State: each side's changes in runs sorted by (key hash, time). New changes search the other side's runs, so the cost
follows them and the pairs they make. Changes below the other side's punctuation are summed per row: what is left of
them is the relation's content, without its history.
Source: the binary join of STREAM over streams of insertions and deletions (Babu 2005, section 2.3), for any cut into
batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import (
    AT,
    QUERY_NUMBER,
    SLOT,
    Advance,
    FamilyStep,
    Operator,
    Sections,
    Step,
)
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import numbered
from headrace.operators.families.family_operator import FamilyOperator
from headrace.operators.families.finishing import by_query
from headrace.operators.families.numbering import mixed_bits, number_of
from headrace.operators.joins.join_side import (
    JoinOperator,
    JoinSpec,
    Side,
    failed_pairs,
    join_lines,
    passing,
    slots_and_hashes,
)
from headrace.operators.joins.probing.stems import taken
from headrace.operators.output.display import SHARES_STATE
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import HASH, in_order, of_one_hash
from headrace.time import BEGINNING, FOREVER

WEIGHT: Final = "__weight"
"""Net multiplicity of a row's change; negative for retractions."""
_REASON: Final = "__reason"


@dataclass(frozen=True, slots=True)
class RelationJoin(FamilyOperator, JoinOperator):
    """Pairs of rows of two sides, as changes.

    In a family's state the hash of a row is that of its key with the bits of the query's number changed, so that a search
    finds rows of one query; hashes of one query are as different as those of the keys.
    """

    spec: JoinSpec
    family: str | None = None
    """The name of the state it shares with queries of its shape."""
    by_query: bool = False
    """Whether its rows are those of several queries, with their numbers."""

    @property
    def shape(self) -> tuple[object, ...] | None:
        """All but the conditions of single sides, how long their rows hold, and where rows without a key are."""
        spec = self.spec
        if spec.emits_first:
            return None
        sides = tuple((side.inputs, side.stored, side.keys, side.changes) for side in spec.sides)
        return spec.stream, sides, spec.condition, spec.shown

    def reading(self, stream: str) -> RelationJoin:
        """The operator over another stream."""
        return replace(self, spec=replace(self.spec, stream=stream))

    def together(self, queries: Sequence[Operator]) -> RelationJoin:  # noqa: ARG002
        """One operator for all queries of its family."""
        return self if self.family is None else replace(self, family=None, by_query=True)

    def for_family(self, sections: Sections) -> Sections:
        """Its rows with its number, in order of their hashes in the family's state."""
        if self.family is None:
            return sections
        return {name: _of_family(table, number_of(self.id)) for name, table in sections.items()}

    @property
    def query_names(self) -> tuple[str, ...]:
        """The name of the column of the query's number, if there is one."""
        return (QUERY_NUMBER,) if self.by_query else ()

    def at_rest(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        """The changes that the rows are; with a time window, the insertion and the retraction of each row."""
        slots, mixed = slots_and_hashes(keys, batch.rows, self.spec.slot)
        lookback = FOREVER if side.lookback is None else side.lookback
        return self.changes(batch, side, slots, mixed, np.full(batch.rows, lookback))

    def changes(self, batch: Batch, side: Side, slots: np.ndarray, mixed: Ints, lookback: Ints) -> pa.Table:
        """The changes that rows of a side are, with these slots and hashes; each holds for its `lookback`, `FOREVER` if it never ends."""
        weight = np.ones(batch.rows, np.int64)
        if side.changes is not None:
            weight = flat(batch.columns[side.changes]).cast(pa.int64()).to_numpy(zero_copy_only=False)
        stored = {name: flat(batch.columns[name]) for name in (*side.stored.names, *self.query_names)}
        head = {SLOT: slots, HASH: mixed, TIME: batch.at, WEIGHT: weight}
        insertions = pa.table({**{name: pa.array(column) for name, column in head.items()}, **stored})
        ends = np.flatnonzero(lookback != FOREVER)
        if not len(ends):
            return insertions
        expired = insertions if len(ends) == batch.rows else insertions.take(pa.array(ends))
        for name, column in ((TIME, batch.at[ends] + lookback[ends] + 1), (WEIGHT, -weight[ends])):
            expired = expired.set_column(expired.column_names.index(name), name, pa.array(column))
        return pa.concat_tables([insertions, expired])

    @property
    def reads_changes(self) -> bool:
        """Its sides are changelogs."""
        return True

    def display(self) -> Iterator[str]:
        """The join condition, the key by which changes are joined, and how long they are stored."""
        yield from join_lines(self, changes=True)
        if self.family is not None:
            yield f"  {SHARES_STATE}"

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit the pairs of new changes with stored ones and with each other."""
        new_changes = self.arrived(deltas)
        tables, failed = self.pair_changes(runs, new_changes)
        state = self.new_state(new_changes, advance)
        changelog = [self.changelog(pa.concat_tables(tables))] if tables else []
        changelog += self.began(runs, deltas, state)
        return Step(state, pa.concat_tables(changelog) if changelog else None, failures_of(failed))

    def advance_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> FamilyStep:
        """The same for the changes of all queries, whose pairs are then separated by query."""
        together = self.together(cohort.queries)
        new_changes = together.arrived(deltas)
        tables, failed = together.pair_changes(runs, new_changes)
        state = together.new_state(new_changes, advance)
        pairs = dict(by_query(together.changelog(pa.concat_tables(tables)))) if tables else {}
        failures = {
            number: failures_of([rows])
            for number, rows in (by_query(pa.concat_tables(failed)) if failed else ())
        }
        numbers = zip(cohort.queries, cohort.numbers.tolist(), strict=True)
        return FamilyStep(
            state,
            {query.id: Step({}, pairs.get(number), failures.get(number, ())) for query, number in numbers},
        )

    def pair_changes(
        self, runs: Sequence[Sections], new_changes: Sequence[pa.Table | None]
    ) -> tuple[list[pa.Table], list[pa.Table]]:
        """Changes of pairs that are not made yet, each with its columns, instant and multiplicity; and failed pairs."""
        tables: list[pa.Table] = []
        failing: list[pa.Table] = []
        for left, right in self._encounters(runs, new_changes):
            for left_rows, right_rows in _matches(left, right):
                table, failed = self._changed_pairs(left, right, left_rows, right_rows)
                tables += [table] if table.num_rows else []
                failing += [] if failed is None else [failed]
        return tables, failing

    @property
    def pair_columns(self) -> tuple[str, ...]:
        """The columns of a change of a pair."""
        return self.spec.shown.names[:-1]

    def _encounters(
        self, runs: Sequence[Sections], new_changes: Sequence[pa.Table | None]
    ) -> Iterator[tuple[_Changes, _Changes]]:
        """(left, right) changes not joined yet: at least one of the two is new."""
        left, right = (None if table is None else _Changes.of(table) for table in new_changes)
        for run in runs:
            if left is not None and self.sections[1] in run:
                yield left, _Changes.of(run[self.sections[1]])
            if right is not None and self.sections[0] in run:
                yield _Changes.of(run[self.sections[0]]), right
        if left is not None and right is not None:
            yield left, right

    def _changed_pairs(
        self, left: _Changes, right: _Changes, left_rows: Ints, right_rows: Ints
    ) -> tuple[pa.Table, pa.Table | None]:
        """Pairs of changes: their columns, instant and multiplicity; and pairs on which the condition failed."""
        if self.by_query:
            same = ints(left.table, QUERY_NUMBER)[left_rows] == ints(right.table, QUERY_NUMBER)[right_rows]
            left_rows, right_rows = left_rows[same], right_rows[same]
        at = np.maximum(left.at[left_rows], right.at[right_rows])
        weight = left.weight[left_rows] * right.weight[right_rows]
        left_side, right_side = self.spec.sides
        rows = {
            **taken(left.table, (SLOT, *self.query_names, *left_side.stored.names), left_rows),
            **taken(right.table, right_side.stored.names, right_rows),
        }
        keep, bad, reasons = passing(self.spec.condition, rows, len(at))
        names = (*self.pair_columns, *self.query_names)
        shown = [*(rows[name] for name in names), pa.array(at), pa.array(weight)]
        table = pa.table(shown, names=[*names, AT, WEIGHT])
        failed = None
        if reasons:
            read = [name for name in rows if name != SLOT]
            columns = {**{name: rows[name] for name in read}, AT: pa.array(at), WEIGHT: pa.array(weight)}
            failed = pa.table(columns).take(pa.array(bad)).append_column(_REASON, pa.array(reasons))
        return (table if keep.all() else table.filter(pa.array(keep))), failed

    def changelog(self, pairs: pa.Table) -> pa.Table:
        """The net changes, each row repeated by its multiplicity at the instant."""
        names = (*self.spec.shown.names[:-1], *self.query_names)
        weight = ints(pairs, WEIGHT)
        if (weight < 0).any():
            pairs, weight = _net(pairs, [*names, AT], weight)
        copies = pa.array(np.repeat(np.arange(pairs.num_rows), np.abs(weight)))
        pairs, sign = pairs.take(copies), np.repeat(np.sign(weight), np.abs(weight))
        rows = {name: flat(pairs.column(name)) for name in names}
        table = self.pairs(rows, ints(pairs, AT), pa.array(sign, pa.int8()))
        return table.append_column(QUERY_NUMBER, rows[QUERY_NUMBER]) if self.by_query else table

    def needed(self, rows: pa.Table, index: int, advance: Advance) -> pa.Table:
        """The changes of a side; those below the other side's punctuation are summed per row."""
        bound = self.spec.sides[1 - index].bound(advance)
        if bound == FOREVER:
            return rows.slice(0, 0)
        done = ints(rows, TIME) <= bound
        if not done.any():
            return rows
        settled = rows.filter(pa.array(done))
        names = (*self.query_names, *self.spec.sides[index].stored.names)
        kinds = (HASH, *names)  # the key may be in the hash alone
        held, weight = _net(settled, kinds, ints(settled, WEIGHT))
        for name, values in ((TIME, np.full(held.num_rows, BEGINNING)), (WEIGHT, weight)):
            held = held.set_column(held.column_names.index(name), name, pa.array(values))
        return in_order([held, rows.filter(pa.array(~done))])


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of one side, in order of (hash, time)."""

    table: pa.Table
    hash: Ints
    at: Ints
    weight: Ints

    @staticmethod
    def of(table: pa.Table) -> _Changes:
        """A table in order of (hash, time)."""
        return _Changes(table, *(ints(table, name) for name in (HASH, TIME, WEIGHT)))


def _matches(left: _Changes, right: _Changes) -> Iterator[tuple[Ints, Ints]]:
    """(left row, right row) of one hash; the smaller side searches the larger."""
    if len(left.hash) <= len(right.hash):
        return of_one_hash(left.hash, right.hash)
    return ((left_rows, right_rows) for right_rows, left_rows in of_one_hash(right.hash, left.hash))


def _of_family(table: pa.Table, number: int) -> pa.Table:
    """A query's rows as rows of its family's."""
    mixed = ints(table, HASH) ^ np.int64(mixed_bits(number))
    index = table.column_names.index(HASH)
    return in_order([numbered(table.set_column(index, HASH, pa.array(mixed)), number)])


def failures_of(failing: Sequence[pa.Table]) -> tuple[Rejected, ...]:
    """Pairs on which the condition failed at insertion; failures of retracted pairs cancel out."""
    if not failing:
        return ()
    whole = pa.concat_tables(failing)
    union, weight = _net(whole, [n for n in whole.column_names if n != WEIGHT], ints(whole, WEIGHT))
    inserted = np.repeat(np.arange(union.num_rows), np.maximum(weight, 0))
    reasons = tuple(union.column(_REASON).take(pa.array(inserted)).to_pylist())
    return (failed_pairs(ints(union, AT)[inserted], reasons),) if reasons else ()


def _net(table: pa.Table, names: Sequence[str], weight: Ints) -> tuple[pa.Table, Ints]:
    """One row of each kind with a nonzero total, and its total."""
    groups = group([flat(table.column(name)) for name in names], table.num_rows)
    total = np.zeros(groups.count, np.int64)
    np.add.at(total, groups.codes, weight)
    first = np.empty(groups.count, np.int64)
    first[groups.codes[::-1]] = np.arange(table.num_rows)[::-1]
    nonzero = np.flatnonzero(total)
    return table.take(pa.array(first[nonzero])), total[nonzero]
