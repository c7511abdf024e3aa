"""Experiments E5 and E6: the choice between rows and partials for each group, AdaptWID with panes against both fixed choices.

Li, Window Queries over Data Streams (2008): E5 has tumbling windows of a second over five data sets, E6 windows of ten
seconds and one source behind the others. The operator of the pipeline runs as it does there, in several new processes one
after another (see `adaptive_ways` and `fresh_processes`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.adaptive_ways import EPOCHS, MERGE, Way, WayRun, every_way, least
from benchmarks.baselines.adaptive_wid import AdaptiveWid, Buffered
from benchmarks.charts import Bar
from benchmarks.fresh_processes import in_each
from benchmarks.report import Report
from benchmarks.skewed_groups import SMALL_SHARES, Skewed, skewed
from benchmarks.thresholds import Ratio
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.partials.partial import Count, Sum
from headrace.time import SECOND

_TUMBLING, _SLIDING = TimeSlide(SECOND, SECOND), TimeSlide(10 * SECOND, SECOND)
_MOST_ROWS = 1_000_000
_FEWER = 10
"""DS3 again at a tenth of the rows, and windows of ten seconds at a twenty-fifth."""
_BEHIND = (0, 5, 10)
_ROUNDS = 4
"""Of a process."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """So many seconds of so many rows, `small` the share in groups of one row; and the lag of punctuation."""

    name: str
    rows: int
    small: float
    seed: int
    window: TimeSlide = _TUMBLING
    seconds: int = 4
    behind: int = 0

    def periods(self) -> list[Skewed]:
        """A second each."""
        return [skewed(self.rows, self.small, self.seed + second) for second in range(self.seconds)]


def measured(data: DataSet, rounds: int) -> dict[Way, WayRun]:
    """Every way, in this process."""
    return every_way(data.window, data.periods(), rounds, data.behind)


def without_panes(data: DataSet) -> int:
    """Peak bytes of AdaptWID as the thesis has it: a row or a partial for each of its windows."""
    kernel = AdaptiveWid(data.window, (Count(), Sum(1, integer=True)))
    groups, peak = kernel.start(), 0
    for second, rows in enumerate(data.periods()):
        for part in np.array_split(rows.group, EPOCHS):
            groups = kernel.add(groups, Buffered(part, np.full(len(part), second * SECOND), part % 1000))
            peak = max(peak, kernel.state_bytes(groups))
        groups, _ = kernel.close(groups, (second + 1 - data.behind) * SECOND)
    return peak


@dataclass(slots=True)
class _Table:
    """What is written down."""

    table: list[dict[str, Any]] = field(default_factory=list)
    drawn: list[Bar] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)

    def add(self, name: str, runs: dict[Way, WayRun]) -> None:
        for way, run in runs.items():
            self.row(name, way, run.peak, ms=1000 * run.seconds, ms_to_answer=1000 * run.latency)
            self.drawn.append(
                Bar(f"{name} {way}", run.peak / 1024, "ours" if way == "adaptive" else "theirs")
            )

    def row(self, name: str, way: str, peak: int, **times: float) -> None:
        milliseconds = {column: round(times[column], 2) if times else "" for column in ("ms", "ms_to_answer")}
        self.table.append({"data": name, "way": way, "peak_state_kib": round(peak / 1024, 1), **milliseconds})


def adapt(rows: int, rounds: int) -> Report:
    """Five data sets in windows of a second, and one in windows of ten with punctuation 0, 5 and 10 s behind."""
    rows, page = min(rows, _MOST_ROWS), _Table()
    processes = 4 * rounds
    sets = [
        DataSet(f"DS{number}", rows, small, 100 * number)
        for number, small in enumerate(SMALL_SHARES, start=1)
    ]
    fewer = DataSet(f"DS3, {rows // _FEWER:,} rows/s", rows // _FEWER, SMALL_SHARES[2], 300)
    gains = []
    for data in [*sets, fewer]:
        runs = least(in_each(processes, measured, data, _ROUNDS))
        page.add(data.name, runs)
        if data is not fewer:
            bars = _bars(data.name, runs, 1.05 if data is sets[0] else 0.999)
            page.ratios += bars
            gains.append(1 - bars[0].value)
    page.ratios.append(
        Ratio("least step of the gain from each data set to the next", float(min(np.diff(gains))), 0.0)
    )
    for behind in _BEHIND:
        name = f"10 s windows, {behind} s behind"
        data = DataSet(name, rows // 25, 0.05, 900, _SLIDING, 14, behind)
        runs = least(in_each(rounds, measured, data, _ROUNDS))
        page.add(name, runs)
        page.ratios += _bars(name, runs, 0.999)[:1]
        page.row(name, "adaptive, without panes", without_panes(data))
    title = "Peak state: rows, partials, or each group's better"
    notes = _notes(rows, processes)
    return Report("adapt", title, page.table, page.ratios, page.drawn, "KiB", notes)


def _notes(rows: int, processes: int) -> list[str]:
    return [
        f"{rows:,} rows a second, {EPOCHS} epochs a second; windows of ten seconds: a twenty-fifth of that.",
        f"Processor time, the least of {_ROUNDS} rounds in each of {processes} processes (windows of ten seconds: a quarter as many), step by step.",
        _FIXED,
        f"Runs are merged when there are more than {MERGE}; a peak is that of all runs after an epoch.",
        "Without panes: AdaptWID as the thesis has it, a row or a partial for each open window of its group, bytes of the numbers alone.",
        "Panes are shared by queries and by all later windows, whose blocks are counted here.",
    ]


def _bars(name: str, runs: dict[Way, WayRun], most: float) -> list[Ratio]:
    """Each metric to the better fixed choice; `most` is the bar of the peak, below 1 where many groups are small."""
    ours, fixed = runs["adaptive"], (runs["eager"], runs["lazy"])

    def to_better(what: str, bound: float) -> Ratio:
        value = getattr(ours, what) / min(getattr(run, what) for run in fixed)
        return Ratio(f"{name}: {_WORDS[what]}, to the better fixed choice", value, bound, True)

    return [to_better("peak", most), to_better("seconds", 1.05), to_better("latency", 1.05)]


_FIXED = (
    "Two forms are two tables: some 0.04 ms more an epoch and 0.1 ms a closing one, however many rows. So the fewer rows an "
    "epoch has, the more of its time that is: DS3 once more, at a tenth of the rows."
)
_WORDS = {"peak": "peak state", "seconds": "time", "latency": "punctuation to answer"}
