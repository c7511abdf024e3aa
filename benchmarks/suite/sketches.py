"""The cost of sketches of values, compared with exact answers and Apache DataSketches, for one group and for very many.

Time is a multiple of an exact answer from the same batches in the same round; errors are next to those allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from statistics import median
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa

from benchmarks.charts import Bar
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.operators.base.group_codes import hashes
from headrace.synopses.arrays import Ints
from headrace.synopses.sketches.distinct_sketch import DistinctSketch
from headrace.synopses.sketches.frequent_sketch import FrequentSketch
from headrace.synopses.sketches.rank_sketch import Ranking, decode
from headrace.synopses.sketches.sketch_kind import Blobs, Kind
from headrace.synopses.sketches.stable_sketch import StableSketch

_BATCH, _BATCHES = 100_000, 4
_KEYS = (1, 1000, 100_000)
_ERROR = Fraction(1, 100)


def sketches(rows: int, rounds: int) -> Report:
    """Percentiles, distinct counts and frequent values within 1 percent, norms within 10: rows a second and bytes."""
    del rows
    table = [
        _measured(name, keys, rounds)
        for name in _WAYS
        for keys in _KEYS
        if keys < _KEYS[-1] or not name.startswith("norm")
    ]
    ratios = [
        Ratio(
            f"{row['sketch']}: error seen to allowed",
            row["error_seen"] / row["error_allowed"],
            1,
            at_most=True,
        )
        for row in table
        if row["error_seen"] is not None
    ]
    drawn = [
        Bar(
            f"{row['sketch']}, {row['keys']:,} keys",
            row["rows_a_second"],
            "ours" if row["ours"] else "theirs",
        )
        for row in table
    ]
    notes = [
        f"{_BATCHES} batches of {_BATCH:,} rows with keys and values of a Zipf distribution, each merged into what is kept; medians of {rounds} rounds.",
        "Exact: np.unique of all (key, value) pairs so far and their counts, from which each answer could be read, once at the end.",
        "A norm takes all of its registers for any group, 10 KB here: not for 100,000 of them.",
        "DataSketches' KLL is one object a key, fed by numpy arrays; its coins are not seeded, so it answers differently each time.",
    ]
    return Report(
        "sketches", "Rows a second into sketches, by number of groups", table, ratios, drawn, "rows/s", notes
    )


Way = tuple[Kind | None, Callable[[np.ndarray], np.ndarray]]


def _texts(values: np.ndarray) -> np.ndarray:
    return pa.array(values).cast(pa.string()).to_numpy(zero_copy_only=False)


_WAYS: dict[str, Way] = {
    "ranks": (Ranking(_ERROR / 2), lambda values: values.astype(float)),
    "KLL (DataSketches)": (None, lambda values: values.astype(float)),
    "distinct (HLL)": (DistinctSketch.within(_ERROR), lambda values: hashes(pa.array(values))),
    "frequent": (FrequentSketch.within(_ERROR), _texts),
    "norm within 10 %": (StableSketch.within(Fraction(1, 10)), lambda values: hashes(pa.array(values))),
}


def _measured(name: str, keys: int, rounds: int) -> dict[str, Any]:
    kind, prepare = _WAYS[name]
    batches = _BATCHES if keys < _KEYS[-1] else 2
    rates, ratios, seen, size = [], [], None, 0
    for _ in range(rounds):
        random = np.random.default_rng(7)
        drawn = [
            (random.integers(0, keys, _BATCH), random.zipf(1.3, _BATCH) % 1_000_000) for _ in range(batches)
        ]
        started = time.perf_counter()
        exactly = np.unique(
            np.concatenate([owner * 1_000_000 + values for owner, values in drawn]), return_counts=True
        )
        exact = time.perf_counter() - started
        started = time.perf_counter()
        blobs = None if kind is None else _folded(kind, prepare, drawn, keys)
        size = _kll(drawn, keys) if blobs is None else sum(map(len, blobs))
        took = time.perf_counter() - started
        if kind is not None and blobs is not None and keys == 1:
            values = np.sort(np.concatenate([values for _, values in drawn]))
            seen = float(_error(kind, blobs, values, exactly))
        rates.append(batches * _BATCH / took)
        ratios.append(took / exact)
    return {
        "sketch": name,
        "keys": keys,
        "rows_a_second": int(median(rates)),
        "times_exact": round(median(ratios), 2),
        "bytes_a_key": round(size / keys),
        "error_seen": seen,
        "error_allowed": 0.1 if name.startswith("norm") else float(_ERROR),
        "ours": kind is not None,
    }


def _folded(
    kind: Kind, prepare: Callable[[np.ndarray], np.ndarray], drawn: list[tuple[Ints, np.ndarray]], keys: int
) -> Blobs:
    held: Blobs | None = None
    for owner, values in drawn:
        batch_blobs = kind.made(prepare(values), None, owner, keys)
        both = np.r_[np.arange(keys), np.arange(keys)]
        held = batch_blobs if held is None else kind.merged(np.concatenate([held, batch_blobs]), both, keys)
    assert held is not None
    return held


def _kll(drawn: list[tuple[Ints, np.ndarray]], keys: int) -> int:
    held = [datasketches.kll_doubles_sketch(350) for _ in range(keys)]
    for owner, values in drawn:
        order = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[order], np.arange(keys + 1))
        rows = values[order].astype(float)
        for key in np.flatnonzero(np.diff(ends)).tolist():
            held[key].update(rows[ends[key] : ends[key + 1]])
    return sum(len(sketch.serialize()) for sketch in held)


def _error(kind: Kind, blobs: Blobs, values: np.ndarray, exactly: tuple[np.ndarray, np.ndarray]) -> float:
    """The worst relative error that this one key has: of ranks for percentiles, of all rows for counts."""
    if isinstance(kind, Ranking):
        worst = 0.0
        for share in (0.01, 0.1, 0.5, 0.9, 0.99):
            estimate = decode(blobs).quantile(share)[0][0]
            low, high = np.searchsorted(values, estimate, "left"), np.searchsorted(values, estimate, "right")
            rank = (len(values) - 1) * share
            worst = max(worst, (low - rank) / len(values), (rank - high) / len(values))
        return round(worst, 5)
    if isinstance(kind, DistinctSketch):
        return round(abs(float(kind.estimates(blobs)[0][0]) / len(exactly[0]) - 1), 5)
    if isinstance(kind, StableSketch):
        true = float(np.sqrt((exactly[1].astype(float) ** 2).sum()))
        return round(abs(float(kind.estimates(blobs)[0][0]) / true - 1), 5)
    assert isinstance(kind, FrequentSketch)
    times = {str(value): int(number) for value, number in zip(*exactly, strict=True)}
    return round(max(number - times[text] for text, number in kind.most(blobs, 10)[0][0]) / len(values), 5)
