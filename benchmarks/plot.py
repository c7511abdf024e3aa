"""Charts as SVG text, by matplotlib: it draws to a file without a browser, and its SVG is the same for the same figures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from benchmarks.charts import Bars, Chart, Curves, Grid
from benchmarks.folders import cache

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PALETTE = {
    "ours": ("#1f6f8b", "#3a9d6e", "#6a4c93"),
    "theirs": ("#b5651d", "#c9a227", "#a23b3b", "#7a5c58", "#d98880", "#4d4d4d", "#6b8e23", "#e07b39"),
    "yardstick": ("#b9b9b9", "#808080", "#5f9ea0"),
}
_STYLE = {"svg.hashsalt": "headrace", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
_WIDTH, _BAR_HEIGHT, _HEIGHT = 7.9, 0.3, 4.4
_MOST_MARKS = 40
_MOST_INSIDE = 6
"""Curves whose names find room between the axes."""


def svg(chart: Chart) -> str:
    """The picture. Needs matplotlib, of the optional dependencies `bench`."""
    os.environ.setdefault("MPLCONFIGDIR", str(cache() / "matplotlib"))
    import matplotlib as mpl  # noqa: PLC0415 - only drawing needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(_STYLE):
        charts = chart.charts if isinstance(chart, Grid) else [chart]
        columns = min(2, len(charts))
        rows = -(-len(charts) // columns)
        figure = Figure(
            (_WIDTH * (1.3 if columns > 1 else 1), rows * max(map(_height, charts))), layout="constrained"
        )
        places = figure.subplots(rows, columns, squeeze=False).flat
        for part, axes in zip(charts, places, strict=False):
            _draw(part, axes)
        for axes in places:
            axes.set_axis_off()
        if isinstance(chart, Grid):
            figure.suptitle(chart.title)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _height(chart: Bars | Curves) -> float:
    return 0.9 + _BAR_HEIGHT * len(chart.drawn) if isinstance(chart, Bars) else _HEIGHT


def _draw(chart: Bars | Curves, axes: Axes) -> None:
    axes.set_title(chart.title)
    axes.spines[["top", "right"]].set_visible(False)
    if isinstance(chart, Bars):
        _bars(chart, axes)
    else:
        _curves(chart, axes)


def _bars(chart: Bars, axes: Axes) -> None:
    labels = [bar.label for bar in chart.drawn]
    colours = [_PALETTE[bar.kind][0] for bar in chart.drawn]
    drawn = axes.barh(range(len(labels)), [bar.value for bar in chart.drawn], color=colours)
    axes.bar_label(drawn, [f" {bar.value:,.3g}" for bar in chart.drawn])
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(chart.unit)
    axes.margins(x=0.12)
    if chart.logarithmic:
        axes.set_xscale("log")


def _curves(chart: Curves, axes: Axes) -> None:
    for curve, colour in zip(chart.drawn, _colours([curve.kind for curve in chart.drawn]), strict=True):
        mark = "o" if len(curve.x) <= _MOST_MARKS else ""
        style = "--" if curve.kind == "yardstick" else "-"
        axes.plot(
            curve.x, curve.y, label=curve.label, color=colour, marker=mark, markersize=4, linestyle=style
        )
    across, up = chart.logarithmic
    if across:
        axes.set_xscale("log")
    if up:
        axes.set_yscale("log", nonpositive="clip")
    else:
        axes.set_ylim(bottom=min(0.0, *(y for curve in chart.drawn for y in curve.y)))
    axes.set_xlabel(chart.axes[0])
    axes.set_ylabel(chart.axes[1])
    axes.grid(color="#e3e3e3")
    many = len(chart.drawn) > _MOST_INSIDE
    outside = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if many else {}
    axes.legend(frameon=False, fontsize="small", **outside)


def _colours(kinds: Sequence[str]) -> list[str]:
    """A colour for each, different among those of one kind while the palette lasts."""
    used: Counter[str] = Counter()
    colours = []
    for kind in kinds:
        palette = _PALETTE[kind]
        colours.append(palette[used[kind] % len(palette)])
        used[kind] += 1
    return colours
