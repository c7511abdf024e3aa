"""How far off are correlated aggregates over windows that slide? Figures 12 and 13 of Gehrke, Korn, Srivastava (2001).

Beside them what queries use: ranks kept by pane (`synopses/ranks`), which have a bound, in as many buckets and in as many bytes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.correlated_data import GENERATORS, Doubles, multifrac, zipf
from benchmarks.panels import Panel, panels
from benchmarks.plot import Bar
from benchmarks.report import Report
from benchmarks.suite.correlated import BUCKETS, by_all
from benchmarks.thresholds import Ratio
from headrace.synopses.focused_histogram import BEST, STRATEGIES
from headrace.synopses.ranked import Ranking, decode
from headrace.synopses.sliding_correlated import SlidingAboveMean, SlidingNearMinimum

_WINDOW = 500
_ROWS = 4000
_SEEDS = (1, 2, 3)
_PANE = 50
_ANEW = "counted anew"

_MINIMA = {
    "USAGE": (lambda rows, random: np.ceil(random.lognormal(3.0, 2.0, rows)), 100.0),
    "MULTIFRAC": (lambda rows, random: multifrac(rows, random, levels=14), 100.0),
    "ZIPF": (lambda rows, random: zipf(rows, random, 1.0, 10_000), 1001.0),
}


def correlated_sliding(rows: int, rounds: int) -> Report:
    """Figures 12 and 13: COUNT near the minimum and above the mean of the last 500 rows."""
    del rounds
    rows = min(rows, _ROWS)
    table = [_row("12", "MIN", name, rows, 1.0) for name in _MINIMA]
    table += [_row("13", "AVG", name, rows, 3.0) for name in GENERATORS]
    table.append(_row("13", "AVG", "ZIPF", rows, 1.0))
    ratios = []
    for row in table:
        if row["about"] == "MIN":
            ratios.append(
                Ratio(
                    f"{_ANEW} near MIN to equi-depth, {row['data']}",
                    row[_ANEW] / row["equi-depth"],
                    1,
                    at_most=True,
                )
            )
        elif row["with"] == "z = 3":
            ratios.append(
                Ratio(
                    f"{_ANEW} above AVG to equi-depth, {row['data']}",
                    row[_ANEW] / row["equi-depth"],
                    3.5,
                    at_most=True,
                )
            )
    charts = [
        Panel(
            f"Figure {row['figure']}: {row['about']}, {row['data']}, {row['with']}",
            [Bar(n, row[n], _kind(n)) for n in _NAMES],
        )
        for row in table
    ]
    notes = [
        f"{rows:,} rows, windows of {_WINDOW}, {BUCKETS} buckets, means over {len(_SEEDS)} seeds, errors over w positions at a time.",
        f"{_ANEW.capitalize()}: piecemeal-uniform, laid out and counted anew from the rows of the window once a window; the others as in the text.",
        "Equi-width and equi-depth are histograms of the window itself, computed anew at each position.",
        (
            f"Ranks are what queries use: a summary for each {_PANE} rows, merged for a window at every {_PANE}th row, with a bound that "
            f"holds; BUCKETS {BUCKETS} and BUCKETS {4 * BUCKETS}."
        ),
        _told(table),
    ]
    return Report(
        "correlated-sliding",
        "Correlated counts over the last 500 rows: error",
        table,
        ratios,
        charts[0].drawn,
        "RMSE",
        notes,
        picture=panels("Correlated counts over the last 500 rows", "RMSE", charts),
    )


_NAMES = ("equi-width", "equi-depth", *STRATEGIES, _ANEW, "ranks 10", "ranks 40")


def _kind(name: str) -> str:
    return "yardstick" if name.startswith("ranks") else "ours" if name in (*STRATEGIES, _ANEW) else "theirs"


def _told(table: list[dict[str, Any]]) -> str:
    """Which rankings of the text come out."""
    minima = [row for row in table if row["about"] == "MIN"]
    means = [row for row in table if row["about"] == "AVG" and row["with"] == "z = 3"]
    quantile = sum(
        min(row["piecemeal quantile"], row["wholesale quantile"])
        > max(row["piecemeal uniform"], row["wholesale uniform"])
        for row in minima
    )
    depth = sum(row["equi-depth"] < row["piecemeal uniform"] for row in means)
    uniform = sum(row["piecemeal uniform"] < row["piecemeal quantile"] for row in means)
    uniformly = [
        row["data"] for row in minima if row["piecemeal uniform"] <= min(row[name] for name in STRATEGIES)
    ]
    return (
        f"The text has piecemeal-uniform best near the minimum: so for {' and '.join(uniformly) or 'none'} of {len(minima)} here; and the "
        f"quantile policies worst: so in {quantile} of {len(minima)}. Above the mean it has equi-depth slightly better than ours: so in "
        f"{depth} of {len(means)}; and uniform somewhat better than quantile: so in "
        f"{uniform} of {len(means)}."
    )


def _row(figure: str, about: str, name: str, rows: int, z: float) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for seed in _SEEDS:
        random = np.random.default_rng(seed)
        make, factor = _MINIMA[name] if about == "MIN" else (GENERATORS[name], 0.0)
        x = make(rows, random)
        held = [x[max(place - _WINDOW + 1, 0) : place + 1] for place in range(rows)]
        limits = np.array([factor * part.min() if factor else part.mean() for part in held])
        exact = np.array(
            [
                (part < at).sum() if factor else (part > at).sum()
                for part, at in zip(held, limits, strict=True)
            ]
        )
        sizes = np.array([len(part) for part in held])

        def note(
            method: str, answer: Doubles, places: Any = slice(_WINDOW, None), exact: Doubles = exact
        ) -> None:
            found.setdefault(method, []).append(float(np.sqrt(np.mean((answer - exact)[places] ** 2))))

        for kind in ("equi-width", "equi-depth"):
            below = np.array(
                [
                    by_all(kind, part, np.ones(len(part)), at, BUCKETS)
                    for part, at in zip(held, limits, strict=True)
                ]
            )
            note(kind, below if factor else sizes - below)
        for method, strategy, anew in (*((*each, False) for each in STRATEGIES.items()), (_ANEW, BEST, True)):
            synopsis = (
                SlidingNearMinimum(factor, _WINDOW, BUCKETS, strategy, rebuilds=anew)
                if factor
                else SlidingAboveMean(_WINDOW, BUCKETS, strategy, z, rebuilds=anew)
            )
            note(method, synopsis.add(x, np.ones(rows)))
        for buckets in (BUCKETS, 4 * BUCKETS):
            places = np.arange(_WINDOW - 1, rows, _PANE)
            answer = exact.astype(float)
            answer[places] = _ranks(x, limits, places, buckets, strictly=bool(factor))
            note(
                f"ranks {buckets}",
                answer if factor else np.where(np.isin(np.arange(rows), places), sizes - answer, exact),
                places,
            )
    means = {method: round(float(np.mean(errors)), 2) for method, errors in found.items()}
    return {
        "figure": figure,
        "about": about,
        "data": name,
        "with": f"z = {z:g}" if about == "AVG" else "",
        **means,
    }


def _ranks(x: Doubles, limits: Doubles, places: np.ndarray, buckets: int, *, strictly: bool) -> Doubles:
    """What lies below the limits, by merged summaries of panes."""
    kind = Ranking(Fraction(1, 2 * buckets))
    blobs = kind.made(x, None, np.arange(len(x)) // _PANE, -(-len(x) // _PANE))
    told = []
    for place in places.tolist():
        stop = (place + 1) // _PANE
        part = blobs[stop - _WINDOW // _PANE : stop]
        low, high = decode(kind.merged(part, np.zeros(len(part), np.int64), 1)).upto(
            np.array([limits[place]]), strictly=strictly
        )
        told.append((low[0] + high[0]) / 2)
    return np.array(told)
