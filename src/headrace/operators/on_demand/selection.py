"""Operator for selections, which are queries with BEGIN … END whose window is applied on INVOKE: the window at an
instant, what is stored between two INVOKEs and when it expires, and the answer over the rows of a window.

`none`: nothing; the archive has the rows, and INVOKE tests them. `partial`: which rows pass the conditions, as bitmaps
over the archive, so that INVOKE tests nothing and only fetches. The third way, the answer of the present window itself
(`complete`), is that of the operators that emit every change; see `instant_aggregate`.
Source: PSoup (Chandrasekaran, Franklin 2002), section 4.1: NoMat, PSoup-P, PSoup-C.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression, columns_of
from headrace.algebra.expressions.series import AT, POSITION
from headrace.algebra.query import Ago
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.operator import (
    Advance,
    BaseOperator,
    Operator,
    Scanned,
    Sections,
    StateOwner,
    Step,
)
from headrace.operators.families.family import QueryRowCounts
from headrace.operators.families.numbering import number_of
from headrace.operators.on_demand.row_bitmaps import Containers, united
from headrace.operators.on_demand.shared_selections import BITS, SharedSelections
from headrace.operators.output.display import keys, steps_up
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.output.regrouping import Regroup
from headrace.operators.rows.row_pipeline import RowFilter, RowPipeline, columns_read
from headrace.time import BEGINNING, FOREVER, Duration, Instant, render_duration, render_instant

ALWAYS: Final[Instant] = -(2**62)
"""The BEGIN of a window without one: before all rows, and far enough from the least integer to subtract a length."""


@dataclass(frozen=True, slots=True)
class WindowClause:
    """`BEGIN b END e`, with `[RANGE r]` if there is one; both ends included (PSoup's WindowsTable has one per query)."""

    begin: Instant | Ago
    end: Instant | Ago
    range: Duration | None = None

    def at(self, now: Instant) -> tuple[Instant, Instant]:
        """The ends of the window at the instant `now`; a window may be empty, or wholly in the future.

        >>> WindowClause(Ago(10), Ago(5)).at(20)
        (10, 15)
        """
        begin, end = (
            now - bound.duration if isinstance(bound, Ago) else bound for bound in (self.begin, self.end)
        )
        return begin if self.range is None else max(begin, now - self.range), min(end, now)

    @property
    def kind(self) -> str:
        """PSoup's name for it: a snapshot is fixed, a landmark grows, a sliding window moves."""
        moving = isinstance(self.begin, Ago) or self.range is not None, isinstance(self.end, Ago)
        return {
            (False, False): "snapshot",
            (False, True): "landmark",
            (True, True): "sliding",
            (True, False): "shrinking",
        }[moving]

    def in_words(self) -> str:
        """`NOW - 1 HOUR to NOW (sliding)`."""
        begin, end = (_in_words(bound) for bound in (self.begin, self.end))
        length = "" if self.range is None else f", of the last {render_duration(self.range)}"
        return f"{begin} to {end}{length} ({self.kind})"

    def expiry_bound(self, now: Instant) -> Instant:
        """No window from `now` on holds a row before this instant."""
        return now if now == BEGINNING else max(self.at(now)[0], BEGINNING)


def _in_words(bound: Instant | Ago) -> str:
    if isinstance(bound, Ago):
        return f"NOW - {render_duration(bound.duration)}" if bound.duration else "NOW"
    return render_instant(BEGINNING if bound == ALWAYS else bound)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer over the rows of a window: values of `expressions`, named `c0`, `c1`, ..., then the steps of `finish`.

    `is_global`: there is one row whatever the window holds (aggregates without GROUP BY).
    """

    expressions: tuple[Expression, ...]
    finish: Finish
    is_global: bool

    def of(self, batch: Batch, now: Instant) -> tuple[pa.Table, tuple[Rejected, ...]]:
        """The answer over rows that are all in the window, as of `now`; and rows on which it failed."""
        pipeline = RowPipeline.of((), {})
        batch, values = pipeline.evaluate(batch, self.expressions)
        columns = {f"c{index}": value for index, value in enumerate(values)}
        plan, at, windows = self.finish, np.full(batch.rows, now), np.zeros(batch.rows, np.int64)
        if self.is_global and plan.regroup is not None and not batch.rows:
            plan, columns, at, windows = _of_nothing(plan, plan.regroup, columns, now)
        table, rejected = finish(plan, columns, windows, at)
        return table, (*pipeline.rejected, *rejected)


def _of_nothing(
    plan: Finish, regroup: Regroup, columns: Mapping[str, pa.Array], now: Instant
) -> tuple[Finish, dict[str, pa.Array], np.ndarray, np.ndarray]:
    """The aggregates of no rows, and the remaining steps."""
    groups = regroup.of_nothing(columns)
    return replace(plan, regroup=None), groups, np.array([now]), np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Selection(BaseOperator):
    """`Finish([Aggregate](Bounds(Filter(stream))))` of one query; `materialize` is what it stores.

    `steps` are its conditions. `fetched` are the stream's columns that an answer reads; conditions read others.
    """

    id: str
    query: str
    stream: str
    materialize: Choice["none", "partial"]
    why: str
    window: WindowClause
    steps: tuple[RowFilter, ...]
    answer: Answer
    relations: tuple[str, ...] = ()

    @property
    def finishing(self) -> Finish:
        """The steps above its window, which order its answers."""
        return self.answer.finish

    @property
    def row_steps(self) -> tuple[RowFilter, ...]:
        """Its conditions."""
        return self.steps

    @property
    def on_request(self) -> Selection:
        """Itself."""
        return self

    def owners(
        self, queries: Sequence[Operator], advance_of: Callable[[Operator], Advance]
    ) -> Sequence[tuple[StateOwner, Advance]]:
        """All selections over the stream as one."""
        return [SelectionFamily.owner(queries, advance_of)]

    @property
    def family_key(self) -> str:
        """The name of the state that all selections over one stream share."""
        return f"s{hashlib.blake2b(self.stream.encode(), digest_size=9).hexdigest()}"

    @property
    def columns(self) -> frozenset[str]:
        """The stream's columns that are read on arrival: those of conditions, or none if nothing is stored."""
        return columns_read(self.steps) if self.materialize == "partial" else frozenset()

    @property
    def fetched(self) -> frozenset[str]:
        """The stream's columns that answers read; event time and position are part of every row."""
        return frozenset().union(*(columns_of(expression) for expression in self.answer.expressions)) - {
            AT,
            POSITION,
        }

    def display(self) -> Iterator[str]:
        """What is stored, which window is applied, and what an answer reads."""
        stored = {
            "none": "nothing is stored: INVOKE tests the rows of the window",
            "partial": "bitmaps of the rows that pass: INVOKE fetches those of the window, and tests none",
        }[self.materialize]
        yield f"materialize {self.materialize} ({self.why}): {stored}"
        yield f"window applied when asked: {self.window.in_words()}"
        regroup = self.answer.finish.regroup
        if regroup is not None:
            calls = ", ".join(item.call.function for item in regroup.aggregates)
            yield f"{calls} when asked, group by {keys(regroup.keys)}"
        yield f"an answer reads {', '.join(sorted(self.fetched)) or 'no columns'}"
        yield from steps_up(self.steps)

    def scanner(self, relations: Mapping[str, pa.Table]) -> SelectionScanner:  # noqa: ARG002
        """Makes containers of a task's rows."""
        return SelectionScanner(SharedSelections.of((self,)))

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:  # noqa: ARG002
        """Store the new containers; punctuation changes nothing."""
        containers = united([delta[BITS] for delta in deltas if BITS in delta])
        return Step({BITS: containers} if containers.num_rows else {})

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:  # noqa: ARG002
        """Never: it emits nothing."""
        return FOREVER

    @property
    def expires_unvisited(self) -> bool:
        """Its window moves on with the stream."""
        return True

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Containers united, without those that no later window reaches."""
        return SelectionFamily(((self, advance),)).compact(section, tables, advance)


def materializes_none(operator: Operator) -> bool:
    """Whether the query stores nothing: it needs no backfill before it can answer."""
    selection = operator.on_request
    return selection is not None and selection.materialize == "none"


def arrived(deltas: Sequence[Sections], queries: Sequence[Operator]) -> tuple[pa.Table, dict[str, int]]:
    """The new containers, and how many of them belong to each query."""
    containers = united([delta[BITS] for delta in deltas if BITS in delta])
    numbers = np.array([number_of(query.id) for query in queries], np.int64)
    order = np.argsort(numbers)
    counts = QueryRowCounts.of(containers).among(numbers[order])
    return containers, {
        queries[index].id: int(count) for index, count in zip(order.tolist(), counts, strict=True)
    }


@dataclass(slots=True)
class SelectionScanner:
    """The scanner of a single selection."""

    shared: SharedSelections

    def add(self, batch: Batch) -> None:
        """Add a batch of accepted rows."""
        self.shared.add(batch)

    def finish(self) -> Scanned:
        """The deltas."""
        ((_, seen),) = self.shared.of_each()
        tables = [table for table in self.shared.tables if table.num_rows]
        return replace(seen, deltas={BITS: united(tables)} if tables else {})


@dataclass(frozen=True, slots=True)
class SelectionFamily(StateOwner):
    """All selections over one stream, each with the advance by which its state expires."""

    queries: tuple[tuple[Selection, Advance], ...]

    @staticmethod
    def owner(
        operators: Sequence[Operator], after: Callable[[Operator], Advance]
    ) -> tuple[SelectionFamily, Advance]:
        """The owner of their state; `after` gives the advance by which each expires."""
        queries = tuple(
            (selection, after(operator))
            for operator in operators
            if (selection := operator.on_request) is not None
        )
        return SelectionFamily(queries), queries[0][1]

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Any = None) -> pa.Table:  # noqa: ARG002
        """Containers of the queries, united, without those that no later window of theirs reaches."""
        whole = pa.concat_tables(tables)
        if not whole.num_rows:
            return whole
        numbers = np.array([number_of(query.id) for query, _ in self.queries], np.int64)
        expiry = np.array(
            [query.window.expiry_bound(min(at.emitted_to, at.max_event_time)) for query, at in self.queries],
            np.int64,
        )
        order = np.argsort(numbers)
        numbers, expiry = numbers[order], expiry[order]
        held = Containers.of(whole.combine_chunks())
        index = np.minimum(np.searchsorted(numbers, held.owner), len(numbers) - 1)
        keep = (numbers[index] == held.owner) & (held.until >= expiry[index])
        return united([held.table if keep.all() else held.table.filter(pa.array(keep))])
