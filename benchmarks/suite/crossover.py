"""The crossover of panes and rows: folding rows, not folding, and the operator's choice, from hardly a row a group and pane to many.

Li, Window Queries over Data Streams (2008), section 6.3: the cost model 6.1 to 6.4 gives from how many rows of a group in a
pane, and panes in a window, it is cheaper to fold a row once than to put it into each of its windows. Here the place where
that turns is measured, and what choosing costs more than knowing: the *regret*. *Panes* are those of AdaptWID, of which groups of
few rows are stored as these; *partials* alone are the quickest where state is no matter. The operator of the pipeline runs as in `adapt`;
a second is a pane, four epochs a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.adaptive_ways import Way, WayRun, every_way
from benchmarks.charts import Curve, Curves
from benchmarks.report import Report
from benchmarks.skewed_groups import Skewed
from benchmarks.thresholds import Ratio
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.panes.panes import Panes
from headrace.operators.panes.window_cost_model import rows_for_panes_to_pay
from headrace.time import SECOND

_MOST_ROWS = 20_000
_SECONDS = 8
_PANES = (2, 5, 20)
_ROWS_A_GROUP = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 32.0)
_WAYS: tuple[Way, ...] = ("eager", "adaptive", "lazy", "chosen")


def drawn_evenly(rows: int, rows_a_group: float, seed: int) -> Skewed:
    """Rows of a second that fall evenly into so many groups that each has `rows_a_group` rows on average."""
    groups = max(1, round(rows / rows_a_group))
    return Skewed(np.random.default_rng(seed).integers(0, groups, rows), groups, 0, 0)


def crossover(rows: int, rounds: int) -> Report:
    """Windows of 2, 5 and 20 panes, from 0.1 to 32 rows of a group in a pane."""
    rows = min(rows, _MOST_ROWS)
    table: list[dict[str, Any]] = []
    regrets: list[float] = []
    lines: list[Curve] = []
    for held in _PANES:
        window = TimeSlide(held * SECOND, SECOND)
        unfolded, chosen = [], []
        for number, rows_a_group in enumerate(_ROWS_A_GROUP):
            periods = [
                drawn_evenly(rows, rows_a_group, seed=1000 * number + second) for second in range(_SECONDS)
            ]
            runs = every_way(window, periods, rounds, ways=_WAYS)
            seconds = {way: _settled(one) for way, one in runs.items()}
            unfolded.append(seconds["lazy"] / seconds["adaptive"])
            chosen.append(seconds["chosen"] / min(seconds["lazy"], seconds["adaptive"]))
            table.append(_row(held, rows_a_group, runs, seconds))
        regrets += chosen
        lines.append(Curve(f"none to panes, {held}", _ROWS_A_GROUP, unfolded, "theirs"))
        lines.append(Curve(f"chosen to better, {held}", _ROWS_A_GROUP, chosen, "ours"))
    title = "Panes or none: what is chosen against the better of both"
    axes = ("rows of a group in a pane", "time, to that of panes (rows) or of the better (chosen)")
    return Report(
        "crossover",
        title,
        table,
        _bars(regrets),
        (),
        "",
        [_note(rows), _model()],
        picture=Curves(title, axes, lines, logarithmic=(True, False)),
    )


def _settled(run: WayRun) -> float:
    """Seconds without the first second of the stream, after which it is chosen by what was measured."""
    return sum(run.steps[4:])


def _row(
    held: int, rows_a_group: float, runs: dict[Way, WayRun], seconds: dict[Way, float]
) -> dict[str, Any]:
    milliseconds = {f"{_WORDS[way]}_ms": round(1000 * seconds[way], 1) for way in _WAYS}
    best = min(_WAYS[:-1], key=lambda way: seconds[way])
    regret = round(seconds["chosen"] / min(seconds["lazy"], seconds["adaptive"]), 2)
    state = round(runs["chosen"].peak / min(runs[way].peak for way in _WAYS[:-1]), 2)
    return {
        "panes": held,
        "rows_a_group_and_pane": rows_a_group,
        **milliseconds,
        "best": _WORDS[best],
        "chosen_to_better": regret,
        "peak_state_to_least": state,
    }


_WORDS = {"eager": "partials", "adaptive": "panes", "lazy": "none", "chosen": "chosen"}


def _bars(regrets: Sequence[float]) -> list[Ratio]:
    return [
        Ratio("regret of the choice, the middle of all", float(np.median(regrets)), 1.1, True),
        Ratio("regret of the choice, the worst", max(regrets), 1.5, True),
    ]


def _note(rows: int) -> str:
    return f"{rows:,} rows a second, {_SECONDS} seconds, SUM by a group drawn evenly; runs merged when there are more than 3."


def _model() -> str:
    panes = [Panes.of(TimeSlide(held * SECOND, SECOND)) for held in _PANES]
    thresholds = [
        f"{rows_for_panes_to_pay(window) / (window.per_window or 1):.2f} at {window.per_window}"
        for window in panes
    ]
    return f"By the model panes pay from so many rows of a group in a pane: {', '.join(thresholds)} panes a window."
