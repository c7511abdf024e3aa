"""What do counts within a bound cost and take? Exponential histograms beside adding rows up, and beside the window itself.

Time is told as a multiple of `numpy.bincount` over the same batches in the same round; bytes beside eight for every time that
an exact window of the last N rows would keep.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from statistics import median
from typing import Any

import numpy as np

from benchmarks.curves import Curve, curves
from benchmarks.lower_bounds import least_bits
from benchmarks.plot import Bar
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.synopses.canonical import Form, Ints
from headrace.synopses.counting import Counting
from headrace.synopses.delta_coding import encode
from headrace.synopses.exponential_histogram import Histograms

_BATCH = 500_000
_PANES = 50
_WINDOW = 10_000_000
_KEYS = (1, 1000, 100_000)
_ERRORS = (Fraction(1, 10), Fraction(1, 20), Fraction(1, 50), Fraction(1, 100), Fraction(1, 1000))

Add = Callable[[Counting, Ints, int], None]


def _by_row(counter: Counting, keys: Ints, batch: int) -> None:
    """Each row at its own instant."""
    counter.add(keys, np.arange(batch * _BATCH, (batch + 1) * _BATCH))


def _by_pane(counter: Counting, keys: Ints, batch: int) -> None:
    """Rows at the instants that windows tell apart."""
    counter.add_ones(keys, np.arange(_BATCH) // (_BATCH // _PANES) + batch * _PANES)


def synopses(rows: int, rounds: int) -> Report:
    """Counting by key within 1 percent over the last 10 M rows: time, bytes, error."""
    del rows
    table, ratios = [], []
    for keys in _KEYS:
        for what, add, length in (
            ("rows", _by_row, _WINDOW),
            ("panes", _by_pane, _WINDOW // _BATCH * _PANES),
        ):
            found = _measured(keys, add, length, rounds)
            table.append({"keys": keys, "instants": what, **found})
            if (keys, what) == (1000, "panes"):
                ratios.append(
                    Ratio(
                        "1000 keys, time to that of numpy.bincount", found["times_bincount"], 10, at_most=True
                    )
                )
    kept = [_kept(error) for error in _ERRORS]
    one_percent = next(row for row in kept if row["within_%"] == 1)
    ratios.append(
        Ratio(
            "bytes at 1 % to those of the window, N = 10 M",
            one_percent["share_of_window"],
            0.01,
            at_most=True,
        )
    )
    ratios.append(
        Ratio(
            "worst error seen to the error allowed",
            max(row["worst_to_allowed"] for row in kept),
            1,
            at_most=True,
        )
    )
    drawn = [Bar(f"within {row['within_%']:g} %", row["bytes"], "ours") for row in kept]
    sizes = [row["bytes"] for row in kept]
    picture = curves(
        "Counting the last 10 M rows: error against memory (the window: 80 MB)",
        ("bytes, waiting rows included", "error, percent of the truth"),
        [
            Curve("error allowed", sizes, [row["within_%"] for row in kept], "yardstick"),
            Curve(
                "worst error seen", sizes, [row["within_%"] * row["worst_to_allowed"] for row in kept], "ours"
            ),
            Curve(
                "allowed, at rest",
                [row["at_rest"] for row in kept],
                [row["within_%"] for row in kept],
                "ours",
            ),
            Curve(
                "no method is below",
                [row["least"] for row in kept],
                [row["within_%"] for row in kept],
                "theirs",
            ),
        ],
        logarithmic=(True, True),
    )
    notes = [
        f"Batches of {_BATCH:,} rows over {_PANES} panes, keys uniform, window of {_WINDOW:,} rows; medians of {rounds} rounds.",
        "Rows: every row has an instant of its own. Panes: instants that windows tell apart, as operators count.",
        "With 100,000 keys a window of 10 M rows holds 100 rows a key, which is no more than its buckets: nothing is gained there.",
        *(
            f"Within {row['within_%']:g} %: {row['buckets']:,} buckets, {row['bytes']:,} bytes with waiting rows, {row['at_rest']:,} at rest "
            f"(times coded as differences), of which no method needs less than {row['least']:,} (Theorem 2); "
            f"{100 * row['share_of_window']:.3f} % of the window; {row['worst_to_allowed']:.2f} of the error allowed."
            for row in kept
        ),
    ]
    return Report(
        "synopses",
        "Bytes that counting the last 10 M rows takes (the window: 80 MB)",
        table,
        ratios,
        drawn,
        "bytes",
        notes,
        picture=picture,
    )


def _measured(keys: int, add: Add, length: int, rounds: int) -> dict[str, Any]:
    """A window's worth of batches first, then half of one timed, in turn with bincount on each batch."""
    ratios, rates, counter = [], [], Counting(Histograms.empty(Form.within(Fraction(1, 100)), keys), length)
    for _ in range(rounds):
        random = np.random.default_rng(7)
        counter = Counting(Histograms.empty(Form.within(Fraction(1, 100)), keys), length)
        ours = theirs = 0.0
        for batch in range(2 * _WINDOW // _BATCH):
            drawn = random.integers(0, keys, _BATCH)
            warm = batch >= _WINDOW // _BATCH
            started = time.perf_counter()
            np.bincount(drawn, minlength=keys)
            counted = time.perf_counter()
            add(counter, drawn, batch)
            ended = time.perf_counter()
            ours, theirs = ours + warm * (ended - counted), theirs + warm * (counted - started)
        ratios.append(ours / theirs)
        rates.append(_WINDOW / ours)
    return {
        "rows_a_second": int(median(rates)),
        "times_bincount": round(median(ratios), 2),
        "buckets_a_key": round(len(counter.histograms.times) / keys, 1),
        "bytes": counter.nbytes,
        "bytes_of_window": 8 * _WINDOW,
    }


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
