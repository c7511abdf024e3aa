"""The cost of order in a join: experiments E7, E8, E11 and E12, between the plans of the thesis.

Li, Window Queries over Data Streams (2008), figures 7-6, 7-7, 8-9 and 8-10. No operator of Headrace takes part: these are
the plans among which its join of windows (`operators/joins/window_join.py`) follows the one out of order. Rows held are counts, the same on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.baselines.joins import Arrived, Joined, Rows, input_held, out_of_order, output_sorted
from benchmarks.baselines.windows import Ints
from benchmarks.charts import Curve, Curves
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

BANDS = (1, 3, 5, 7, 9)
SKEWS, LATE = (0, 10, 20, 40, 60, 80, 100), (0, 2, 4, 6, 8, 10)
_MILLIS, _STEP, _RATE, _KEYS = 1000, 250, 400, 4000
_WAYS: dict[str, Callable[[Sequence[Arrived], tuple[int, int]], Joined]] = {
    "out of order": out_of_order,
    "output sorted": output_sorted,
    "input held": input_held,
}


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
    ]
    drawn = Curves(
        "Rows held at most, by band",
        ("band in seconds", "rows"),
        [
            Curve(name, BANDS, [measured[band][name].held for band in BANDS], kind)
            for name, kind in zip(_WAYS, ("ours", "theirs", "theirs"), strict=True)
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
        name: _Run(max(run.held), _latency(run, ordered=name != "out of order"), median(took[name]))
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


@dataclass(frozen=True, slots=True)
class Source:
    """Rows in order that come `late` seconds after their time."""

    at: Ints
    late: float

    def between(self, low: np.ndarray, high: np.ndarray) -> Ints:
        """How many rows of [low, high) there are, by moment."""
        return np.maximum(np.searchsorted(self.at, high) - np.searchsorted(self.at, low), 0)


@dataclass(frozen=True, slots=True)
class _Held:
    """Rows that the plans out of order and in order hold: at their peaks, and on average."""

    peak: tuple[int, int]
    mean: tuple[float, float]


def skewed_joins(rows: int, rounds: int) -> Report:
    """E11: a tumbling join of 10 s between two unions, one source of each late by 0 to 100 s."""
    del rounds
    seconds = 400
    rate = max(10, min(rows // (4 * seconds), 200))
    measured = {
        skew: _rows_held(
            [_source(seconds, rate, 0, 31), _source(seconds, rate, skew, 32)],
            [_source(seconds, rate, 0, 33), _source(seconds, rate, skew, 34)],
            10,
            seconds,
        )
        for skew in SKEWS
    }
    shares = {skew: held.peak[0] / held.peak[1] for skew, held in measured.items()}
    ratios = [
        Ratio("rows held at most, out of order to in order", max(shares.values()), 1.2, True),
        Ratio("the same below 20 s", max(share for skew, share in shares.items() if skew < 20), 1.1, True),
    ]
    return _plans("skewed-joins", "E11: a join of two unions with skew", "skew", measured, ratios, rate)


def late_joins(rows: int, rounds: int) -> Report:
    """E12: a tumbling join of a minute between a stream and a union with a thin source that is late by 0 to 10 s."""
    del rounds
    seconds = 400
    rate = max(10, min(rows // (2 * seconds), 400))
    measured = {
        late: _rows_held(
            [_source(seconds, rate, 0, 41)],
            [_source(seconds, rate, 0, 42), _source(seconds, 1, late, 43)],
            60,
            seconds,
        )
        for late in LATE
    }
    out, in_order = (measured[LATE[-1]].mean[plan] - measured[0].mean[plan] for plan in (0, 1))
    ratios = [
        Ratio(
            "growth of rows held on average from 0 to 10 s, out of order to in order",
            out / in_order,
            0.99,
            True,
        )
    ]
    return _plans("late-joins", "E12: a join with a thin late source", "delay", measured, ratios, rate)


def _source(seconds: int, rate: int, late: float, seed: int) -> Source:
    return Source(np.sort(np.random.default_rng(seed).integers(0, seconds * _MILLIS, seconds * rate)), late)


def _rows_held(left: list[Source], right: list[Source], window: int, seconds: int) -> _Held:
    """What the plan out of order holds (Meld, OA-Join), and the one in order (Merge, then the same join)."""
    moments = np.arange(0, seconds * _MILLIS, 100)
    reached = [[moments - int(lagging.late * _MILLIS) for lagging in side] for side in (left, right)]
    progress = [np.minimum.reduce(side) for side in reached]
    out, in_order = np.zeros(len(moments), np.int64), np.zeros(len(moments), np.int64)
    for side, sources in enumerate((left, right)):
        punctuation = progress[1 - side] // _MILLIS * _MILLIS  # punctuation comes every second
        needed = punctuation // (window * _MILLIS) * (window * _MILLIS)
        needed_in_order = progress[1 - side] // (window * _MILLIS) * (window * _MILLIS)
        for source, until in zip(sources, reached[side], strict=True):
            out += source.between(needed, until)
            in_order += source.between(progress[side], until)  # wait in the merge
            in_order += source.between(needed_in_order, np.minimum(progress[side], until))
    return _Held((int(out.max()), int(in_order.max())), (float(out.mean()), float(in_order.mean())))


def _plans(
    name: str, title: str, varied: str, measured: dict[int, _Held], ratios: list[Ratio], rate: int
) -> Report:
    table = [
        {
            f"{varied}_s": value,
            "out_of_order_rows": held.peak[0],
            "in_order_rows": held.peak[1],
            "out_of_order_rows_on_average": round(held.mean[0]),
            "in_order_rows_on_average": round(held.mean[1]),
        }
        for value, held in measured.items()
    ]
    x = list(measured)
    drawn = Curves(
        "Rows held on average",
        (f"{varied} in seconds", "rows"),
        [
            Curve("out of order", x, [held.mean[0] for held in measured.values()], "ours"),
            Curve("in order", x, [held.mean[1] for held in measured.values()], "theirs"),
        ],
    )
    notes = [
        f"{rate} rows a second and source; rows held follow from the rules of each plan. {__doc__.split('.', 2)[2].strip()}"
    ]
    return Report(name, title, table, ratios, [], "", notes, picture=drawn)
