"""The worth of progress that the source knows: punctuation against slack, its price, and the state under it.

Li, Window Queries over Data Streams (2008): experiments E2 and E3 (memory, latency under disorder) and the overhead of
punctuation (Tucker). All figures but those of `overhead` are counts, the same on every machine.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

from benchmarks import disorder
from benchmarks.charts import Bar, Curve, Curves
from benchmarks.progressing import KEYS, RANGE, SLIDE, Run, run
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.runtime.tasks.state.compaction import FAN_IN

_MOST_ROWS = 60_000
_SECONDS = 600
_EXTERNAL = "PUNCTUATED EXTERNALLY"


def punctuation(rows: int, rounds: int) -> Report:
    """Exact punctuation against slack from nothing to twice what is needed: latency and state at equal exactness."""
    del rounds
    rows = min(rows, _MOST_ROWS)
    arrivals = disorder.lulls(rows, _SECONDS, ((200, 260),), 20, seed=1)
    needed = disorder.measured(arrivals).slack
    epoch = rows // 60
    table, drawn, exact = [], [], []
    best = run(arrivals, _EXTERNAL, epoch_rows=epoch, punctuate=True)
    table.append(_row("punctuation", best))
    drawn.append(Bar("punctuation", best.latency, "ours"))
    for slack in sorted({0, 5, 10, 20, needed, 2 * needed}):
        measured = run(arrivals, f"SLACK {slack} SECONDS", epoch_rows=epoch)
        table.append(_row(f"slack {slack} s", measured))
        drawn.append(Bar(f"slack {slack} s ({measured.wrong:.0%} wrong)", measured.latency, "theirs"))
        if not measured.wrong:
            exact.append(measured)
    ratios = [
        Ratio("share of wrong windows with punctuation", best.wrong, 0, True),
        Ratio(
            "latency, punctuation to the best exact slack",
            best.latency / min(e.latency for e in exact),
            1,
            True,
        ),
        Ratio(
            "mean state, punctuation to the best exact slack",
            mean(best.state) / min(mean(e.state) for e in exact),
            1,
            True,
        ),
    ]
    notes = [
        f"{rows:,} rows of {_SECONDS} s, up to 20 s late, and a link that is silent from 200 s to 260 s; slack needed: {needed} s.",
        "Latency: how far the greatest event time was past a window's end when it was emitted, mean over windows and groups.",
        (
            "State: rows of state after an epoch. At its peak, when the silent link delivers, any exact progress holds the panes of the"
            " silence: the peaks differ only in which runs are merged already."
        ),
    ]
    return Report(
        "punctuation",
        "Latency of windows: punctuation against slack",
        table,
        ratios,
        drawn,
        "s of event time",
        notes,
    )


def _row(what: str, measured: Run) -> dict[str, Any]:
    return {
        "progress by": what,
        "latency_s": round(measured.latency, 2),
        "mean_state_rows": round(mean(measured.state)),
        "peak_state_rows": measured.peak,
        "wrong_windows_%": round(100 * measured.wrong, 2),
        "rows_lost_%": round(100 * measured.lost, 2),
    }


def overhead(rows: int, rounds: int) -> Report:
    """The same rows with and without promises among them, in turn."""
    rows = min(rows, 10 * _MOST_ROWS)
    arrivals = disorder.band(rows, _SECONDS, 0, seed=2)
    shares = (0.0, 0.01, 0.05, 0.15)
    seconds: dict[float, list[float]] = {share: [] for share in shares}
    for _ in range(max(5, rounds)):
        for share in shares:
            clauses = "PUNCTUATED BY done" if share else "SLACK 0 SECONDS"
            seconds[share].append(run(arrivals, clauses, epoch_rows=rows // 10, marks=share).cpu)
    took = {share: min(times) for share, times in seconds.items()}
    table = [
        {"punctuation": f"{share:.0%} of rows", "rows_per_cpu_second": round(rows / took[share])}
        for share in shares
    ]
    drawn = [
        Bar(f"{share:.0%} punctuation", rows / took[share], "ours" if share else "yardstick")
        for share in shares
    ]
    ratio = Ratio("time with 15% punctuation to time without", took[0.15] / took[0.0], 1.15, True)
    return Report(
        "overhead",
        "Price of punctuation",
        table,
        [ratio],
        drawn,
        "rows/s",
        [f"{rows:,} rows in ten epochs. Time of processors, the least of {max(5, rounds)} in turn."],
    )


def disordered(rows: int, rounds: int) -> Report:
    """State under growing disorder, and the rows that a plan in order would have to keep to sort them."""
    del rounds
    rows = min(rows, 10 * _MOST_ROWS)
    table, drawn, ours, theirs = [], [], [], []
    for depth in (0, 10, 30, 60, 120):
        arrivals = disorder.band(rows, _SECONDS, depth, seed=3)
        measured = run(arrivals, _EXTERNAL, epoch_rows=rows // 60, punctuate=True)
        buffered = sorting_buffer(arrivals)
        ours.append(measured.peak)
        theirs.append(buffered)
        table.append({"late_by_up_to_s": depth, "state_rows": measured.peak, "rows_to_sort_them": buffered})
        drawn += [
            Bar(f"{depth} s: state", measured.peak, "ours"),
            Bar(f"{depth} s: to sort", buffered, "theirs"),
        ]
    ratios = [
        Ratio(
            "growth of state from no disorder to 120 s, to that of a sorting plan",
            _growth(ours) / _growth(theirs),
            0.1,
            True,
        ),
        Ratio("state at 120 s to the rows of a sorting plan", ours[-1] / theirs[-1], 0.5, True),
    ]
    return Report(
        "disorder", "Rows kept under growing disorder", table, ratios, drawn, "rows", [__doc__.strip()]
    )


def sorting_buffer(arrivals: disorder.Arrivals) -> int:
    """The most rows at or above the low watermark that have arrived: what sorting by the same punctuation keeps."""
    low = disorder.low_watermarks(arrivals.at)
    step = max(1, len(arrivals.at) // 200)
    return max(int((arrivals.at[: row + 1] >= low[row]).sum()) for row in range(0, len(arrivals.at), step))


def _growth(state_rows: list[int]) -> float:
    return float(state_rows[-1] - state_rows[0])


def bounded(rows: int, rounds: int) -> Report:
    """State over a long run, and the bound that windows, groups and disorder declare."""
    del rounds
    rows, depth = min(rows, _MOST_ROWS), 20
    arrivals = disorder.band(rows, 20 * _SECONDS, depth, seed=4)
    measured = run(arrivals, _EXTERNAL, epoch_rows=rows // 240, punctuate=True)
    bound = declared_bound(depth, 20 * _SECONDS / 240, len(measured.state))
    every = max(1, len(measured.state) // 40)
    epochs = range(len(measured.state))
    drawn = Curves(
        "Rows of state over a long run",
        ("epoch", "rows"),
        [
            Curve("state", epochs, measured.state, "ours"),
            Curve("declared bound", [0, len(measured.state) - 1], [bound, bound], "yardstick"),
        ],
    )
    half = len(measured.state) // 2
    ratios = [
        Ratio("peak state to the declared bound", measured.peak / bound, 1, True),
        Ratio(
            "mean of the second half to that of the first",
            mean(measured.state[half:]) / mean(measured.state[:half]),
            1.1,
            True,
        ),
    ]
    table = [
        {"epoch": n, "state_rows": measured.state[n], "bound": bound}
        for n in range(0, len(measured.state), every)
    ]
    notes = [
        f"{len(measured.state)} epochs. Bound: partials of live panes, their blocks, and the runs that wait to be merged."
    ]
    return Report("bounded", "State over a long run", table, ratios, [], "rows", notes, picture=drawn)


def declared_bound(depth: int, epoch_seconds: float, epochs: int) -> int:
    """Rows of state at most: partials of each group and live pane, as many again for their blocks, and what waits to be merged.

    A pane is live while it is open (`depth` late) or a window that holds it is. A run of level l holds what FAN_IN**l epochs
    touched, never more than is live; of each level up to `FAN_IN` - 1 runs wait, and one is being written.
    """
    live = -(-(RANGE + depth) // SLIDE) + 1
    rows, level = 2 * live, 0
    while FAN_IN**level <= epochs:
        touched = int((depth + epoch_seconds * FAN_IN**level) // SLIDE) + 2
        rows += FAN_IN * min(2 * touched, 2 * live)
        level += 1
    return KEYS * rows
