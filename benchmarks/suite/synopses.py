"""Bytes and errors of counts within a bound: exponential histograms, the window itself, and the lower bound."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.baselines.histograms.batch_counting import Counting
from benchmarks.charts import Bar, Curve, Curves
from benchmarks.lower_bounds import least_bits
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.synopses.histograms.canonical_form import Form
from headrace.synopses.histograms.delta_coding import encode
from headrace.synopses.histograms.exponential_histogram import Histograms

_WINDOW = 10_000_000
_ERRORS = (Fraction(1, 10), Fraction(1, 20), Fraction(1, 50), Fraction(1, 100), Fraction(1, 1000))
_NOTES = [
    f"One key, the last {_WINDOW:,} of {2 * _WINDOW:,} instants, with a coin for each; the window is eight bytes for every one in it.",
    "Worst error: at a hundred instants. Waiting rows are those that are not put into buckets yet, and are exact.",
    "At rest the times of buckets are differences. No method needs fewer bytes than the lower bound (Theorem 2).",
    "How fast rows are taken in is measured by `updates`.",
]


def synopses(rows: int, rounds: int) -> Report:
    """Counting within 0.1 to 10 percent over the last 10 M instants: bytes, and the worst error."""
    del rows, rounds
    measured = [_kept(error) for error in _ERRORS]
    one_percent = next(row for row in measured if row["within_%"] == 1)
    share, worst = one_percent["share_of_window"], max(row["worst_to_allowed"] for row in measured)
    ratios = [
        Ratio("bytes at 1 % to those of the window, N = 10 M", share, 0.01, at_most=True),
        Ratio("worst error seen to the error allowed", worst, 1, at_most=True),
    ]
    drawn = [Bar(f"within {row['within_%']:g} %", row["bytes"], "ours") for row in measured]
    return Report(
        "synopses",
        "Counting the last 10 M instants: error against memory",
        [_row_of(row) for row in measured],
        ratios,
        drawn,
        "bytes",
        _NOTES,
        picture=_picture(measured),
    )


def _row_of(row: dict[str, Any]) -> dict[str, Any]:
    """The table's row of an error allowed."""
    return {
        "within_%": row["within_%"],
        "buckets": row["buckets"],
        "bytes_with_waiting_rows": row["bytes"],
        "bytes_at_rest": row["at_rest"],
        "no_method_below": row["least"],
        "percent_of_window": round(100 * row["share_of_window"], 4),
        "worst_error_%": round(row["within_%"] * row["worst_to_allowed"], 4),
    }


def _picture(measured: list[dict[str, Any]]) -> Curves:
    """Error against bytes: allowed, seen, at rest, and what no method is below."""
    sizes, allowed = [row["bytes"] for row in measured], [row["within_%"] for row in measured]
    seen = [row["within_%"] * row["worst_to_allowed"] for row in measured]
    return Curves(
        "Counting the last 10 M instants: error against memory (the window: 40 MB)",
        ("bytes, waiting rows included", "error, percent of the truth"),
        [
            Curve("error allowed", sizes, allowed, "yardstick"),
            Curve("worst error seen", sizes, seen, "ours"),
            Curve("allowed, at rest", [row["at_rest"] for row in measured], allowed, "ours"),
            Curve("no method is below", [row["least"] for row in measured], allowed, "theirs"),
        ],
        logarithmic=(True, True),
    )


def _kept(error: Fraction) -> dict[str, Any]:
    """One key, the last 10 M instants of 20 M with a coin for each: bytes at most, error at every batch."""
    form, random = Form.within(error), np.random.default_rng(11)
    counter = Counting(Histograms.empty(form, 1), _WINDOW)
    most, worst, true = 0, 0.0, np.zeros(0, np.int64)
    step = 200_000
    for start in range(0, 2 * _WINDOW, step):
        times = np.flatnonzero(random.random(step) < 0.5) + start
        true = np.r_[true, len(times)][-(_WINDOW // step) :]
        for part in np.array_split(times, 250):
            counter.add(np.zeros(len(part), np.int64), part)
            most = max(most, counter.nbytes)
        exact = int(true.sum())
        estimate = int(counter.estimate(start + step - _WINDOW)[0][0])
        worst = max(worst, abs(estimate - exact) / exact / float(error))
    counter.settle()
    held = counter.histograms
    coded = encode(held.times[:1], held.offsets, held.times)
    return {
        "within_%": float(100 * error),
        "buckets": len(counter.histograms.times),
        "bytes": most,
        "at_rest": 8 + len(coded[0].as_py()),
        "least": int(least_bits(_WINDOW, form.first) / 8),
        "share_of_window": most / (8 * _WINDOW * 0.5),
        "worst_to_allowed": worst,
    }
