"""Operator for SELECT over a changelog, row by row: each insertion or retraction is projected, and emitted when
punctuation passes it.

Insertions and retractions of equal rows at one instant cancel out. Only changes at or above punctuation are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.due import waiting_settle
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import QUERY_NUMBER, Advance, FamilyStep, Operator, Sections, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family_operator import RowFamilyOperator
from headrace.operators.families.finishing import emit_by_query
from headrace.operators.output.changelog import EmitMode, Emitted, emit_changes
from headrace.operators.output.output_stage import Finish
from headrace.operators.output.row_operator import RowOperator
from headrace.operators.relations.instant_rows import span_of
from headrace.operators.rows.row_state import ROWS, TIME, Held, RowLayout, hold
from headrace.time import Instant


@dataclass(frozen=True, slots=True)
class ChangingRows(RowFamilyOperator, RowOperator):
    """`Finish(Windowed(Changing))` of one query without LIMIT or DISTINCT. The first stored value is the change."""

    id: str
    query: str
    stream: str
    rows: RowLayout
    finish: Finish
    emit_mode: EmitMode
    relations: tuple[str, ...] = ()
    rule: str = ""
    family: str | None = None
    """The name of the state it shares with queries of its shape."""

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal stored values."""
        return self.stream, self.rows.shape, self.emit_mode

    def together(self, queries: Sequence[Operator]) -> ChangingRows:  # noqa: ARG002
        """One operator for all queries of its family."""
        return (
            self
            if self.family is None
            else replace(self, family=None, rows=replace(self.rows, by_query=True))
        )

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit the changes at the instants below punctuation; store the others."""
        state, due = self.due(runs, deltas, advance)
        return Step(state, *self.emitted_rows(self.finish, due)) if due.rows else Step(state)

    def advance_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> FamilyStep:
        """The same for the changes of all queries, emitted by query."""
        together = self.together(cohort.queries)
        state, due = together.due(runs, deltas, advance)
        numbers = ints(due.table, QUERY_NUMBER)

        def emitted(plan: Finish, rows: Ints) -> Emitted:
            return together.emitted_rows(plan, due.take(rows))

        return FamilyStep(state, emit_by_query(cohort, numbers, emitted))

    def due(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> tuple[Sections, Held]:
        """New state, and the changes below punctuation."""
        span = span_of(advance, self.emit_mode)
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        waiting = arrived.where(arrived.at >= span.limit)
        state = {ROWS: waiting.table} if waiting.rows else {}
        held = hold(self.rows, [*(run[ROWS] for run in runs if ROWS in run), arrived.table])
        return state, held.where(span.holds(held.at))

    def emitted_rows(self, plan: Finish, due: Held) -> Emitted:
        """What a plan emits of changes."""
        columns = {name: due.column(name) for name in (*self.rows.names, *self.rows.query_names)}
        signs = columns[self.rows.names[0]].cast(pa.int64()).to_numpy(zero_copy_only=False)
        return emit_changes(plan, columns, due.at, signs, self.emit_mode)

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first change that waits is below punctuation."""
        return waiting_settle(runs, ROWS, TIME, advance.punctuation)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:  # noqa: ARG002
        """Only changes that are not emitted yet."""
        held = hold(self.rows, tables)
        return held.where(held.at >= advance.emitted_to).table
