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
    def told(self) -> str:
        """What is particular about it."""
        few = f"{self.buckets} buckets" if self.buckets != BUCKETS else ""
        return ", ".join(word for word in ("SUM" if self.sums else "", self.order, few) if word)


@dataclass(frozen=True, slots=True)
class Found:
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
    found = [_found(setting, rows) for setting in SETTINGS]
    names = ("heuristic", "equi-width", "equi-depth", *OURS)
    table = [
        {
            "figure": each.setting.figure,
            "about": each.setting.about,
            "data": each.setting.data,
            "with": each.setting.told,
            **{name: round(each.last(name), 2) for name in names},
        }
        for each in found
    ]
    charts = [
        Curves(
            f"Figure {each.setting.figure}: {each.setting.about}, {each.setting.data} {each.setting.told}",
            ("rows", "RMSE so far"),
            [
                Curve(
                    name,
                    each.places.tolist(),
                    np.maximum(each.errors[name], 1e-2).tolist(),
                    KINDS.get(name, "ours"),
                )
                for name in names
            ],
            logarithmic=(False, True),
        )
        for each in found
    ]
    notes = [
        f"{rows:,} rows, {BUCKETS} buckets but where 5 is given, means over {len(_SEEDS)} seeds, errors at every {_EVERY}th position.",
        "pu, wu, pq, wq: piecemeal or wholesale, with uniform or quantile bounds. Reversed: the greatest first. Drop: the first three fifths ten thousand times as great. Great first: the greater three fifths first.",
        "The heuristic starts again at a new minimum, and for the mean counts a row by the mean of its moment, and never by a later one.",
        "The data are substitutes made from seeds; the text's own sets are not public.",
        *_verdicts(found),
    ]
    title = "Correlated aggregates since a landmark: error"
    shown = next(each for each in found if (each.setting.figure, each.setting.data) == ("8", "MULTIFRAC"))
    drawn = [Bar(name, shown.last(name), KINDS.get(name, "ours")) for name in names]
    picture = Grid(title, charts)
    return Report("correlated", title, table, _ratios(found), drawn, "RMSE", notes, picture=picture)


def _ratios(found: list[Found]) -> list[Ratio]:
    """The bars that the text gives, and those of the reference run."""
    ratios = []
    for each in found:
        setting, worst = each.setting, each.ours[1]
        if setting.figure == "4":
            ratios.append(
                Ratio(f"RMSE of COUNT near MIN, {setting.data}, worst of four", worst, 5, at_most=True)
            )
            ratios.append(
                Ratio(f"to equi-depth, {setting.data}", worst / each.last("equi-depth"), 1 / 3, at_most=True)
            )
        if (setting.figure, setting.data) == ("8", "MULTIFRAC"):
            what = "RMSE of COUNT above AVG, MULTIFRAC, worst of four"
            ratios.append(Ratio(what, worst, 30, at_most=True))
            ratios.append(Ratio("to equi-depth", worst / each.last("equi-depth"), 1 / 3, at_most=True))
            grown = max(each.grows(method) for method in OURS)
            ratios.append(
                Ratio("growth over the second half, which doubles the rows", grown, 2, at_most=True)
            )
    return ratios


