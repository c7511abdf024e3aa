"""Errors of correlated aggregates from a few buckets: the experiments of Gehrke, Korn, Srivastava (2001) over a landmark scope.

Root mean square errors over the positions of the stream so far, by position, with those of two heuristics and of histograms of all rows so
far, computed again at each position: equi-width and equi-depth, which no one-pass method could have. Whether a figure confirms
what the text claims of it is computed from the errors, and written in the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.baselines.correlated.correlated import AboveMean, NearMinimum
from benchmarks.baselines.correlated.focused_histograms import STRATEGIES
from benchmarks.charts import Bar, Curve, Curves, Grid
from benchmarks.correlated_data import FACTORS, GENERATORS, Doubles, great_first, reversed_order, sudden_drop
from benchmarks.report import Report
from benchmarks.rmse import so_far
from benchmarks.thresholds import Ratio

_ROWS = 20_000
_EVERY = 100
_SEEDS = (1, 2, 3, 4, 5)
BUCKETS = 10


SHORT: Final = dict(zip(STRATEGIES, ("pu", "wu", "pq", "wq"), strict=True))
OURS: Final = tuple(SHORT.values())
KINDS: Final = {"heuristic": "yardstick", "equi-width": "theirs", "equi-depth": "theirs"}
_ORDERS: Final[Mapping[str, Callable[[Doubles], Doubles]]] = {
    "": lambda values: values,
    "reversed": reversed_order,
    "drop": sudden_drop,
    "great first": great_first,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One panel of a figure."""

    figure: str
    about: str
    data: str
    sums: bool = False
    order: str = ""
    buckets: int = BUCKETS

    @property
    def variant(self) -> str:
        """What is particular about it."""
        few = f"{self.buckets} buckets" if self.buckets != BUCKETS else ""
        return ", ".join(word for word in ("SUM" if self.sums else "", self.order, few) if word)


