"""The cost of order in a join: experiments E7 and E8, the plans of the thesis and Headrace's operator.

Li, Window Queries over Data Streams (2008), figures 7-6 and 7-7. The operator (`operators/joins/window_join.py`) follows the plan out of
order; it runs by itself, and its time is shown, not judged: a step here is a quarter of a second, and an epoch is a batch. Rows held are
counts, the same on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.baselines.joins import Arrived, Joined, Rows, input_held, out_of_order, output_sorted
from benchmarks.charts import Curve, Curves
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from benchmarks.window_join_runner import window_join

BANDS = (1, 3, 5, 7, 9)
_MILLIS, _STEP, _RATE, _KEYS = 1000, 250, 400, 4000
_WAYS: dict[str, Callable[[Sequence[Arrived], tuple[int, int]], Joined]] = {
    "out of order": out_of_order,
    "output sorted": output_sorted,
    "input held": input_held,
    "headrace": window_join,
}
_IN_ORDER = ("output sorted", "input held")


@dataclass(frozen=True, slots=True)
class _Run:
    held: int
    latency: float
    seconds: float


def joins(rows: int, rounds: int) -> Report:
    """E7 and E8: two ordered streams of 400 rows a second, in step, joined within n seconds, counted every ten seconds of the first."""
    seconds = max(30, min(rows // (2 * _RATE), 90))
    steps = in_step(seconds)
    measured = {band: _all_ways(steps, band, rounds) for band in BANDS}
    table: list[dict[str, Any]] = []
    for band, runs in measured.items():
        row: dict[str, Any] = {"band_s": band}
        for name, run in runs.items():
            label = name.replace(" ", "_")
            row |= {f"{label}_rows": run.held, f"{label}_latency_s": round(run.latency, 3)}
            row |= {f"{label}_ms": round(1000 * run.seconds, 1)}
        table.append(row)
    wide = [band for band in BANDS if band >= 3]
    last = measured[BANDS[-1]]
    gaps = [measured[band]["output sorted"].held - measured[band]["out of order"].held for band in BANDS]
    ratios = [
        Ratio(
            f"{what}, out of order to output sorted, greatest of n >= 3",
            _greatest(measured, wide, what),
            1,
            True,
        )
        for what in ("held", "latency", "seconds")
    ]
    ratios += [
        Ratio("least growth of the gap of rows held", float(np.diff(gaps).min()), 0),
        Ratio(
            "rows held, out of order to input held, greatest of all n",
            max(runs["out of order"].held / runs["input held"].held for runs in measured.values()),
            1,
            True,
        ),
        Ratio(
            "rows held, input held to output sorted at n = 9",
            last["input held"].held / last["output sorted"].held,
            1,
            True,
        ),
        Ratio(
            "rows held, Headrace's operator to out of order, greatest of all n",
            max(runs["headrace"].held / runs["out of order"].held for runs in measured.values()),
            1,
            True,
        ),
        Ratio(
            "latency, Headrace's operator to out of order, greatest of all n",
            max(runs["headrace"].latency / runs["out of order"].latency for runs in measured.values()),
            1,
            True,
        ),
    ]
    drawn = Curves(
        "Rows held at most, by band",
        ("band in seconds", "rows"),
        [
            Curve(name, BANDS, [measured[band][name].held for band in BANDS], kind)
            for name, kind in zip(_WAYS, ("theirs", "theirs", "theirs", "ours"), strict=True)
        ],
    )
    notes = [
        f"{seconds} s, {_KEYS:,} keys, steps of {_STEP} ms, punctuation every second. {__doc__.split('.', 2)[2].strip()}",
        "Latency: from the end of each ten seconds to its count. In order that is when the first pair of the next ten seconds comes.",
    ]
    return Report("joins", "E7, E8: joins in and out of order", table, ratios, [], "", notes, picture=drawn)


def in_step(seconds: int) -> list[Arrived]:
    """Both streams in order, at the same time."""
    rng = np.random.default_rng(21)
    both = []
    for _ in range(2):
        at = np.sort(rng.integers(0, seconds * _MILLIS, seconds * _RATE))
        both.append(Rows(at, rng.integers(0, _KEYS, len(at))))
    steps = []
    for start in range(0, seconds * _MILLIS, _STEP):
        rows = tuple(stream.where((stream.at >= start) & (stream.at < start + _STEP)) for stream in both)
        bound = (start + _STEP) // _MILLIS * _MILLIS
        steps.append(Arrived((rows[0], rows[1]), (bound, bound)))
    return steps


def _all_ways(steps: list[Arrived], band: int, rounds: int) -> dict[str, _Run]:
    ranges = (band * _MILLIS, band * _MILLIS)
    took: dict[str, list[float]] = {name: [] for name in _WAYS}
    joined: dict[str, Joined] = {}
    for _ in range(rounds):
        for name, way in _WAYS.items():
            started = time.perf_counter()
            joined[name] = way(steps, ranges)
            took[name].append(time.perf_counter() - started)
    _same_pairs(joined, min(run.complete[-1] for run in joined.values()))
    return {
        name: _Run(max(run.held), _latency(run, ordered=name in _IN_ORDER), median(took[name]))
        for name, run in joined.items()
    }


def _same_pairs(joined: dict[str, Joined], complete: int) -> None:
    """All ways give the same pairs, up to where all are complete."""
    sorted_pairs = []
    for run in joined.values():
        pairs = np.array([np.concatenate(side) for side in zip(*run.pairs, strict=True)])
        pairs = pairs[:, pairs[0] < complete]
        sorted_pairs.append(pairs[:, np.lexsort(pairs)])
    if any(not np.array_equal(sorted_pairs[0], pairs) for pairs in sorted_pairs[1:]):
        raise WrongAnswer("Expected the same pairs of every join, found others.")


def _latency(joined: Joined, *, ordered: bool) -> float:
    """Mean seconds from the end of each ten seconds to its count."""
    greatest = np.maximum.accumulate([int(pairs[0].max(initial=-1)) for pairs in joined.pairs])
    reached = greatest if ordered else np.array(joined.complete)
    ends = np.arange(10, len(reached) * _STEP // _MILLIS - 2 * BANDS[-1], 10) * _MILLIS
    step = np.searchsorted(reached, ends)
    return float(np.mean((step + 1) * _STEP - ends)) / _MILLIS


def _greatest(measured: dict[int, dict[str, _Run]], bands: list[int], what: str) -> float:
    return max(
        getattr(measured[band]["out of order"], what) / getattr(measured[band]["output sorted"], what)
        for band in bands
    )