def _verdicts(found: list[Found]) -> list[str]:
    """What the text claims of each figure, and whether it is so here."""
    by = {(each.setting.figure, each.setting.data, each.setting.order): each for each in found}
    notes = []
    for figure in ("4", "5"):
        for each in (each for each in found if each.setting.figure == figure):
            low, high = each.ours
            others = [each.last(name) for name in ("heuristic", "equi-width")]
            notes.append(
                f"Figure {figure}, {each.setting.data}: {_so(high < each.last('equi-depth') < min(others))} that heuristic and equi-width "
                f"({others[0]:,.4g}, {others[1]:,.4g}) are worst, equi-depth ({each.last('equi-depth'):,.4g}) is better, ours track "
                f"({low:.2f} to {high:.2f}); {_so(max(each.grows(m) for m in OURS) < 1.25)} that ours level off (over the second half "
                f"times {max(each.grows(m) for m in OURS):.2f}, equi-depth times {each.grows('equi-depth'):.2f})."
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
        each = by[figure, data, ""]
        notes.append(
            f"Figure {figure}, {data}: {_so(each.ours[1] < each.last('equi-depth'))} that ours ({each.ours[0]:,.4g} to {each.ours[1]:,.4g}) "
            f"are better than equi-depth ({each.last('equi-depth'):,.4g}); the heuristic has {each.last('heuristic'):,.4g}, equi-width "
            f"{each.last('equi-width'):,.4g}."
        )
    turned = by["10", "USAGE", "reversed"]
    notes.append(
        f"Figure 10: {_so(turned.last('equi-depth') < turned.ours[0] and turned.ours[1] < turned.last('equi-width'))} that in reversed order ours "
        f"({turned.ours[0]:,.4g} to {turned.ours[1]:,.4g}) are between equi-depth ({turned.last('equi-depth'):,.4g}) and equi-width "
        f"({turned.last('equi-width'):,.4g})."
    )
    for order in ("great first", "reversed"):
        each = by["-", "USAGE", order]
        notes.append(
            f"Beyond the text, MIN in the order '{order}': equi-depth {each.last('equi-depth'):,.4g}, "
            f"{', '.join(f'{name} {each.last(name):,.4g}' for name in OURS)}."
        )
    return notes


def _so(holds: bool) -> str:
    return "so here too" if holds else "NOT so here"


def _found(setting: Setting, rows: int) -> Found:
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
    return Found(setting, places, {method: np.mean(each, axis=0) for method, each in curves_of.items()})


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
    found = {"heuristic": np.array(heuristic)}
    for kind in ("equi-width", "equi-depth"):
        found[kind] = np.array(
            [
                by_all(kind, x[: p + 1], y[: p + 1], limit, buckets)
                for p, limit in zip(places, limits, strict=True)
            ]
        )
    one = np.zeros(len(x), np.int64)
    for method, strategy in STRATEGIES.items():
        found[method] = NearMinimum.empty(1, factor, buckets, strategy).follow(one, x, y)[places]
    return exact, found


def _above_mean(x: Doubles, y: Doubles, places: np.ndarray, factor: float, buckets: int) -> Answers:
    del factor
    means = np.cumsum(x) / np.arange(1, len(x) + 1)
    at = means[places]
    exact = np.array([y[: p + 1][x[: p + 1] > mean].sum() for p, mean in zip(places, at, strict=True)])
    found = {"heuristic": np.cumsum(np.where(x > means, y, 0.0))[places]}
    for kind in ("equi-width", "equi-depth"):
        found[kind] = np.array(
            [
                y[: p + 1].sum() - by_all(kind, x[: p + 1], y[: p + 1], mean, buckets)
                for p, mean in zip(places, at, strict=True)
            ]
        )
    one = np.zeros(len(x), np.int64)
    for method, strategy in STRATEGIES.items():
        found[method] = AboveMean.empty(1, buckets, strategy).follow(one, x, y)[places]
    return exact, found


def by_all(kind: str, x: Doubles, y: Doubles, limit: float, buckets: int) -> float:
    """The weight below a limit, by a histogram of everything so far."""
    bounds = np.linspace(x.min(), x.max(), buckets + 1)
    if kind == "equi-depth":
        bounds = np.quantile(x, np.linspace(0, 1, buckets + 1))
    place = np.clip(np.searchsorted(bounds, x, side="right") - 1, 0, buckets - 1)
    total = np.r_[0.0, np.cumsum(np.bincount(place, y, buckets))]
    last = np.r_[bounds[1:] > bounds[:-1], True]
    return float(np.interp(limit, bounds[last], total[last]))
