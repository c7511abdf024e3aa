"""Rows a second of windowed counts of many keys: exponential histograms, an exact window and DataSketches.

An exact window keeps the key of every row in it, adds what enters and subtracts what leaves; it answers for one window size. The
histograms answer for every size up to theirs. Correlated aggregates of many keys at once are compared with an object for each key, given its
rows in turn, and with a window that keeps the values. DataSketches has no windows; its count-min sketch counts by key since the
beginning, a row at a time as its Python interface has it. All take the same batches in turn, in one process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import median
from typing import Any, Protocol

import datasketches
import numpy as np

from benchmarks.baselines.histograms.batch_counting import Counting
from benchmarks.baselines.histograms.general_histogram import GeneralHistograms
from benchmarks.baselines.histograms.norms import PowerOfNorm
from benchmarks.charts import Bar, Bars, Grid
from benchmarks.correlated_contenders import WAYS, correlated_contenders
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.synopses.arrays import Ints
from headrace.synopses.histograms.canonical_form import Form
from headrace.synopses.histograms.exponential_histogram import Histograms

_KEYS = (1, 1000, 100_000)
_PANES = 50
_BATCHES = 20
_FEW = 20_000
"""Rows of a batch that contenders without batches are given."""
_SOME = {1: 5000, 1000: 100_000, 100_000: 100_000}
"""Rows of a batch for correlated aggregates, by keys."""
_TIMES_FASTER = {1000: 5, 100_000: 20}


class Contender(Protocol):
    """Something that counts by key."""

    def add(self, keys: Ints, batch: int) -> None:
        """Take in a batch of rows by their keys."""

    @property
    def nbytes(self) -> int:
        """What it keeps."""


@dataclass
class AddedUp:
    """Counts since the beginning: the least that any of them has to do."""

    keys: int

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.keys, np.int64)

    def add(self, keys: Ints, batch: int) -> None:
        del batch
        self.counts += np.bincount(keys, minlength=self.keys)

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes


@dataclass
class ExactWindow:
    """The rows of the last `batches` batches and their counts."""

    keys: int
    batches: int
    held: deque[Ints] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.keys, np.int64)

    def add(self, keys: Ints, batch: int) -> None:
        del batch
        self.held.append(keys.copy())
        self.counts += np.bincount(keys, minlength=self.keys)
        if len(self.held) > self.batches:
            self.counts -= np.bincount(self.held.popleft(), minlength=self.keys)

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes + sum(part.nbytes for part in self.held)


@dataclass
class Histogram:
    """Counts within `error`; rows at their own instants, or at those of panes, or weighing 0 to 999 (SUM)."""

    keys: int
    rows: int
    error: Fraction
    how: str

    def __post_init__(self) -> None:
        instants = _PANES if self.how == "panes" else self.rows
        histograms = Histograms.empty(Form.within(self.error), self.keys)
        self.counting = Counting(histograms, instants * _BATCHES)

    def add(self, keys: Ints, batch: int) -> None:
        many = len(keys)
        if self.how == "panes":
            self.counting.add_ones(keys, np.arange(many) * _PANES // many + batch * _PANES)
        else:
            times = np.arange(batch * many, (batch + 1) * many)
            self.counting.add(keys, times, times * 7919 % 1000 if self.how == "sums" else None)

    @property
    def nbytes(self) -> int:
        return self.counting.nbytes


@dataclass
class GeneralWindow:
    """Sums of squares of eight counters a key, as general histograms of accuracy 10 keep them."""

    keys: int
    rows: int

    def __post_init__(self) -> None:
        self.measure = PowerOfNorm(2.0, 8)
        self.held = GeneralHistograms.empty(self.measure, 10, self.keys)

    def add(self, keys: Ints, batch: int) -> None:
        many = len(keys)
        times = np.arange(many) * _PANES // many + batch * _PANES
        self.held = self.held.absorb(keys, times, self.measure.rows(times % 8, np.ones(many)))
        self.held = self.held.since((batch + 1 - _BATCHES) * _PANES)

    @property
    def nbytes(self) -> int:
        return self.held.nbytes


@dataclass
class CountMin:
    """DataSketches' count-min sketch within 1 percent, 99 times of 100; one for all keys."""

    def __post_init__(self) -> None:
        sketch = datasketches.count_min_sketch
        self.sketch = sketch(sketch.suggest_num_hashes(0.99), sketch.suggest_num_buckets(0.01))

    def add(self, keys: Ints, batch: int) -> None:
        del batch
        for key in keys.tolist():
            self.sketch.update(key)

    @property
    def nbytes(self) -> int:
        return len(self.sketch.serialize())


