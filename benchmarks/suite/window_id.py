"""The savings of window ids and panes: experiments E1 and E4, against buffering and against one partial for each open window.

Li, Window Queries over Data Streams (2008), figures 6-10 and 6-15. Everything runs in this process over rows in memory, Headrace as one
operator without store or JVM; only E4's second half runs the whole pipeline on Spark, and Spark's own `window()`. Every answer is
compared with another way's before its time counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import standalone
from benchmarks.baselines.windows import (
    Sliding,
    by_buffering,
    by_differences,
    by_grouped_buffering,
    by_negative_tuples,
    by_window_id,
)
from benchmarks.charts import Curve, Curves
from benchmarks.expected import WrongAnswer
from benchmarks.folders import CHECKOUT
from benchmarks.panes_runner import KEYS as GROUPS
from benchmarks.panes_runner import RANGE_SECONDS, ROWS_PER_SECOND
from benchmarks.report import Report
from benchmarks.standalone import Emission, best_of, drive, operator_of, results
from benchmarks.thresholds import Ratio
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Operator
from headrace.time import MILLISECOND, SECOND

_RANGE, _KEYS, _MOST_ROWS, _MOST_SCANS = 4000, 10, 400_000, 2000
SHARES = (1, 10, 40, 100, 400, 4000)
PER_PANE, PER_WINDOW = (1, 5, 20, 100), (1, 2, 5, 10, 20)
BESIDE = (1, 5, 10, 20, 60)
"""Panes of a window of the pipeline against Spark: 6000 to 100 rows a pane and group."""
_MOST_BESIDE, _LONGEST = 4_000_000, 1800


def buffering(rows: int, rounds: int) -> Report:
    """E1: the greatest value of the last 4000 rows, a row a millisecond, with and without groups."""
    count = max(4 * _RANGE, min(rows, _MOST_ROWS))
    value = np.random.default_rng(1).random(count)
    key = np.arange(count) * 7919 % _KEYS
    batches = standalone.batches(np.arange(count) * MILLISECOND, value, key, max(_RANGE, count // 8))
    table = [_ungrouped(share, value, batches, rounds) for share in SHARES]
    grouped = [_grouped(share, key, value, batches, rounds) for share in SHARES]
    for one, other in zip(table, grouped, strict=True):
        one.update(other)
    notes = [
        f"{count:,} rows in {len(batches)} epochs, windows of {_RANGE} rows. Milliseconds, the best of {rounds}.",
        (
            "Without groups `buffering` scans contiguous doubles at the speed of memory (NumPy's reduceat) and takes in nothing: where "
            "few windows overlap no engine that takes rows in is as fast. By keys Arrow groups the extent of each window; at most "
            f"{_MOST_SCANS:,} windows were grouped so, and the time scaled to all."
        ),
        "`sum by differences` and `by negative tuples` need an inverse: they cannot do the maximum.",
        (
            "`headrace` has windows of 4000 ms, a row a millisecond; `rows` has the same as `[ROWS 4000 SLIDE n]`, the thesis' own, which are "
            "in stream order and so keep the rows of a window until punctuation has passed them."
        ),
    ]
    drawn = Curves(
        "Time by range/slide: MAX over 4000 rows",
        ("range/slide", "ms"),
        [
            Curve(name.removesuffix("_ms").replace("_", " "), SHARES, [row[name] for row in table], kind)
            for name, kind in (
                ("headrace_ms", "ours"),
                ("buffering_ms", "theirs"),
                ("grouped_headrace_ms", "ours"),
                ("grouped_rows_ms", "ours"),
                ("grouped_buffering_ms", "theirs"),
                ("scan_only_ms", "yardstick"),
            )
        ],
        logarithmic=(True, True),
    )
    return Report(
        "buffering", "E1: window ids against buffering", table, _gains(table), [], "ms", notes, picture=drawn
    )


def _gains(table: Sequence[dict[str, Any]]) -> list[Ratio]:
    """Of windows of time and of rows by keys, to buffering, which has to lose more the more windows overlap."""
    ratios: list[Ratio] = []
    for ours, kind in (("grouped_headrace_ms", ""), ("grouped_rows_ms", "windows of rows, ")):
        speedups = [row["grouped_buffering_ms"] / row[ours] for row in table]
        ratios += [
            Ratio(
                f"{kind}time by {_KEYS} keys to that of buffering at range/slide {row['range/slide']}",
                1 / gain,
                1,
                True,
            )
            for row, gain in zip(table, speedups, strict=True)
            if row["range/slide"] >= 10
        ]
        growth = f"{kind}least growth of that gain from one range/slide to the next"
        ratios.append(Ratio(growth, _least_growth(speedups), 0.9))
    ratios.append(
        Ratio(
            f"without groups, time to that of scanning at range/slide {SHARES[-1]}",
            table[-1]["headrace_ms"] / table[-1]["buffering_ms"],
            1,
            True,
        )
    )
    return ratios


def _ungrouped(share: int, value: np.ndarray, batches: list[Batch], rounds: int) -> dict[str, Any]:
    spec, at = Sliding(_RANGE, _RANGE // share), np.arange(len(value))
    operator = operator_of(
        f"SELECT window_end, MAX(v) AS m FROM s [RANGE {_RANGE} MILLISECONDS SLIDE {spec.slide} MILLISECONDS]"
    )
    rows = operator_of(f"SELECT window_end, MAX(v) AS m FROM s [ROWS {_RANGE} SLIDE {spec.slide}]")
    ways: dict[str, Callable[[], Any]] = {
        "headrace": lambda: _driven(operator, batches),
        "rows": lambda: _driven(rows, batches),
        "buffering": lambda: by_buffering(at, value, spec),
        "sum_by_differences": lambda: by_differences(at, value, spec),
        "sum_by_negative_tuples": lambda: by_negative_tuples(at, value, spec),
        "scan_only": value.max,
    }
    if share <= 400:
        ways["partial_for_each_window"] = lambda: by_window_id(at, value, spec)
    mine = results(_driven(operator, batches))
    buffered = by_buffering(at, value, spec)
    _same("headrace and buffering", _column(mine, "m")[: len(buffered.windows)], buffered.values)
    counted = _column(results(_driven(rows, batches)), "m")
    _same("windows of rows and buffering", counted[: len(buffered.windows)], buffered.values)
    differences, negative = by_differences(at, value, spec), by_negative_tuples(at, value, spec)
    _same("differences and negative tuples", differences.values, negative.values, 1e-9)
    took = dict(zip(ways, best_of(rounds, *ways.values()), strict=True))
    row: dict[str, Any] = {"range/slide": share}
    names = (*ways, "partial_for_each_window")
    return row | {f"{name}_ms": round(1000 * took[name], 2) if name in took else None for name in names}


def _grouped(
    share: int, key: np.ndarray, value: np.ndarray, batches: list[Batch], rounds: int
) -> dict[str, Any]:
    spec, at = Sliding(_RANGE, _RANGE // share), np.arange(len(value))
    operator = operator_of(
        f"SELECT window_end, k, MAX(v) AS m FROM s [RANGE {_RANGE} MILLISECONDS SLIDE {spec.slide} MILLISECONDS] GROUP BY k"
    )
    windows = spec.complete(int(at[-1]))
    tried = windows[-_MOST_SCANS:]
    theirs = by_grouped_buffering(at, key, value, spec, tried[-20:]).sort_by(
        [("window_end", "ascending"), ("k", "ascending")]
    )
    rows = operator_of(
        f"SELECT window_end, k, MAX(v) AS m FROM s [ROWS {_RANGE} SLIDE {spec.slide}] GROUP BY k"
    )
    for what, driven, late in (("headrace", operator, 0), ("windows of rows", rows, 1)):
        mine = results(_driven(driven, batches))
        ends = mine.column("window_end").cast(pa.int64()).to_numpy() // MILLISECOND + late
        chosen = np.isin(ends, spec.ends(tried[-20:]))
        mine = mine.filter(pa.array(chosen)).sort_by([("window_end", "ascending"), ("k", "ascending")])
        _same(f"{what} and grouped buffering", _column(mine, "m"), _column(theirs, "v_max"))
    took = best_of(
        rounds,
        lambda: _driven(operator, batches),
        lambda: by_grouped_buffering(at, key, value, spec, tried),
        lambda: _driven(rows, batches),
    )
    scaled = took[1] * len(windows) / len(tried)
    seconds = {"grouped_headrace_ms": took[0], "grouped_buffering_ms": scaled, "grouped_rows_ms": took[2]}
    return {name: round(1000 * best, 2) for name, best in seconds.items()}


def panes(rows: int, rounds: int) -> Report:
    """E4: an operator over panes and over rows copied for every window; the pipeline over panes and Spark's `window()`."""
    table, ratios = panes_alone(rows, rounds)
    beside = [_beside_spark(pipeline) for pipeline in panes_beside_spark(min(rows, _MOST_BESIDE), rounds)]
    ratios += [
        Ratio(
            f"pipeline to Spark's window(), {pipeline['panes_per_window']} panes of {pipeline['rows_per_pane']} rows a group",
            pipeline["ratio"],
            0.3,
            True,
        )
        for pipeline in beside
        if pipeline["panes_per_window"] >= 5 and pipeline["rows_per_pane"] >= 100
    ]
    ratio_of = {(row["rows_per_pane"], row["panes_per_window"]): row["ratio"] for row in table}
    drawn = Curves(
        "Time over panes to time over copies, and to Spark's window()",
        ("panes per window", "ratio"),
        [
            *(
                Curve(
                    f"{per_pane} rows a pane",
                    PER_WINDOW,
                    [ratio_of[per_pane, per_window] for per_window in PER_WINDOW],
                    "theirs",
                )
                for per_pane in PER_PANE
            ),
            Curve("pipeline to Spark", BESIDE, [row["ratio"] for row in beside], "ours"),
        ],
    )
    notes = [
        f"Alone: MAX of {min(rows, _MOST_ROWS):,} rows in four epochs, no groups, the best of {max(3, rounds)} in turn.",
        "`bare numpy`: a partial for each open window, no batches, no keys, no result rows; for scale.",
        (
            f"With Spark: MAX by {GROUPS} groups of {min(rows, _MOST_BESIDE):,} rows, {ROWS_PER_SECOND:,} an event-second, windows of "
            f"{RANGE_SECONDS} s, the median of {rounds} in turn in one session. Ours from the first row read until all results are durable; "
            "Spark's is its batch engine, which keeps no state, until the same answer is written."
        ),
    ]
    return Report(
        "panes", "E4: panes against window ids", [*table, *beside], ratios, [], "", notes, picture=drawn
    )


