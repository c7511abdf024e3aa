"""Operator for SELECT over a bare stream, without a window: rows are emitted when their epoch commits, in any order,
and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Advance, Sections, Step
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.output.row_operator import RowOperator
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.rows.row_state import ROWS, RowLayout, hold


@dataclass(frozen=True, slots=True)
class Passing(RowOperator):
    """`Project(Filter(Join(...)))` of a bare stream, and ISTREAM of it: `finish` has neither limit nor distinct."""

    id: str
    query: str
    stream: str
    rows: RowLayout
    finish: Finish
    relations: tuple[str, ...] = ()
    rule: str = ""

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """The steps of its rows."""
        return self.rows.routing_steps

    @property
    def title(self) -> str:
        """Rows as they are."""
        return "rows as they are"

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:  # noqa: ARG002
        """This epoch's rows, each at its event time."""
        tables = [delta[ROWS] for delta in deltas if ROWS in delta]
        if not tables:  # the common case with thousands of queries
            return Step()
        held = hold(self.rows, tables)
        if not held.rows:
            return Step()
        columns = {name: held.column(name) for name in self.rows.names}
        results, rejected = finish(self.finish, columns, np.zeros(held.rows, np.int64), held.at)
        return Step({}, results, rejected)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:  # noqa: ARG002
        """An empty table: nothing is stored."""
        return self.rows.schema().empty_table()