def _contenders(keys: int, rows: int) -> dict[str, tuple[Callable[[], Contender], int]]:
    """What to make, and how many rows of a batch it is given."""
    one, ten = Fraction(1, 100), Fraction(1, 10)
    return {
        "added up": (lambda: AddedUp(keys), rows),
        "exact window": (lambda: ExactWindow(keys, _BATCHES), rows),
        "EH 1 %, panes": (lambda: Histogram(keys, rows, one, "panes"), rows),
        "EH 1 %, rows": (lambda: Histogram(keys, rows, one, "rows"), rows),
        "EH 10 %, rows": (lambda: Histogram(keys, rows, ten, "rows"), rows),
        "EH 1 %, sums": (lambda: Histogram(keys, rows, one, "sums"), rows),
        "general f, k = 10": (lambda: GeneralWindow(keys, rows), min(rows, _FEW)),
        "count-min (DataSketches)": (CountMin, min(rows, _FEW)),
        **correlated_contenders(keys, _BATCHES, min(rows, _SOME[keys])),
    }


def updates(rows: int, rounds: int) -> Report:
    """Rows a second into counts over windows of 20 batches, and into correlated aggregates; 1 to 100,000 keys."""
    batch = min(rows, 500_000)
    table = [row for keys in _KEYS for row in _measured(keys, batch, rounds)]
    charts = [
        Bars(
            f"{keys:,} {'key' if keys == 1 else 'keys'}",
            "rows/s",
            [Bar(row["contender"], row["rows_a_second"], _kind(row)) for row in table if row["keys"] == keys],
            logarithmic=True,
        )
        for keys in _KEYS
    ]
    notes = [
        f"Batches of {batch:,} rows with uniform keys, windows of {_BATCHES} batches; medians of {rounds} rounds over as many batches again.",
        f"{_FEW:,} rows a batch for general f and count-min, which take a row's summary, and a row, at a time.",
        "Panes: rows at the 50 instants of a batch that windows distinguish, as operators count; rows: each at its own; sums: weighing 0 to 999.",
        "The exact window answers for one size; a histogram for every size up to it, and within its bound.",
        f"With 100,000 keys a window holds {_BATCHES * batch // _KEYS[-1]} rows a key, no more than its buckets within 1 %: there nothing is gained, and the exact window is the one to have.",
        *_correlated_notes(table, batch),
    ]
    title = "Rows a second into windowed counts and correlated aggregates"
    return Report(
        "updates",
        title,
        table,
        [*_count_ratios(table), *_correlated_ratios(table)],
        (),
        "rows/s",
        notes,
        picture=Grid(title, charts),
    )


def _count_ratios(table: list[dict[str, Any]]) -> list[Ratio]:
    thousand = {row["contender"]: row for row in table if row["keys"] == 1000}
    return [
        Ratio(
            "1000 keys, time of counting within 1 % to that of numpy.bincount",
            thousand["EH 1 %, panes"]["times_added_up"],
            10,
            at_most=True,
        ),
        *(
            Ratio(
                f"{row['keys']:,} {'key' if row['keys'] == 1 else 'keys'}, rows a second within 1 % to count-min's",
                row["rows_a_second"] / _of(table, row["keys"], "count-min (DataSketches)")["rows_a_second"],
                1,
            )
            for row in table
            if row["contender"] == "EH 1 %, rows" and row["keys"] < _KEYS[-1]
        ),
        Ratio(
            "1000 keys, bytes within 10 % to those of the exact window",
            thousand["EH 10 %, rows"]["share_of_window"],
            0.1,
            at_most=True,
        ),
    ]


