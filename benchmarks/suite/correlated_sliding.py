"""Errors of correlated aggregates over windows that slide: figures 12 and 13 of Gehrke, Korn, Srivastava (2001).

Root mean square errors over the last w positions, by position. With them what queries use: ranks kept by pane (`synopses/ranks`),
which have a bound, in as many buckets and in four times as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from benchmarks.baselines.correlated.focused_histograms import BEST, STRATEGIES
from benchmarks.baselines.correlated.sliding_correlated import SlidingAboveMean, SlidingNearMinimum
from benchmarks.charts import Bar, Curve, Curves, Grid
from benchmarks.correlated_data import GENERATORS, Doubles, multifrac, zipf
from benchmarks.report import Report
from benchmarks.rmse import of_last
from benchmarks.suite.correlated import BUCKETS, OURS, SHORT, by_all
from benchmarks.thresholds import Ratio
from headrace.synopses.sketches.rank_sketch import Ranking, decode

_WINDOW = 500
_ROWS = 4000
_SEEDS = (1, 2, 3)
_PANE = 50
_ANEW: Final = "pu anew"
_NAMES: Final = ("equi-width", "equi-depth", *OURS, _ANEW, "ranks 10", "ranks 40")

_Make = Callable[[int, np.random.Generator], Doubles]
_MINIMA: Final[Mapping[str, tuple[_Make, float]]] = {
    "USAGE": (lambda rows, random: np.ceil(random.lognormal(3.0, 2.0, rows)), 100.0),
    "MULTIFRAC": (lambda rows, random: multifrac(rows, random, levels=14), 100.0),
    "ZIPF": (lambda rows, random: zipf(rows, random, 1.0, 10_000), 1001.0),
}


@dataclass(frozen=True, slots=True)
class Errors:
    """RMSE over the last w rows, at every 50th position from the first full window on; means over the seeds."""

    figure: str
    about: str
    data: str
    z: float
    errors: Mapping[str, Doubles]

    def mean(self, method: str) -> float:
        return float(self.errors[method].mean())

    @property
    def variant(self) -> str:
        """What is particular about it."""
        return f"z = {self.z:g}" if self.about == "AVG" else ""

    @property
    def places(self) -> list[int]:
        return (2 * _WINDOW - 1 + _PANE * np.arange(len(self.errors["equi-depth"]))).tolist()

    def recovers(self, method: str) -> tuple[float, float]:
        """The mean error over the first and over the last quarter."""
        part = max(len(self.errors[method]) // 4, 1)
        return float(self.errors[method][:part].mean()), float(self.errors[method][-part:].mean())


def correlated_sliding(rows: int, rounds: int) -> Report:
    """Figures 12 and 13: COUNT near the minimum and above the mean of the last 500 rows."""
    del rounds
    rows = min(rows, _ROWS)
    results = [_errors_of("12", "MIN", name, rows, 1.0) for name in _MINIMA]
    results += [_errors_of("13", "AVG", name, rows, 3.0) for name in GENERATORS]
    results += [_errors_of("13", "AVG", name, rows, 1.0) for name in ("ZIPF", "MGCTY")]
    table = [
        {
            "figure": result.figure,
            "about": result.about,
            "data": result.data,
            "with": result.variant,
            **{name: round(result.mean(name), 2) for name in _NAMES},
        }
        for result in results
    ]
    ratios = [
        Ratio(
            f"{_ANEW} {'near MIN' if result.about == 'MIN' else 'above AVG'} to equi-depth, {result.data}",
            result.mean(_ANEW) / result.mean("equi-depth"),
            1 if result.about == "MIN" else 3.5,
            at_most=True,
        )
        for result in results
        if result.about == "MIN" or result.z > 1
    ]
    charts = [
        Curves(
            f"Figure {result.figure}: {result.about}, {result.data} {result.variant}",
            ("rows", "RMSE of the last 500"),
            [
                Curve(name, result.places, np.maximum(result.errors[name], 1e-2).tolist(), _kind(name))
                for name in _NAMES
            ],
            logarithmic=(False, True),
        )
        for result in results
    ]
    notes = [
        f"{rows:,} rows, windows of {_WINDOW}, {BUCKETS} buckets, means over {len(_SEEDS)} seeds of the RMSE over the last {_WINDOW} rows.",
        "pu, wu, pq, wq: piecemeal or wholesale, with uniform or quantile bounds, as in the text but for its misprints.",
        f"{_ANEW}: pu, laid out and counted again from the rows of the window once a window, which is the library's default.",
        "Equi-width and equi-depth are histograms of the window itself, computed again at each position.",
        (
            f"Ranks are what queries use: a summary for each {_PANE} rows, merged for a window at every {_PANE}th row, with a bound that "
            f"holds; BUCKETS {BUCKETS} and BUCKETS {4 * BUCKETS}."
        ),
        *_verdicts(results),
    ]
    title = "Correlated counts over the last 500 rows: error"
    shown = results[1]
    drawn = [Bar(name, shown.mean(name), _kind(name)) for name in _NAMES]
    return Report(
        "correlated-sliding", title, table, ratios, drawn, "RMSE", notes, picture=Grid(title, charts)
    )


def _kind(name: str) -> str:
    return "yardstick" if name.startswith("ranks") else "ours" if name in (*OURS, _ANEW) else "theirs"


def _verdicts(results: list[Errors]) -> Iterator[str]:
    """Which rankings of the text come out, with the numbers."""
    for result in results:
        order = sorted(OURS, key=result.mean)
        ranked = ", ".join(f"{name} {result.mean(name):.2f}" for name in order)
        depth = result.mean("equi-depth")
        head = f"Figure {result.figure}, {result.about}, {result.data}{', ' + result.variant if result.variant else ''}: "
        if result.about == "MIN":
            comparable = result.mean("pu") <= depth
            worst = min(result.mean("pq"), result.mean("wq")) > max(result.mean("pu"), result.mean("wu"))
            first = min(OURS, key=result.mean) == "pu"
            yield (
                f"{head}{_so(comparable)} that pu is as good as equi-depth ({depth:.2f}); {_so(first)} that it is the best of the four policies, and "
                f"{_so(worst)} that the quantile policies are worst: {ranked}."
            )
            continue
        better, uniform = depth < result.mean("pu"), result.mean("pu") < result.mean("pq")
        yield (
            f"{head}{_so(better)} that equi-depth ({depth:.2f}) is better than ours, and {_so(uniform)} that uniform is better than "
            f"quantile: {ranked}; counted again {result.mean(_ANEW):.2f}."
        )
    start = next(
        result for result in results if (result.data, result.z) == ("ZIPF", 1.0) and result.about == "AVG"
    )
    recoveries = {name: start.recovers(name) for name in ("wu", "wq")}
    yield (
        f"Figure 13: {_so(all(late < early for early, late in recoveries.values()))} that both wholesale ones recover on ZIPF (z = 1, as in the "
        f"text; first and last quarter): {', '.join(f'{name} {early:.2f}, {late:.2f}' for name, (early, late) in recoveries.items())}."
    )


def _so(holds: bool) -> str:
    return "so here too" if holds else "NOT so here"


def _errors_of(figure: str, about: str, name: str, rows: int, z: float) -> Errors:
    every: dict[str, list[Doubles]] = {}
    for seed in _SEEDS:
        for method, errors in _errors(about, name, rows, z, np.random.default_rng(seed)):
            every.setdefault(method, []).append(errors)
    return Errors(
        figure, about, name, z, {method: np.mean(curves, axis=0) for method, curves in every.items()}
    )


def _errors(
    about: str, name: str, rows: int, z: float, random: np.random.Generator
) -> Iterator[tuple[str, Doubles]]:
    """RMSE over the last w rows at every 50th position, by method."""
    make, factor = _MINIMA[name] if about == "MIN" else (GENERATORS[name], 0.0)
    x = make(rows, random)
    held = [x[max(position - _WINDOW + 1, 0) : position + 1] for position in range(rows)]
    limits = np.array([factor * part.min() if factor else part.mean() for part in held])
    pairs = list(zip(held, limits.tolist(), strict=True))
    exact = np.array([(part < at).sum() if factor else (part > at).sum() for part, at in pairs])
    sizes = np.array([len(part) for part in held])

    def rmse(answer: Doubles) -> Doubles:
        return of_last((answer - exact)[_WINDOW - 1 :], _WINDOW)[::_PANE]

    for kind in ("equi-width", "equi-depth"):
        below = np.array([by_all(kind, part, np.ones(len(part)), at, BUCKETS) for part, at in pairs])
        yield kind, rmse(below if factor else sizes - below)
    ways = [(SHORT[method], strategy, False) for method, strategy in STRATEGIES.items()]
    for method, strategy, anew in (*ways, (_ANEW, BEST, True)):
        synopsis: Any = (
            SlidingNearMinimum.empty(1, factor, _WINDOW, BUCKETS, strategy, rebuilds=anew)
            if factor
            else SlidingAboveMean.empty(1, _WINDOW, BUCKETS, strategy, z=z, rebuilds=anew)
        )
        yield method, rmse(synopsis.follow(np.zeros(rows, np.int64), x, np.ones(rows)))
    places = np.arange(_WINDOW - 1, rows, _PANE)
    for buckets in (BUCKETS, 4 * BUCKETS):
        below = _ranks(x, limits, places, buckets, strictly=bool(factor))
        answer = below if factor else sizes[places] - below
        yield f"ranks {buckets}", of_last(answer - exact[places], _WINDOW // _PANE)[1:]


def _ranks(x: Doubles, limits: Doubles, places: np.ndarray, buckets: int, *, strictly: bool) -> Doubles:
    """What is below the limits, by merged summaries of panes."""
    kind = Ranking(Fraction(1, 2 * buckets))
    blobs = kind.made(x, None, np.arange(len(x)) // _PANE, -(-len(x) // _PANE))
    estimates = []
    for position in places.tolist():
        stop = (position + 1) // _PANE
        part = blobs[stop - _WINDOW // _PANE : stop]
        low, high = decode(kind.merged(part, np.zeros(len(part), np.int64), 1)).upto(
            np.array([limits[position]]), strictly=strictly
        )
        estimates.append((low[0] + high[0]) / 2)
    return np.array(estimates)
