"""Several charts in one picture, two beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT, _COLUMNS, _HEAD = 400, 222, 2, 34
_INNER = 'width="760" height="420"'


def beside(title: str, charts: Sequence[str]) -> str:
    """The charts, as `curves` draws them, each at about half its size."""
    rows = -(-len(charts) // _COLUMNS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH * _COLUMNS}" height="{_HEAD + rows * _HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH * _COLUMNS}" height="{_HEAD + rows * _HEIGHT}" fill="white"/>',
        f'<text x="12" y="24" font-size="16">{escape(title)}</text>',
    ]
    for number, chart in enumerate(charts):
        x, y = _WIDTH * (number % _COLUMNS), _HEAD + _HEIGHT * (number // _COLUMNS)
        place = f'x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 760 420"'
        lines.append(chart.replace(_INNER, place, 1).rstrip())
    return "\n".join([*lines, "</svg>"]) + "\n"
