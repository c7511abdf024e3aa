"""A query whose window is applied when somebody asks: what is kept of it between two questions?

Nothing (`none`): the archive has the rows, and INVOKE tests them. Or which rows pass its conditions (`partial`): bitmaps
over the archive, made as rows come, so that INVOKE tests nothing and only fetches. The third way, the answer of the present
window itself (`complete`), is that of the operators which tell every change; see `instant_aggregate`.
Source: PSoup (Chandrasekaran, Franklin 2002), section 4.1: NoMat, PSoup-P, PSoup-C.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression, columns_of
from headrace.algebra.expressions.series import AT, POSITION
from headrace.algebra.query import Ago
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
from headrace.operators.families.family import QueryRowCounts, number_of
from headrace.operators.on_demand.row_bitmaps import Containers, united
from headrace.operators.on_demand.shared_selections import BITS, SharedSelections
from headrace.operators.output.display import keys, steps_up
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.output.regrouping import Regroup
from headrace.operators.rows.row_pipeline import RowFilter, RowPipeline, columns_read
from headrace.time import BEGINNING, Duration, Instant, render_duration, render_instant

ALWAYS: Final[Instant] = -(2**62)
"""The BEGIN of a window without one: before all rows, and far enough from the least number that a length fits."""


@dataclass(frozen=True, slots=True)
class WindowClause:
    """`BEGIN b END e`, beside `[RANGE r]` where there is one; both ends included (PSoup's WindowsTable has one a query)."""

    begin: Instant | Ago
    end: Instant | Ago
    range: Duration | None = None

    def at(self, now: Instant) -> tuple[Instant, Instant]:
        """The ends when the clock says `now`; a window may be empty, or lie wholly in the future.

        >>> WindowClause(Ago(10), Ago(5)).at(20)
        (10, 15)
        """
        begin, end = (
            now - each.duration if isinstance(each, Ago) else each for each in (self.begin, self.end)
        )
        return begin if self.range is None else max(begin, now - self.range), min(end, now)

    @property
    def kind(self) -> str:
        """What PSoup calls it: a snapshot stands still, a landmark grows, a sliding window moves."""
        moving = isinstance(self.begin, Ago) or self.range is not None, isinstance(self.end, Ago)
        return {
            (False, False): "snapshot",
            (False, True): "landmark",
            (True, True): "sliding",
            (True, False): "shrinking",
        }[moving]

    def in_words(self) -> str:
        """`NOW - 1 HOUR to NOW (sliding)`."""
        begin, end = (_in_words(each) for each in (self.begin, self.end))
        reach = "" if self.range is None else f", of the last {render_duration(self.range)}"
        return f"{begin} to {end}{reach} ({self.kind})"

    def expiry_bound(self, now: Instant) -> Instant:
        """No window from `now` on holds a row before this."""
        return now if now == BEGINNING else max(self.at(now)[0], BEGINNING)


def _in_words(bound: Instant | Ago) -> str:
    if isinstance(bound, Ago):
        return f"NOW - {render_duration(bound.duration)}" if bound.duration else "NOW"
    return render_instant(BEGINNING if bound == ALWAYS else bound)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is made of the rows of a window: values of `kept`, by the names `c0`, `c1`, ..., then all that `finish` says.

    `whole`: there is one row whatever the window holds (aggregates without GROUP BY).
    """

    expressions: tuple[Expression, ...]
    finish: Finish
    is_global: bool

    def of(self, batch: Batch, now: Instant) -> tuple[pa.Table, tuple[Rejected, ...]]:
        """The answer over rows that are all in the window, as of `now`; rows on which it failed."""
        pipeline = RowPipeline.of((), {})
        batch, values = pipeline.evaluate(batch, self.expressions)
        columns = {f"c{place}": value for place, value in enumerate(values)}
        plan, at, windows = self.finish, np.full(batch.rows, now), np.zeros(batch.rows, np.int64)
        if self.is_global and plan.regroup is not None and not batch.rows:
            plan, columns, at, windows = _of_nothing(plan, plan.regroup, columns, now)
        table, rejected = finish(plan, columns, windows, at)
        return table, (*pipeline.rejected, *rejected)


def _of_nothing(
    plan: Finish, regroup: Regroup, columns: Mapping[str, pa.Array], now: Instant
) -> tuple[Finish, dict[str, pa.Array], np.ndarray, np.ndarray]:
    """The aggregates of no rows, and what is left to do."""
    groups = regroup.of_nothing(columns)
    return replace(plan, regroup=None), groups, np.array([now]), np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Selection(BaseOperator):
    """`Finish([Aggregate](Bounds(Filter(stream))))` of one query, with what is kept of it (`materialize`).

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
        """What orders its answers."""
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
        """The stream's columns that are read as rows come: those of conditions, none where nothing is kept."""
        return columns_read(self.steps) if self.materialize == "partial" else frozenset()

    @property
    def fetched(self) -> frozenset[str]:
        """The stream's columns that answers read; a row's time and place come with every row."""
        return frozenset().union(*(columns_of(each) for each in self.answer.expressions)) - {AT, POSITION}

    def display(self) -> Iterator[str]:
        """What is stored, which window is applied, and what an answer reads."""
        kept = {
            "none": "nothing is stored: INVOKE tests the rows of the window",
            "partial": "bitmaps of the rows that pass: INVOKE fetches those of the window, and tests none",
        }[self.materialize]
        yield f"materialize {self.materialize} ({self.why}): {kept}"
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
        """What came is kept; time changes nothing that is stored."""
        came = united([delta[BITS] for delta in deltas if BITS in delta])
        return Step({BITS: came} if came.num_rows else {})

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Containers united, without those that no later window reaches."""
        return SelectionFamily(((self, advance),)).compact(section, tables, advance)


def materializes_none(operator: Operator) -> bool:
    """True for a query of which nothing is kept: it need not read the past before it can answer."""
    asked = operator.on_request
    return asked is not None and asked.materialize == "none"


def arrived(deltas: Sequence[Sections], queries: Sequence[Operator]) -> tuple[pa.Table, dict[str, int]]:
    """What goes to the state of what came, and how many containers of it are each member's."""
    came = united([delta[BITS] for delta in deltas if BITS in delta])
    numbers = np.array([number_of(each.id) for each in queries], np.int64)
    order = np.argsort(numbers)
    counts = QueryRowCounts.of(came).among(numbers[order])
    return came, {queries[place].id: int(count) for place, count in zip(order.tolist(), counts, strict=True)}


@dataclass(slots=True)
class SelectionScanner:
    """One selection by itself."""

    shared: SharedSelections

    def add(self, batch: Batch) -> None:
        """Take in a batch of accepted rows."""
        self.shared.add(batch)

    def finish(self) -> Scanned:
        """The deltas."""
        ((_, seen),) = self.shared.of_each()
        tables = [table for table in self.shared.tables if table.num_rows]
        return replace(seen, deltas={BITS: united(tables)} if tables else {})


@dataclass(frozen=True, slots=True)
class SelectionFamily(StateOwner):
    """All selections over one stream, each with the turn by which it may forget."""

    queries: tuple[tuple[Selection, Advance], ...]

    @staticmethod
    def owner(
        operators: Sequence[Operator], after: Callable[[Operator], Advance]
    ) -> tuple[SelectionFamily, Advance]:
        """The owner of their state; `after` says by which turn each may forget."""
        queries = tuple((asked, after(each)) for each in operators if (asked := each.on_request) is not None)
        return SelectionFamily(queries), queries[0][1]

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Any = None) -> pa.Table:  # noqa: ARG002
        """Containers of members, united, without those that no later window of theirs reaches."""
        whole = pa.concat_tables(tables)
        if not whole.num_rows:
            return whole
        numbers = np.array([number_of(member.id) for member, _ in self.queries], np.int64)
        passed = np.array(
            [
                member.window.expiry_bound(min(at.emitted_to, at.max_event_time))
                for member, at in self.queries
            ],
            np.int64,
        )
        order = np.argsort(numbers)
        numbers, passed = numbers[order], passed[order]
        held = Containers.of(whole.combine_chunks())
        place = np.minimum(np.searchsorted(numbers, held.owner), len(numbers) - 1)
        keep = (numbers[place] == held.owner) & (held.until >= passed[place])
        return united([held.table if keep.all() else held.table.filter(pa.array(keep))])
