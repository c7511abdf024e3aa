"""What is it worth to choose for each group between its rows and its partials? AdaptWID with panes beside both fixed choices.

Li, Window Queries over Data Streams (2008): experiments E5 (tumbling windows of a second over five data sets) and E6 (windows of
ten seconds, one source behind the others). The operator of the pipeline runs as it does there, epoch by epoch with merged runs;
*adaptive* begins with partials and chooses after each epoch from what it measured; *chosen*, which `crossover` measures, may
also choose not to fold any row. Bytes are those of its state, the same on
every machine; of processor times the least of all rounds counts, step by step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from benchmarks.baselines.adaptive_wid import AdaptiveWid, Buffered
from benchmarks.expected import WrongAnswer
from benchmarks.plot import Bar
from benchmarks.report import Report
from benchmarks.skewed_groups import SMALL_SHARES, Skewed, skewed
from benchmarks.thresholds import Ratio
from headrace.algebra.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions import Column, Named
from headrace.algebra.windows import TimeSlide
from headrace.operators.adaptive_panes import EVERY_ROW, Sizes, panes_pay, should_adapt
from headrace.operators.batch import Batch
from headrace.operators.finish import Finish
from headrace.operators.operator import Sections, Turn
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.pane_store import Layout
from headrace.operators.panes import Panes
from headrace.operators.partials import Count, Sum
from headrace.schema import BIGINT
from headrace.time import BEGINNING, SECOND, Instant

_TUMBLING, _SLIDING = TimeSlide(SECOND, SECOND), TimeSlide(10 * SECOND, SECOND)
_MOST_ROWS, _SECONDS, _EPOCHS, _MERGE = 1_000_000, 14, 4, 3
_FEWER = 10
"""DS3 again at a tenth of the rows, and windows of ten seconds at a twenty-fifth."""
_BEHIND = (0, 5, 10)

Way = Choice["adaptive", "eager", "lazy", "chosen"]
WAYS: tuple[Way, ...] = ("adaptive", "eager", "lazy")


@dataclass(frozen=True, slots=True)
class Found:
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
    adapting: PaneAggregate
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
        step = chosen.advance(self.runs, [scanned.deltas], Turn(self.closed, punctuation, greatest))
        advanced = time.process_time()
        self.runs = [*self.runs, step.state] if step.state else self.runs
        self.closed = punctuation
        if len(self.runs) > _MERGE:
            self._merge()
        if self.way in ("adaptive", "chosen") and scanned.groups:
            self.adapts = should_adapt(self.layout, scanned.groups, scanned.few, does=self.adapts)
            if self.way == "chosen":
                sizes = Sizes(scanned.rows_kept, scanned.groups, scanned.few, step.told.pairs, step.told.rows)
                self.folds = not self.adapts or panes_pay(self.operator.panes, sizes, do=self.folds)
        ended = time.process_time()
        if step.results is not None:
            self.groups += step.results.num_rows
            self.total += int(step.results.column("total").to_numpy().sum())
        return ended - started, advanced - scan

    def _choice(self) -> PaneAggregate:
        if self.way == "lazy" or not self.folds:
            return self.lazy
        return self.adapting if self.adapts else self.operator

    def _merge(self) -> None:
        turn = Turn(self.closed, self.closed, self.closed)
        names = sorted({name for run in self.runs for name in run})
        tables = {name: [run[name] for run in self.runs if name in run] for name in names}
        whole = self._choice()
        merged = {
            name: whole.compact(name, some, turn) for name, some in whole.before_merge(tables, turn).items()
        }
        kept = {name: table for name, table in merged.items() if table.num_rows}
        self.runs = [kept] if kept else []

    @property
    def bytes(self) -> int:
        """Of the state."""
        return sum(table.nbytes for run in self.runs for table in run.values())


def run(way: Way, window: TimeSlide, periods: Sequence[Skewed], behind: int = 0) -> Found:
    """Periods of a second each; punctuation is `behind` seconds late, as with one source behind the others."""
    ours = operator(window)
    running = _Running(ours, ours.adapting(), replace(ours, keeps=EVERY_ROW), way, ours.layouts[0], [])
    peak, steps, answering = 0, [], []
    for second, rows in enumerate(periods):
        for number, part in enumerate(np.array_split(rows.group, _EPOCHS)):
            ends = number == _EPOCHS - 1
            punctuation = (second + ends - behind) * SECOND
            spent, advancing = running.epoch(_batch(part, second), max(punctuation, 0))
            steps.append(spent)
            answering += [advancing] if ends else []
            peak = max(peak, running.bytes)
    running.epoch(_batch(np.empty(0, np.int64), 0), (len(periods) + 60) * SECOND)
    return Found(peak, tuple(steps), tuple(answering), (running.groups, running.total))


def _batch(group: np.ndarray, second: int) -> Batch:
    columns = {"k": pa.array(group), "len": pa.array(group % 1000)}
    return Batch(columns, np.full(len(group), second * SECOND), np.arange(len(group)))


def every_way(
    window: TimeSlide, periods: Sequence[Skewed], rounds: int, behind: int = 0, ways: Sequence[Way] = WAYS
) -> dict[Way, Found]:
    """Every way in turn; of each step's seconds the least. Raises when two ways answer differently."""
    runs = [{way: run(way, window, periods, behind) for way in ways} for _ in range(rounds)]
    if len({found.answers for each in runs for found in each.values()}) != 1:
        raise WrongAnswer(f"ways of aggregation differ: {runs[0]}")
    return {
        way: replace(
            first,
            steps=_least([each[way].steps for each in runs]),
            answering=_least([each[way].answering for each in runs]),
        )
        for way, first in runs[0].items()
    }


