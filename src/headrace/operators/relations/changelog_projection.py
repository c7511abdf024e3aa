"""Row-by-row SELECT over a changelog: each change is projected, and emitted changes are not stored.

Insertions and retractions of equal rows at one instant cancel out. Only changes at or above punctuation are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.operators.base.operator import Advance, Sections, Step
from headrace.operators.output.changelog import EmitMode, Emitted, emit_changes
from headrace.operators.output.output_stage import Finish
from headrace.operators.output.row_operator import RowOperator
from headrace.operators.relations.instant_rows import span_of
from headrace.operators.rows.row_state import ROWS, Held, RowLayout, hold


@dataclass(frozen=True, slots=True)
class ChangingRows(RowOperator):
    """`Finish(Windowed(Changing))` of one query without LIMIT or DISTINCT. The first stored value is the change."""

    id: str
    query: str
    stream: str
    rows: RowLayout
    finish: Finish
    emit_mode: EmitMode
    relations: tuple[str, ...] = ()
    rule: str = ""

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit the changes at the instants below punctuation; store the others."""
        span = span_of(advance, self.emit_mode)
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        waiting = arrived.where(arrived.at >= span.limit)
        state = {ROWS: waiting.table} if waiting.rows else {}
        held = hold(self.rows, [*(run[ROWS] for run in runs if ROWS in run), arrived.table])
        due = held.where(span.holds(held.at))
        if not due.rows:
            return Step(state)
        results, rejected = self._emitted_rows(due)
        return Step(state, results, rejected)

    def _emitted_rows(self, due: Held) -> Emitted:
        columns = {name: due.column(name) for name in self.rows.names}
        signs = columns[self.rows.names[0]].cast(pa.int64()).to_numpy(zero_copy_only=False)
        return emit_changes(self.finish, columns, due.at, signs, self.emit_mode)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:  # noqa: ARG002
        """Only changes that are not emitted yet."""
        held = hold(self.rows, tables)
        return held.where(held.at >= advance.emitted_to).table
