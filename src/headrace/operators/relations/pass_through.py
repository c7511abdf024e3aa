"""Operator for SELECT over a bare stream, without a window: rows are emitted when their epoch commits, in any order,
and nothing is stored.

Queries that emit the same values are a family, so that a thousand selections are one pass over pairs of a row and a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import QUERY_NUMBER, Advance, FamilyStep, Operator, Sections, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family_operator import RowFamilyOperator
from headrace.operators.families.finishing import emit_by_query
from headrace.operators.output.changelog import Emitted
from headrace.operators.output.display import SHARES_STATE
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.output.row_operator import RowOperator
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.rows.row_state import ROWS, Held, RowLayout, hold
from headrace.time import Duration

_SHARES: Final = "is scanned and emitted with queries that differ only in conditions and columns"


@dataclass(frozen=True, slots=True)
class Passing(RowFamilyOperator, RowOperator):
    """`Project(Filter(Join(...)))` of a bare stream, and ISTREAM of it: `finish` has neither limit nor distinct."""

    id: str
    query: str
    stream: str
    rows: RowLayout
    finish: Finish
    relations: tuple[str, ...] = ()
    rule: str = ""
    family: str | None = None
    """The name that its rows have among those of queries of its shape."""

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal values of each row."""
        return self.stream, self.rows.shape

    def together(self, queries: Sequence[Operator]) -> Passing:  # noqa: ARG002
        """One operator for all queries of its family."""
        return self if self.family is None else _together.of((self,), self._of_all)

    def _of_all(self) -> Passing:
        return replace(self, family=None, rows=replace(self.rows, by_query=True))

    @property
    def longest_stored(self) -> Duration:
        """0: a row is emitted in the epoch that reads it."""
        return 0

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """The steps of its rows."""
        return self.rows.routing_steps

    @property
    def title(self) -> str:
        """Rows as they are."""
        return "rows as they are"

    def display(self) -> Iterator[str]:
        """As other operators, but for what it shares: nothing is stored."""
        for line in RowOperator.display(self):
            yield line.replace(SHARES_STATE, _SHARES)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:  # noqa: ARG002
        """This epoch's rows, each at its event time."""
        arrived = self.arrived(deltas)
        return Step({}, *self.emitted_rows(self.finish, arrived)) if arrived is not None else Step()

    def advance_family(
        self,
        cohort: Cohort,
        runs: Sequence[Sections],  # noqa: ARG002
        deltas: Sequence[Sections],
        advance: Advance,  # noqa: ARG002
    ) -> FamilyStep:
        """The same for the rows of all queries, emitted by query."""
        together = self.together(cohort.queries)
        arrived = together.arrived(deltas)
        if arrived is None:
            return FamilyStep({}, dict.fromkeys((query.id for query in cohort.queries), Step()))

        def emitted(plan: Finish, rows: Ints) -> Emitted:
            return together.emitted_rows(plan, arrived if len(rows) == arrived.rows else arrived.take(rows))

        return FamilyStep({}, emit_by_query(cohort, ints(arrived.table, QUERY_NUMBER), emitted))

    def arrived(self, deltas: Sequence[Sections]) -> Held | None:
        """The rows of an epoch; None without any, the common case with thousands of queries."""
        tables = [delta[ROWS] for delta in deltas if ROWS in delta]
        return hold(self.rows, tables) if any(table.num_rows for table in tables) else None

    def emitted_rows(self, plan: Finish, arrived: Held) -> Emitted:
        """What a plan emits of rows."""
        columns = {name: arrived.column(name) for name in (*self.rows.names, *self.rows.query_names)}
        return finish(plan, columns, np.zeros(arrived.rows, np.int64), arrived.at)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:  # noqa: ARG002
        """An empty table: nothing is stored."""
        return self.rows.schema().empty_table()


_together: Final[MadeOnce[Passing]] = MadeOnce(256)
"""By the first operator of a family that one for all its queries, which each epoch asks for twice."""
