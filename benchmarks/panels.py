"""Small bar charts side by side as SVG text, one a row of a table, each on its own logarithmic scale. No dependencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.plot import Bar

_WIDTH, _COLUMNS, _BAR, _GAP, _TOP, _LEFT, _RIGHT = 380, 2, 15, 4, 44, 128, 62
_COLOURS = {"ours": "#1f6f8b", "yardstick": "#b9b9b9"}
_THEIRS = "#b5651d"


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    title: str
    drawn: Sequence[Bar]


def panels(title: str, unit: str, charts: Sequence[Panel]) -> str:
    """All charts, two beside each other; the left end of a scale is half of its least value."""
    height = _TOP + max(len(chart.drawn) for chart in charts) * (_BAR + _GAP) + 12
    rows = -(-len(charts) // _COLUMNS)
    whole = 34 + rows * height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH * _COLUMNS}" height="{whole}" font-family="sans-serif">',
        f'<rect width="{_WIDTH * _COLUMNS}" height="{whole}" fill="white"/>',
        f'<text x="12" y="24" font-size="16">{escape(title)} ({escape(unit)}, logarithmic)</text>',
    ]
    for number, chart in enumerate(charts):
        lines += _panel(chart, _WIDTH * (number % _COLUMNS), 34 + height * (number // _COLUMNS))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(chart: Panel, x: int, y: int) -> list[str]:
    values = [max(bar.value, 1e-3) for bar in chart.drawn]
    low, high = min(values) / 2, max(values)
    lines = [f'<text x="{x + 12}" y="{y + 28}" font-size="13">{escape(chart.title)}</text>']
    for place, (bar, value) in enumerate(zip(chart.drawn, values, strict=True)):
        top = y + _TOP + place * (_BAR + _GAP)
        width = math.log(value / low) / math.log(high / low) * (_WIDTH - _LEFT - _RIGHT)
        text, colour = top + _BAR - 4, _COLOURS.get(bar.kind, _THEIRS)
        lines += [
            f'<text x="{x + _LEFT - 6}" y="{text}" font-size="11" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect x="{x + _LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>',
            f'<text x="{x + _LEFT + width + 4:.1f}" y="{text}" font-size="11">{bar.value:,.3g}</text>',
        ]
    return lines