def panes_alone(rows: int, rounds: int) -> tuple[list[dict[str, Any]], list[Ratio]]:
    """The first half of E4, in this process: what every cell took, and the bars."""
    value = np.random.default_rng(2).random(min(rows, _MOST_ROWS))
    table = [_cell(value, per_pane, per_window, rounds) for per_pane in PER_PANE for per_window in PER_WINDOW]
    ratio_of = {(row["rows_per_pane"], row["panes_per_window"]): row["ratio"] for row in table}
    wide, full = PER_WINDOW[-1], PER_PANE[-1]
    ratios = [
        Ratio("panes to copies at 20 rows a pane, 5 panes a window", ratio_of[20, 5], 0.4, True),
        Ratio("at 20 panes a window to at 1, 20 rows a pane", ratio_of[20, wide] / ratio_of[20, 1], 1, True),
        Ratio(
            "at 100 rows a pane to at 1, 20 panes a window", ratio_of[full, wide] / ratio_of[1, wide], 1, True
        ),
    ]
    return table, ratios


def panes_beside_spark(rows: int, rounds: int) -> list[dict[str, float]]:
    """Median seconds of the pipeline (`ours`) and of Spark's `window()` (`theirs`) by `panes`, from a process of their own."""
    asked = json.dumps({"rows": rows, "rounds": rounds, "panes": BESIDE})
    command = [sys.executable, "-m", "benchmarks.panes_runner", asked]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=_LONGEST
    )
    if done.returncode != 0:
        raise RuntimeError(f"Expected {' '.join(command)} to end well, found:\n{done.stderr[-3000:]}")
    took = json.loads(done.stdout.strip().splitlines()[-1])
    return [
        {"panes": panes}
        | {way: median(run[way] for run in took if run["panes"] == panes) for way in ("ours", "theirs")}
        for panes in BESIDE
    ]