@dataclass(frozen=True, slots=True)
class Errors:
    """RMSE so far by position and method, means over the seeds."""

    setting: Setting
    places: np.ndarray
    errors: Mapping[str, Doubles]

    def last(self, method: str) -> float:
        return float(self.errors[method][-1])

    def grows(self, method: str) -> float:
        """The RMSE at the end as a multiple of that at half."""
        return self.last(method) / max(float(self.errors[method][len(self.places) // 2 - 1]), 1e-9)

    @property
    def ours(self) -> tuple[float, float]:
        """The least and the greatest of the four."""
        every = [self.last(method) for method in OURS]
        return min(every), max(every)


SETTINGS: Final = (
    Setting("4", "MIN", "USAGE"),
    Setting("4", "MIN", "ZIPF"),
    Setting("4", "MIN", "MULTIFRAC"),
    Setting("5", "MIN", "USAGE", sums=True),
    Setting("5", "MIN", "ZIPF", sums=True),
    Setting("6", "MIN", "USAGE", order="drop"),
    Setting("7", "MIN", "USAGE", buckets=5),
    Setting("8", "AVG", "USAGE"),
    Setting("8", "AVG", "MULTIFRAC"),
    Setting("8", "AVG", "MGCTY"),
    Setting("9", "AVG", "USAGE", sums=True),
    Setting("9", "AVG", "MULTIFRAC", sums=True),
    Setting("10", "AVG", "USAGE", order="reversed"),
    Setting("-", "MIN", "USAGE", order="great first"),
    Setting("-", "MIN", "USAGE", order="reversed"),
)


def correlated(rows: int, rounds: int) -> Report:
    """Figures 4 to 10: COUNT and SUM near the minimum and above the mean, a sudden drop, reversed order, five buckets."""
    del rounds
    rows = min(rows, _ROWS)
    results = [_errors_of(setting, rows) for setting in SETTINGS]
    names = ("heuristic", "equi-width", "equi-depth", *OURS)
    table = [
        {
            "figure": result.setting.figure,
            "about": result.setting.about,
            "data": result.setting.data,
            "with": result.setting.variant,
            **{name: round(result.last(name), 2) for name in names},
        }
        for result in results
    ]
    charts = [
        Curves(
            f"Figure {result.setting.figure}: {result.setting.about}, {result.setting.data} {result.setting.variant}",
            ("rows", "RMSE so far"),
            [
                Curve(
                    name,
                    result.places.tolist(),
                    np.maximum(result.errors[name], 1e-2).tolist(),
                    KINDS.get(name, "ours"),
                )
                for name in names
            ],
            logarithmic=(False, True),
        )
        for result in results
    ]
    notes = [
        f"{rows:,} rows, {BUCKETS} buckets but where 5 is given, means over {len(_SEEDS)} seeds, errors at every {_EVERY}th position.",
        "pu, wu, pq, wq: piecemeal or wholesale, with uniform or quantile bounds. Reversed: the greatest first. Drop: the first three fifths ten thousand times as great. Great first: the greater three fifths first.",
        "The heuristic starts again at a new minimum, and for the mean counts a row by the mean of its moment, and never by a later one.",
        "The data are substitutes made from seeds; the text's own sets are not public.",
        *_verdicts(results),
    ]
    title = "Correlated aggregates since a landmark: error"
    shown = next(
        result for result in results if (result.setting.figure, result.setting.data) == ("8", "MULTIFRAC")
    )
    drawn = [Bar(name, shown.last(name), KINDS.get(name, "ours")) for name in names]
    picture = Grid(title, charts)
    return Report("correlated", title, table, _ratios(results), drawn, "RMSE", notes, picture=picture)


def _ratios(results: list[Errors]) -> list[Ratio]:
    """The bars that the text gives, and those of the reference run."""
    ratios = []
    for result in results:
        setting, worst = result.setting, result.ours[1]
        if setting.figure == "4":
            ratios.append(
                Ratio(f"RMSE of COUNT near MIN, {setting.data}, worst of four", worst, 5, at_most=True)
            )
            ratios.append(
                Ratio(
                    f"to equi-depth, {setting.data}", worst / result.last("equi-depth"), 1 / 3, at_most=True
                )
            )
        if (setting.figure, setting.data) == ("8", "MULTIFRAC"):
            what = "RMSE of COUNT above AVG, MULTIFRAC, worst of four"
            ratios.append(Ratio(what, worst, 30, at_most=True))
            ratios.append(Ratio("to equi-depth", worst / result.last("equi-depth"), 1 / 3, at_most=True))
            grown = max(result.grows(method) for method in OURS)
            ratios.append(
                Ratio("growth over the second half, which doubles the rows", grown, 2, at_most=True)
            )
    return ratios


def _verdicts(results: list[Errors]) -> list[str]:
    """What the text claims of each figure, and whether it is so here."""
    by = {(result.setting.figure, result.setting.data, result.setting.order): result for result in results}
    notes = []
    for figure in ("4", "5"):
        for result in (result for result in results if result.setting.figure == figure):
            low, high = result.ours
            others = [result.last(name) for name in ("heuristic", "equi-width")]
            notes.append(
                f"Figure {figure}, {result.setting.data}: {_so(high < result.last('equi-depth') < min(others))} that heuristic and equi-width "
                f"({others[0]:,.4g}, {others[1]:,.4g}) are worst, equi-depth ({result.last('equi-depth'):,.4g}) is better, ours track "
                f"({low:.2f} to {high:.2f}); {_so(max(result.grows(m) for m in OURS) < 1.25)} that ours level off (over the second half "
                f"times {max(result.grows(m) for m in OURS):.2f}, equi-depth times {result.grows('equi-depth'):.2f})."
            )
    drop, few = by["6", "USAGE", "drop"], by["7", "USAGE", ""]
    fall = len(drop.places) * 3 // 5
    before = {name: float(drop.errors[name][fall - 1]) for name in ("equi-depth", *OURS)}
    falls = [name for name in OURS if drop.last(name) < before[name]]
    notes.append(
        f"Figure 6: {_so(drop.last('equi-depth') > before['equi-depth'] and len(falls) == len(OURS))} that after the drop equi-depth rises "
        f"({before['equi-depth']:.2f} to {drop.last('equi-depth'):.2f}) and ours fall "
        f"({', '.join(f'{name} {before[name]:.2f} to {drop.last(name):.2f}' for name in OURS)})."
    )
    order = sorted(OURS, key=few.last)
    notes.append(
        f"Figure 7: {_so(few.ours[1] < few.last('equi-depth'))} that with five buckets ours are best; {_so(order == ['pu', *sorted(('wu', 'wq'), key=few.last), 'pq'])} "
        f"that pu is the best of them and pq the worst: here {' < '.join(f'{name} {few.last(name):.2f}' for name in order)}."
    )
    for figure, data in (
        ("8", "USAGE"),
        ("8", "MULTIFRAC"),
        ("8", "MGCTY"),
        ("9", "USAGE"),
        ("9", "MULTIFRAC"),
    ):
        result = by[figure, data, ""]
        notes.append(
            f"Figure {figure}, {data}: {_so(result.ours[1] < result.last('equi-depth'))} that ours ({result.ours[0]:,.4g} to {result.ours[1]:,.4g}) "
            f"are better than equi-depth ({result.last('equi-depth'):,.4g}); the heuristic has {result.last('heuristic'):,.4g}, equi-width "
            f"{result.last('equi-width'):,.4g}."
        )
    turned = by["10", "USAGE", "reversed"]
    notes.append(
        f"Figure 10: {_so(turned.last('equi-depth') < turned.ours[0] and turned.ours[1] < turned.last('equi-width'))} that in reversed order ours "
        f"({turned.ours[0]:,.4g} to {turned.ours[1]:,.4g}) are between equi-depth ({turned.last('equi-depth'):,.4g}) and equi-width "
        f"({turned.last('equi-width'):,.4g})."
    )
    for order in ("great first", "reversed"):
        result = by["-", "USAGE", order]
        notes.append(
            f"Beyond the text, MIN in the order '{order}': equi-depth {result.last('equi-depth'):,.4g}, "
            f"{', '.join(f'{name} {result.last(name):,.4g}' for name in OURS)}."
        )
    return notes


def _so(holds: bool) -> str:
    return "so here too" if holds else "NOT so here"


def _errors_of(setting: Setting, rows: int) -> Errors:
    places = np.arange(_EVERY - 1, rows, _EVERY)
    curves_of: dict[str, list[Doubles]] = {}
    for seed in _SEEDS:
        random = np.random.default_rng(seed)
        x = _ORDERS[setting.order](GENERATORS[setting.data](rows, random))
        y = random.uniform(0, 10, rows) if setting.sums else np.ones(rows)
        answers = _near_minimum if setting.about == "MIN" else _above_mean
        exact, others = answers(x, y, places, FACTORS[setting.data], setting.buckets)
        for method, answer in others.items():
            curves_of.setdefault(SHORT.get(method, method), []).append(so_far(answer - exact))
    return Errors(setting, places, {method: np.mean(curves, axis=0) for method, curves in curves_of.items()})


Answers = tuple[Doubles, dict[str, Doubles]]


def _near_minimum(x: Doubles, y: Doubles, places: np.ndarray, factor: float, buckets: int) -> Answers:
    least = np.minimum.accumulate(x)
    limits = factor * least[places]
    exact = np.array([y[: p + 1][x[: p + 1] < limit].sum() for p, limit in zip(places, limits, strict=True)])
    fresh = np.flatnonzero(np.r_[True, least[1:] < least[:-1]])
    since = fresh[np.searchsorted(fresh, places, side="right") - 1]
    heuristic = [
        y[s : p + 1][x[s : p + 1] < limit].sum() for s, p, limit in zip(since, places, limits, strict=True)
    ]
    answers = {"heuristic": np.array(heuristic)}
    for kind in ("equi-width", "equi-depth"):
        answers[kind] = np.array(
            [
                by_all(kind, x[: p + 1], y[: p + 1], limit, buckets)
                for p, limit in zip(places, limits, strict=True)
            ]
        )
    one = np.zeros(len(x), np.int64)
    for method, strategy in STRATEGIES.items():
        answers[method] = NearMinimum.empty(1, factor, buckets, strategy).follow(one, x, y)[places]
    return exact, answers


def _above_mean(x: Doubles, y: Doubles, places: np.ndarray, factor: float, buckets: int) -> Answers:
    del factor
    means = np.cumsum(x) / np.arange(1, len(x) + 1)
    at = means[places]
    exact = np.array([y[: p + 1][x[: p + 1] > mean].sum() for p, mean in zip(places, at, strict=True)])
    answers = {"heuristic": np.cumsum(np.where(x > means, y, 0.0))[places]}
    for kind in ("equi-width", "equi-depth"):
        answers[kind] = np.array(
            [
                y[: p + 1].sum() - by_all(kind, x[: p + 1], y[: p + 1], mean, buckets)
                for p, mean in zip(places, at, strict=True)
            ]
        )
    one = np.zeros(len(x), np.int64)
    for method, strategy in STRATEGIES.items():
        answers[method] = AboveMean.empty(1, buckets, strategy).follow(one, x, y)[places]
    return exact, answers


def by_all(kind: str, x: Doubles, y: Doubles, limit: float, buckets: int) -> float:
    """The weight below a limit, by a histogram of everything so far."""
    bounds = np.linspace(x.min(), x.max(), buckets + 1)
    if kind == "equi-depth":
        bounds = np.quantile(x, np.linspace(0, 1, buckets + 1))
    index = np.clip(np.searchsorted(bounds, x, side="right") - 1, 0, buckets - 1)
    total = np.r_[0.0, np.cumsum(np.bincount(index, y, buckets))]
    last = np.r_[bounds[1:] > bounds[:-1], True]
    return float(np.interp(limit, bounds[last], total[last]))
