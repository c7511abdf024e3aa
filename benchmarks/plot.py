"""Bar charts as SVG text: one bar per measurement, longest first on request of the caller's order. No dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

_WIDTH, _LEFT, _RIGHT, _BAR, _GAP, _TOP = 760, 210, 90, 22, 10, 46
_OURS, _THEIRS, _YARDSTICK = "#1f6f8b", "#b5651d", "#b9b9b9"


@dataclass(frozen=True, slots=True)
class Bar:
    """One measurement; `kind` is ours, theirs or yardstick and chooses the colour."""

    label: str
    value: float
    kind: str


def bars(title: str, unit: str, drawn: list[Bar]) -> str:
    """A horizontal bar chart; values are printed beside the bars in `unit`."""
    longest = max(bar.value for bar in drawn)
    height = _TOP + len(drawn) * (_BAR + _GAP) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="26" font-size="16">{escape(title)}</text>',
    ]
    for number, bar in enumerate(drawn):
        lines += _bar(bar, _TOP + number * (_BAR + _GAP), longest, unit)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _bar(bar: Bar, y: int, longest: float, unit: str) -> list[str]:
    colour = {"ours": _OURS, "yardstick": _YARDSTICK}.get(bar.kind, _THEIRS)
    width = max(1.0, bar.value / longest * (_WIDTH - _LEFT - _RIGHT))
    text = y + _BAR - 7
    return [
        f'<text x="{_LEFT - 8}" y="{text}" font-size="12" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>',
        f'<text x="{_LEFT + width + 6:.1f}" y="{text}" font-size="12">{bar.value:,.3g} {escape(unit)}</text>',
    ]