def _beside_spark(took: dict[str, float]) -> dict[str, Any]:
    per_window = int(took["panes"])
    return {
        "measured": "pipeline, 10 groups",
        "rows_per_pane": ROWS_PER_SECOND * RANGE_SECONDS // per_window // GROUPS,
        "panes_per_window": per_window,
        "panes_ms": round(1000 * took["ours"], 2),
        "copies_ms": None,
        "bare_numpy_ms": None,
        "spark_window_ms": round(1000 * took["theirs"], 2),
        "ratio": round(took["ours"] / took["theirs"], 3),
    }


def _cell(value: np.ndarray, per_pane: int, per_window: int, rounds: int) -> dict[str, Any]:
    at = np.arange(len(value)) * SECOND // per_pane
    batches = standalone.batches(at, value, np.zeros(len(value), np.int32), -(-len(value) // 4))
    paned = operator_of(f"SELECT MAX(v) AS m FROM s [RANGE {per_window} SECONDS SLIDE 1 SECOND]")
    plain = operator_of("SELECT MAX(v) AS m FROM s [RANGE 1 SECOND SLIDE 1 SECOND]")
    bounds = [int(batch.at[-1]) for batch in batches]

    def copied() -> list[Emission]:
        return drive(plain, [_copies(batch, per_window) for batch in batches], bounds)

    _same("panes and copies", _column(results(_driven(paned, batches)), "m"), _column(results(copied()), "m"))
    spec = Sliding(per_window * SECOND, SECOND)
    ways = (lambda: _driven(paned, batches), copied, lambda: by_window_id(at, value, spec))
    ours, copies, bare = best_of(max(3, rounds), *ways)
    return {
        "measured": "operator alone",
        "rows_per_pane": per_pane,
        "panes_per_window": per_window,
        "panes_ms": round(1000 * ours, 2),
        "copies_ms": round(1000 * copies, 2),
        "bare_numpy_ms": round(1000 * bare, 2),
        "spark_window_ms": None,
        "ratio": round(ours / copies, 3),
    }


def _copies(batch: Batch, per_window: int) -> Batch:
    """Bucket: each row once for every window it is in, as if in a window of one slide of its own."""
    copied = batch.take(np.repeat(np.arange(batch.rows), per_window))
    at = copied.at + np.tile(np.arange(per_window) * SECOND, batch.rows)
    return Batch(copied.columns, at, copied.position)


def _driven(operator: Operator, batches: list[Batch]) -> list[Emission]:
    return drive(operator, batches, [int(batch.at[-1]) for batch in batches])


def _column(table: pa.Table, name: str) -> np.ndarray:
    return table.column(name).to_numpy()


def _same(what: str, one: np.ndarray, other: np.ndarray, tolerance: float = 0.0) -> None:
    if one.shape != other.shape or not np.allclose(
        one, other, rtol=tolerance, atol=tolerance, equal_nan=True
    ):
        raise WrongAnswer(f"Expected the answers of {what} to be equal, found {one[:5]} and {other[:5]}.")


def _least_growth(gains: list[float]) -> float:
    return min(after / before for before, after in pairwise(gains))