def _least(times: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(np.min(np.array(times), axis=0).tolist())


def without_panes(window: TimeSlide, periods: Sequence[Skewed], behind: int) -> int:
    """Peak bytes of AdaptWID as it stands in the thesis: a row or a partial for each of its windows."""
    kernel = AdaptiveWid(window, (Count(), Sum(1, integer=True)))
    groups, peak = kernel.start(), 0
    for second, rows in enumerate(periods):
        for part in np.array_split(rows.group, _EPOCHS):
            groups = kernel.add(groups, Buffered(part, np.full(len(part), second * SECOND), part % 1000))
            peak = max(peak, kernel.state_bytes(groups))
        groups, _ = kernel.close(groups, (second + 1 - behind) * SECOND)
    return peak


def adapt(rows: int, rounds: int) -> Report:
    """Five data sets in windows of a second, and one in windows of ten with punctuation 0, 5 and 10 s behind."""
    rows = min(rows, _MOST_ROWS)
    table: list[dict[str, Any]] = []
    drawn: list[Bar] = []
    ratios: list[Ratio] = []
    gains = []
    for number, share in enumerate(SMALL_SHARES, start=1):
        periods = [skewed(rows, share, seed=100 * number + second) for second in range(4)]
        found = every_way(_TUMBLING, periods, 5 * rounds)
        _tell(f"DS{number}", found, table, drawn)
        ratios += _bars(f"DS{number}", found, 0.999 if number > 1 else 1.05)
        gains.append(1 - ratios[-3].value)
    ratios.append(
        Ratio("least step of the gain from each data set to the next", float(min(np.diff(gains))), 0.0)
    )
    periods = [skewed(rows // _FEWER, SMALL_SHARES[2], seed=300 + second) for second in range(4)]
    _tell(f"DS3, {rows // _FEWER:,} rows/s", every_way(_TUMBLING, periods, 3 * rounds), table, drawn)
    for behind in _BEHIND:
        periods = [skewed(rows // 25, 0.05, seed=900 + second) for second in range(_SECONDS)]
        found = every_way(_SLIDING, periods, 3 * rounds, behind)
        name = f"10 s windows, {behind} s behind"
        _tell(name, found, table, drawn)
        ratios += _bars(name, found, 0.999)[:1]
        alone = without_panes(_SLIDING, periods, behind)
        table.append(
            {
                "data": name,
                "way": "adaptive, without panes",
                "peak_state_kib": round(alone / 1024, 1),
                "ms": "",
                "ms_to_answer": "",
            }
        )
    notes = [
        f"{rows:,} rows a second, {_EPOCHS} epochs a second; windows of ten seconds: a twenty-fifth of that.",
        _FIXED,
        f"Runs are merged when there are more than {_MERGE}; a peak is that of all runs after an epoch.",
        "Without panes: AdaptWID as it stands in the thesis, a row or a partial for each open window of its group, bytes of the numbers alone.",
        "Panes are shared by queries and by all later windows, whose blocks are counted here.",
    ]
    return Report(
        "adapt", "Peak state: rows, partials, or each group's better", table, ratios, drawn, "KiB", notes
    )


def _bars(name: str, found: dict[Way, Found], most: float) -> list[Ratio]:
    """Each metric to the better fixed choice; `most` is the bar of the peak, below 1 where many groups are small."""
    ours, fixed = found["adaptive"], (found["eager"], found["lazy"])

    def to_better(what: str, bound: float) -> Ratio:
        value = getattr(ours, what) / min(getattr(each, what) for each in fixed)
        return Ratio(f"{name}: {_WORDS[what]}, to the better fixed choice", value, bound, True)

    return [to_better("peak", most), to_better("seconds", 1.05), to_better("latency", 1.05)]


_FIXED = (
    "Two forms are two tables: some 0.04 ms more an epoch and 0.1 ms a closing one, however many rows. So the fewer rows an "
    "epoch has, the more of its time that is: DS3 once more, at a tenth of the rows."
)
_WORDS = {"peak": "peak state", "seconds": "time", "latency": "punctuation to answer"}


def _tell(name: str, found: dict[Way, Found], table: list[dict[str, Any]], drawn: list[Bar]) -> None:
    for way, each in found.items():
        table.append(
            {
                "data": name,
                "way": way,
                "peak_state_kib": round(each.peak / 1024, 1),
                "ms": round(1000 * each.seconds, 2),
                "ms_to_answer": round(1000 * each.latency, 2),
            }
        )
        drawn.append(Bar(f"{name} {way}", each.peak / 1024, "ours" if way == "adaptive" else "theirs"))
