"""The cost of guessing how late rows are: experiments E2 and E3, errors and latency of slack and of punctuation.

Li, Window Queries over Data Streams (2008), figures 6-11 and 6-12. All figures are counts and event times, the same on every machine.
Latency is how long after a window's end its answer comes, on the clock by which rows arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import standalone
from benchmarks.baselines.slack import buffer_sort, by_slack, truth
from benchmarks.baselines.windows import Floats, Ints, Sliding
from benchmarks.charts import Curve, Curves
from benchmarks.disorder import low_watermarks
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.time import MILLISECOND

BAND_SLACKS = (0, 320, 640, 1280, 2560, 3200)
BLOCK_SLACKS = (0, 54_400, 109_100, 218_200, 327_300, 434_200, 490_900, 600_000)
_BLOCK = 490_000


@dataclass(frozen=True, slots=True)
class Arriving:
    """Rows in order of arrival: event times and arrivals in milliseconds, and values."""

    at: Ints
    arrive: Floats
    value: Floats


@dataclass(frozen=True, slots=True)
class Errors:
    """The share of windows that are wrong, the mean relative error of their averages, the mean latency in seconds."""

    wrong: float
    error: float
    latency: float


def band(rows: int, rounds: int) -> Report:
    """E2: averages of 64 s by 6.4 s over rows up to 3.2 s late, few of them much."""
    del rounds
    arriving, spec = banded(min(rows, 40_000)), Sliding(64_000, 6_400)
    table, consistent, generous, best = _compared(arriving, spec, BAND_SLACKS, 200)
    exact = min(run.latency for run in (*consistent, *generous) if not run.wrong)
    ratios = [
        Ratio("mean error with punctuation", best.error, 0, True),
        Ratio(
            f"mean error at slack {BAND_SLACKS[-1]} ms",
            max(consistent[-1].error, generous[-1].error),
            0,
            True,
        ),
        Ratio("most that generous slack errs beyond consistent", _most(generous, consistent), 0, True),
        Ratio("most that error grows with slack", max(_rises(consistent), _rises(generous)), 0, True),
        Ratio("most that latency falls with slack", _falls(consistent), 0, True),
        Ratio("latency, punctuation to the best exact slack", best.latency / exact, 1, True),
    ]
    drawn = Curves(
        "Error by latency: AVG of 64 s by 6.4 s, rows up to 3.2 s late",
        ("latency in seconds", "mean error, %"),
        [
            Curve(
                "consistent slack",
                [e.latency for e in consistent],
                [100 * e.error for e in consistent],
                "theirs",
            ),
            Curve(
                "generous slack", [e.latency for e in generous], [100 * e.error for e in generous], "theirs"
            ),
            Curve("punctuation", [best.latency], [100 * best.error], "ours"),
        ],
    )
    notes = [f"{len(arriving.at):,} rows, 50 a second, late by 3.2 s times the cube of a uniform number."]
    return Report(
        "band", "E2: slack against punctuation, banded disorder", table, ratios, [], "", notes, picture=drawn
    )


def blocks(rows: int, rounds: int) -> Report:
    """E3: counts of 600 s by 60 s over a cache that is dumped every 490 s."""
    del rounds
    arriving, spec = dumped(min(rows, 100_000)), Sliding(600_000, 60_000)
    table, consistent, generous, best = _compared(arriving, spec, BLOCK_SLACKS, _BLOCK)
    below = [e for slack, e in zip(BLOCK_SLACKS, consistent, strict=True) if slack < _BLOCK]
    above = [e for slack, e in zip(BLOCK_SLACKS, consistent, strict=True) if slack >= _BLOCK]
    ratios = [
        Ratio("share of wrong windows with punctuation", best.wrong, 0, True),
        Ratio("least share of wrong windows at a slack below 490 s", min(e.wrong for e in below), 0.01),
        Ratio(
            "greatest share of wrong windows at a slack of 490 s or more",
            max(e.wrong for e in above),
            0,
            True,
        ),
        Ratio(
            "latency at the best exact slack to that at no slack",
            min(e.latency for e in above) / below[0].latency,
            1.5,
        ),
        Ratio(
            "latency, punctuation to the least of any slack",
            best.latency / min(e.latency for e in (*consistent, *generous)),
            1.01,
            True,
        ),
    ]
    table = [{name: cell for name, cell in row.items() if "error" not in name} for row in table]
    x = [slack / 1000 for slack in BLOCK_SLACKS]
    drawn = Curves(
        "Wrong windows by slack: COUNT of 600 s by 60 s, dumped every 490 s",
        ("slack in seconds", "wrong windows, %"),
        [
            Curve("consistent slack", x, [100 * e.wrong for e in consistent], "theirs"),
            Curve("generous slack", x, [100 * e.wrong for e in generous], "theirs"),
            Curve("punctuation", x, [100 * best.wrong] * len(x), "ours"),
        ],
    )
    notes = [
        f"{len(arriving.at):,} rows, 5 a second, each block within half a second of its end, in any order."
    ]
    return Report(
        "blocks", "E3: slack against punctuation, sorted blocks", table, ratios, [], "", notes, picture=drawn
    )


def banded(rows: int) -> Arriving:
    """50 rows a second, late by 3.2 s * u^3."""
    rng = np.random.default_rng(11)
    at = np.sort(rng.integers(0, rows * 20, rows))
    arrive = at + 3200 * rng.random(rows) ** 3
    order = np.argsort(arrive, kind="stable")
    return Arriving(at[order], arrive[order], rng.random(rows))


def dumped(rows: int) -> Arriving:
    """5 rows a second; those of each 490 s come together after it, shuffled."""
    rng = np.random.default_rng(12)
    at = np.sort(rng.integers(0, max(rows * 200, 4 * _BLOCK), rows))
    arrive = (at // _BLOCK + 1) * _BLOCK + 500 * rng.random(rows)
    order = np.argsort(arrive, kind="stable")
    return Arriving(at[order], arrive[order], np.ones(rows))


def _compared(
    arriving: Arriving, spec: Sliding, slacks: tuple[int, ...], every: int
) -> tuple[list[dict[str, Any]], list[Errors], list[Errors], Errors]:
    """The table, and what was found of consistent and generous slack and of punctuation."""
    rows, sums = truth(arriving.at, arriving.value, spec)
    emitted_at, count, total = punctuated(arriving, spec, every)
    best = _errors_of(spec, (count, total), (rows, sums), emitted_at)
    consistent, generous = (
        [_slacked(arriving, spec, slack, (rows, sums), generous=generosity) for slack in slacks]
        for generosity in (False, True)
    )
    table = [_row("punctuation", best, best, None)]
    for slack, one, other in zip(slacks, consistent, generous, strict=True):
        table.append(_row(f"slack {slack / 1000:g} s", one, other, buffer_sort(arriving.at, slack)[1]))
    return table, consistent, generous, best


def _row(what: str, consistent: Errors, generous: Errors, sorting: int | None) -> dict[str, Any]:
    return {
        "progress by": what,
        "latency_s": round(consistent.latency, 2),
        "consistent_error_%": round(100 * consistent.error, 3),
        "generous_error_%": round(100 * generous.error, 3),
        "consistent_wrong_windows_%": round(100 * consistent.wrong, 1),
        "generous_wrong_windows_%": round(100 * generous.wrong, 1),
        "rows_that_sorting_would_hold": sorting,
    }


def _slacked(
    arriving: Arriving, spec: Sliding, slack: int, right: tuple[Ints, Floats], *, generous: bool
) -> Errors:
    answers = by_slack(arriving.at, arriving.arrive, arriving.value, spec, slack, generous=generous)
    return _errors_of(spec, (answers.rows, answers.sums), right, answers.emitted_at)


def punctuated(arriving: Arriving, spec: Sliding, every: int) -> tuple[Floats, Ints, Floats]:
    """Headrace, its true low watermark promised after what arrived in every so many milliseconds.

    When each window was emitted, its rows and their sum.
    """
    operator = standalone.operator_of(
        "SELECT window_end, COUNT(*) AS n, SUM(v) AS total "
        f"FROM s [RANGE {spec.range} MILLISECONDS SLIDE {spec.slide} MILLISECONDS]"
    )
    stops = np.unique(
        np.searchsorted(arriving.arrive, np.arange(0.5, arriving.arrive[-1] / every + 1.5) * every)
    )[1:]
    batches = standalone.cut(
        arriving.at * MILLISECOND, arriving.value, np.zeros(len(arriving.at), np.int32), stops
    )
    last = stops - 1
    low = low_watermarks(arriving.at)
    low[-1] = arriving.at.max()  # the end of the stream promises nothing
    parts = standalone.drive(operator, batches, (low[last] * MILLISECOND).tolist())
    windows = len(spec.complete(int(arriving.at.max())))
    emitted_at, count, total = np.full(windows, np.nan), np.zeros(windows, np.int64), np.zeros(windows)
    for part, moment in zip(parts, arriving.arrive[last], strict=False):
        if part.results is not None and part.results.num_rows:
            table = part.results
            window = table.column("window_end").cast(pa.int64()).to_numpy() // MILLISECOND // spec.slide - 1
            if not np.isnan(emitted_at[window]).all():
                raise WrongAnswer("Expected each window to be emitted once.")
            emitted_at[window], count[window] = moment, table.column("n").to_numpy()
            total[window] = table.column("total").to_numpy()
    return emitted_at, count, total


def _errors_of(
    spec: Sliding, answers: tuple[Ints, Floats], right: tuple[Ints, Floats], emitted_at: Floats
) -> Errors:
    known = ~np.isnan(emitted_at)
    wrong = float((answers[0] != right[0])[known].mean())
    with np.errstate(all="ignore"):
        mean, true = answers[1] / answers[0], right[1] / right[0]
        error = np.where(answers[0] > 0, np.abs(mean - true) / true, 1.0)[known & (right[0] > 0)]
    ends = spec.ends(np.arange(len(emitted_at)))
    error = np.where(error < 1e-9, 0.0, error)  # sums of doubles in another order
    return Errors(wrong, float(error.mean()), float(np.nanmean(emitted_at - ends)) / 1000)


def _most(one: list[Errors], other: list[Errors]) -> float:
    return max(a.error - b.error for a, b in zip(one, other, strict=True))


def _rises(runs: list[Errors]) -> float:
    return max(0.0, *(after.error - before.error for before, after in pairwise(runs)))


def _falls(runs: list[Errors]) -> float:
    return max(0.0, *(before.latency - after.latency for before, after in pairwise(runs)))