def _correlated_ratios(table: list[dict[str, Any]]) -> list[Ratio]:
    """All keys at once, to one key after the other."""
    return [
        Ratio(
            f"{keys:,} keys, {name}: rows a second of all at once to those of one key at a time",
            _of(table, keys, name)["rows_a_second"]
            / _of(table, keys, f"{name}, one key at a time")["rows_a_second"],
            _TIMES_FASTER[keys],
        )
        for keys in _TIMES_FASTER
        for name in WAYS
    ]


def _correlated_notes(table: list[dict[str, Any]], batch: int) -> list[str]:
    exact = {keys: _of(table, keys, "exact window of values")["rows_a_second"] for keys in _KEYS}
    times = {name: [exact[keys] / _of(table, keys, name)["rows_a_second"] for keys in _KEYS] for name in WAYS}
    dearer = ", ".join(
        f"{name} {' / '.join(f'{rate:.0f}' for rate in rates)}" for name, rates in times.items()
    )
    many = ", ".join(f"{keys:,}" for keys in _KEYS)
    batch_sizes = ", ".join(f"{min(batch, _SOME[keys]):,}" for keys in _KEYS)
    return [
        (
            f"Correlated: COUNT of x near MIN(x) or above AVG(x), lognormal x, ten buckets, since a landmark or over as many rows of a key as come in "
            f"{_BATCHES} batches; {batch_sizes} rows a batch with {many} keys. One key at a time: as many rows a key, of one key in fifty where there are many."
        ),
        (
            f"Time of a row to that in the exact window of values, with {many} keys: {dearer}. That window only keeps "
            "and adds up; it has to read all of its values whenever it is asked, a synopsis a few buckets of each key."
        ),
        "One key at a time: bytes are those of the numbers; Python's objects take several times as much.",
    ]


_THEIRS = ("window", "count-min", "one key at a time")


def _kind(row: dict[str, Any]) -> str:
    name = row["contender"]
    return (
        "yardstick" if name == "added up" else "theirs" if any(word in name for word in _THEIRS) else "ours"
    )


def _of(table: list[dict[str, Any]], keys: int, contender: str) -> dict[str, Any]:
    return next(row for row in table if (row["keys"], row["contender"]) == (keys, contender))


def _measured(keys: int, batch: int, rounds: int) -> list[dict[str, Any]]:
    """A window's worth of batches first, then as many timed, each contender in turn on each batch."""
    contenders = _contenders(keys, batch)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        random = np.random.default_rng(7)
        running = {name: make() for name, (make, _) in contenders.items()}
        took = dict.fromkeys(running, 0.0)
        most = dict.fromkeys(running, 0)
        for number in range(2 * _BATCHES):
            drawn = random.integers(0, keys, batch)
            for name, contender in running.items():
                part = drawn[: contenders[name][1]]
                started = time.perf_counter()
                contender.add(part, number)
                took[name] += (time.perf_counter() - started) * (number >= _BATCHES)
                most[name] = max(most[name], contender.nbytes if number >= _BATCHES else 0)
        for name, seconds in took.items():
            rates[name].append(_BATCHES * contenders[name][1] / seconds)
        sizes = most
    added = median(rates["added up"])
    exact = median(rates["exact window"])
    return [
        {
            "keys": keys,
            "contender": name,
            "rows_a_second": int(median(measured)),
            "times_added_up": round(added / median(measured), 2),
            "times_exact_window": round(exact / median(measured), 2),
            "bytes_at_most": sizes[name],
            "share_of_window": round(sizes[name] / (8 * _BATCHES * contenders[name][1]), 5),
        }
        for name, measured in rates.items()
    ]
