"""Running the operator of panes as the pipeline does, with rows or partials by choice of each group, or with either alone.

*adaptive* begins with partials and chooses after each epoch from what it measured; *chosen* may also choose not to fold any
row; *eager* keeps partials alone, *lazy* rows alone. Epoch by epoch with merged runs. Bytes are those of the state, the same on
every machine; of processor times the least of all rounds counts, step by step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from benchmarks.expected import WrongAnswer
from benchmarks.skewed_groups import Skewed
from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Named
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.aggregates.cell_table import Layout
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.output.output_stage import Finish
from headrace.operators.panes.adaptive_panes import EVERY_ROW, Sizes, panes_pay, should_store_rows
from headrace.operators.panes.panes import Panes
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.schema import BIGINT
from headrace.time import BEGINNING, SECOND, Instant

EPOCHS = 4
"""Epochs a second."""
MERGE = 3
"""Runs are merged when there are more."""

Way = Choice["adaptive", "eager", "lazy", "chosen"]
WAYS: tuple[Way, ...] = ("adaptive", "eager", "lazy")


@dataclass(frozen=True, slots=True)
class WayRun:
    """Peak bytes of state, seconds of all steps and of those that answer, and what the answers add up to."""

    peak: int
    steps: tuple[float, ...]
    answering: tuple[float, ...]
    answers: tuple[int, int]

    @property
    def seconds(self) -> float:
        """Of all epochs."""
        return sum(self.steps)

    @property
    def latency(self) -> float:
        """From punctuation to answer, on average."""
        return sum(self.answering) / len(self.answering)


def operator(window: TimeSlide) -> PaneAggregate:
    """SUM(len) by group."""
    total = NamedAggregate("total", AggregateCall("sum", Column("len", BIGINT), BIGINT))
    shown = (Named("k", Column("k", BIGINT)), Named("total", Column("total", BIGINT)))
    return PaneAggregate(
        id="q1",
        query="q1",
        stream="packets",
        panes=Panes.of(window),
        range=window.range,
        window_alias="packets",
        keys=(Named("k", Column("k", BIGINT)),),
        aggregates=(total,),
        finish=Finish(columns=shown),
    )


@dataclass(slots=True)
class _Running:
    """The operator between epochs."""

    operator: PaneAggregate
    row_layout_states: PaneAggregate
    lazy: PaneAggregate
    way: Way
    layout: Layout
    runs: list[Sections]
    closed: Instant = BEGINNING
    adapts: bool = False
    folds: bool = True
    groups: int = 0
    total: int = 0

    def epoch(self, batch: Batch, punctuation: Instant) -> tuple[float, float]:
        """Fold, advance, merge; the seconds of all and of advancing."""
        started = time.process_time()
        chosen = self._choice()
        scanner = chosen.scanner({})
        scanner.add(batch)
        scanned = scanner.finish()
        scan = time.process_time()
        greatest = int(batch.at.max()) if batch.rows else punctuation
        step = chosen.advance(self.runs, [scanned.deltas], Advance(self.closed, punctuation, greatest))
        advanced = time.process_time()
        self.runs = [*self.runs, step.state] if step.state else self.runs
        self.closed = punctuation
        if len(self.runs) > MERGE:
            self._merge()
        if self.way in ("adaptive", "chosen") and scanned.groups:
            self.adapts = should_store_rows(
                self.layout, scanned.groups, scanned.sparse_groups, does=self.adapts
            )
            if self.way == "chosen":
                sizes = Sizes(
                    scanned.rows_kept,
                    scanned.groups,
                    scanned.sparse_groups,
                    step.emitted_counts.pairs,
                    step.emitted_counts.rows,
                )
                self.folds = not self.adapts or panes_pay(self.operator.panes, sizes, do=self.folds)
        ended = time.process_time()
        if step.results is not None:
            self.groups += step.results.num_rows
            self.total += int(step.results.column("total").to_numpy().sum())
        return ended - started, advanced - scan

    def _choice(self) -> PaneAggregate:
        if self.way == "lazy" or not self.folds:
            return self.lazy
        return self.row_layout_states if self.adapts else self.operator

    def _merge(self) -> None:
        advance = Advance(self.closed, self.closed, self.closed)
        names = sorted({name for run in self.runs for name in run})
        tables = {name: [run[name] for run in self.runs if name in run] for name in names}
        whole = self._choice()
        merged = {
            name: whole.compact(name, some, advance)
            for name, some in whole.before_merge(tables, advance).items()
        }
        nonempty = {name: table for name, table in merged.items() if table.num_rows}
        self.runs = [nonempty] if nonempty else []

    @property
    def bytes(self) -> int:
        """Of the state."""
        return sum(table.nbytes for run in self.runs for table in run.values())


def run(way: Way, window: TimeSlide, periods: Sequence[Skewed], behind: int = 0) -> WayRun:
    """Periods of a second each; punctuation is `behind` seconds late, as with one source behind the others."""
    ours = operator(window)
    running = _Running(
        ours, ours.with_row_layout(), replace(ours, row_layout_limit=EVERY_ROW), way, ours.layouts[0], []
    )
    peak, steps, answering = 0, [], []
    for second, rows in enumerate(periods):
        for number, part in enumerate(np.array_split(rows.group, EPOCHS)):
            ends = number == EPOCHS - 1
            punctuation = (second + ends - behind) * SECOND
            spent, advancing = running.epoch(_batch(part, second), max(punctuation, 0))
            steps.append(spent)
            answering += [advancing] if ends else []
            peak = max(peak, running.bytes)
    running.epoch(_batch(np.empty(0, np.int64), 0), (len(periods) + 60) * SECOND)
    return WayRun(peak, tuple(steps), tuple(answering), (running.groups, running.total))


def _batch(group: np.ndarray, second: int) -> Batch:
    columns = {"k": pa.array(group), "len": pa.array(group % 1000)}
    return Batch(columns, np.full(len(group), second * SECOND), np.arange(len(group)))


def every_way(
    window: TimeSlide, periods: Sequence[Skewed], rounds: int, behind: int = 0, ways: Sequence[Way] = WAYS
) -> dict[Way, WayRun]:
    """Every way in turn; of each step's seconds the least. Raises when two ways answer differently."""
    return least([{way: run(way, window, periods, behind) for way in ways} for _ in range(rounds)])


def least(rounds: Sequence[dict[Way, WayRun]]) -> dict[Way, WayRun]:
    """Of each way and step the least seconds of all rounds. Raises when two ways answer differently."""
    if len({run.answers for runs in rounds for run in runs.values()}) != 1:
        raise WrongAnswer(f"ways of aggregation differ: {rounds[0]}")
    return {
        way: replace(
            first,
            steps=_least([runs[way].steps for runs in rounds]),
            answering=_least([runs[way].answering for runs in rounds]),
        )
        for way, first in rounds[0].items()
    }


def _least(times: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(np.min(np.array(times), axis=0).tolist())
