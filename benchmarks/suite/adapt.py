"""What is it worth to choose for each group between its rows and its partials? AdaptWID beside both fixed choices.

Li, Window Queries over Data Streams (2008): experiments E5 (tumbling windows of a second over five data sets) and E6 (windows of
ten seconds, one source behind the others). All figures but the seconds are counts, the same on every machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any
from typing import Literal as Choice

import numpy as np

from benchmarks.plot import Bar
from benchmarks.report import Report
from benchmarks.skewed_groups import SMALL_SHARES, Skewed, skewed
from benchmarks.thresholds import Ratio
from headrace.algebra.windows import TimeSlide
from headrace.operators.adaptive_wid import AdaptiveWid, Buffered, Effort
from headrace.operators.partials import Count, Sum
from headrace.time import SECOND

_PARTIALS = (Count(), Sum(1, integer=True))
_TUMBLING, _SLIDING = TimeSlide(SECOND, SECOND), TimeSlide(10 * SECOND, SECOND)
_MOST_ROWS, _SECONDS, _SPLITS = 40_000, 14, 4
_BEHIND = (0, 5, 10)
Way = Choice["adaptive", "eager", "lazy"]
WAYS: tuple[Way, ...] = ("adaptive", "eager", "lazy")


@dataclass(frozen=True, slots=True)
class Found:
    """Peak bytes of state, what was done, and the sum of all answers, which is the same for every way."""

    peak: int
    effort: Effort
    seconds: float
    total: int

    @property
    def work(self) -> int:
        """Rows combined or put aside, entries made, rows and entries read to answer."""
        each = self.effort
        return each.combined + each.buffered + each.created + each.told


def run(way: Way, window: TimeSlide, periods: list[Skewed], behind: int = 0) -> Found:
    """Periods of a second each; punctuation is `behind` seconds late, as with one source behind the others."""
    operator = AdaptiveWid(window, _PARTIALS, way)
    groups, peak, total = operator.start(), 0, 0
    started = time.perf_counter()
    for second, rows in enumerate(periods):
        for part in np.array_split(rows.group, _SPLITS):
            at = np.full(len(part), second * SECOND)
            groups = operator.add(groups, Buffered(part, at, part % 1000))
            peak = max(peak, operator.state_bytes(groups))
        groups, told = operator.close(groups, (second + 1 - behind) * SECOND)
        total += int(told.cells[1][0].sum())
    groups, told = operator.close(groups, (len(periods) + 60) * SECOND)
    total += int(told.cells[1][0].sum())
    return Found(peak, groups.effort, time.perf_counter() - started, total)


def _all(window: TimeSlide, periods: list[Skewed], rounds: int, behind: int = 0) -> dict[Way, Found]:
    """Every way in turn; the median of the seconds. Raises when two ways answer differently."""
    runs = [{way: run(way, window, periods, behind) for way in WAYS} for _ in range(rounds)]
    if len({found.total for each in runs for found in each.values()}) != 1:
        raise AssertionError(f"ways of aggregation differ: {runs[0]}")
    return {
        way: Found(first.peak, first.effort, median(each[way].seconds for each in runs), first.total)
        for way, first in runs[0].items()
    }


def adapt(rows: int, rounds: int) -> Report:
    """Five data sets in windows of a second, and one in windows of ten with punctuation 0, 5 and 10 s behind."""
    rows = min(rows, _MOST_ROWS)
    table: list[dict[str, Any]] = []
    drawn: list[Bar] = []
    ratios: list[Ratio] = []
    for number, share in enumerate(SMALL_SHARES, start=1):
        name = f"DS{number}"
        periods = [skewed(rows, share, seed=100 * number + second) for second in range(3)]
        found = _all(_TUMBLING, periods, rounds)
        table += [_row(name, way, each) for way, each in found.items()]
        drawn += [Bar(f"{name} {way}", found[way].peak / 1024, _kind(way)) for way in WAYS]
        ours, fixed = found["adaptive"], (found["eager"], found["lazy"])
        for what in ("work", "told"):
            value = _of(ours, what) / min(_of(each, what) for each in fixed)
            ratios.append(Ratio(f"{name}: {_WORDS[what]}, to the better fixed choice", value, 1.05, True))
        peak = ours.peak / min(each.peak for each in fixed)
        ratios.append(Ratio(f"{name}: peak state, to the better fixed choice", peak, 0.999, True))
    gains = [1 - ratio.value for ratio in ratios if "peak" in ratio.what]
    ratios.append(
        Ratio("least step of the gain from each data set to the next", float(min(np.diff(gains))), 0.0)
    )
    for behind in _BEHIND:
        periods = [skewed(rows // 10, 0.05, seed=900 + second) for second in range(_SECONDS)]
        found = _all(_SLIDING, periods, 1, behind)
        name = f"10 s windows, {behind} s behind"
        table += [_row(name, way, each) for way, each in found.items()]
        drawn += [Bar(f"{behind} s behind, {way}", found[way].peak / 1024, _kind(way)) for way in WAYS]
        best = min(found["eager"].peak, found["lazy"].peak)
        ratios.append(
            Ratio(f"{name}: peak state, to the better fixed choice", found["adaptive"].peak / best, 1.0, True)
        )
    notes = [
        f"{rows:,} rows a second, {_SPLITS} batches a second; windows of ten seconds: a tenth of that.",
        "Read to answer: entries and rows touched between punctuation and its answer.",
        "Work: that, rows combined with windows, rows put aside, and entries made. Seconds stand beside, without a threshold: choosing is a few more passes over each batch.",
    ]
    return Report(
        "adapt", "Peak state: rows, partials, or each group's better", table, ratios, drawn, "KiB", notes
    )


_WORDS = {"work": "work", "told": "read to answer"}


def _of(found: Found, what: str) -> int:
    return found.work if what == "work" else found.effort.told


def _kind(way: Way) -> str:
    return "ours" if way == "adaptive" else "theirs"


def _row(name: str, way: Way, found: Found) -> dict[str, Any]:
    return {
        "data": name,
        "way": way,
        "peak_state_kib": round(found.peak / 1024, 1),
        "read_to_answer": found.effort.told,
        "work": found.work,
        "seconds": round(found.seconds, 3),
    }
