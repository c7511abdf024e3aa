"""Curves as SVG text: measurements over a quantity that varies, one line a series, a mark at each. No dependencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 420, 80, 24, 70, 52
_COLOURS = {"ours": ("#1f6f8b", "#3a9d6e", "#6a4c93"), "yardstick": ("#b9b9b9", "#808080")}
_THEIRS = ("#b5651d", "#c9a227", "#a23b3b", "#7a5c58")
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Curve:
    """One series; `kind` is ours, theirs or yardstick and chooses the colour."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    kind: str


@dataclass(frozen=True, slots=True)
class _Axis:
    """Values to pixels, from `low` at `start` to `high` at `stop`."""

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool

    @staticmethod
    def over(values: Sequence[float], start: float, stop: float, logarithmic: bool) -> _Axis:
        if logarithmic:
            values = [value for value in values if value > 0] or [1.0]
            low, high = min(values), max(values)
            return _Axis(low, high if high > low else low * 10, start, stop, True)
        low, high = min(0.0, *values), max(values)
        return _Axis(low, high if high > low else low + 1, start, stop, False)

    def at(self, value: float) -> float:
        if self.logarithmic:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.stop - self.start)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            tens = [10.0**power for power in range(first, last + 1)]
            inside = [ten for ten in tens if self.low <= ten <= self.high]
            return inside if len(inside) > 1 else [self.low, self.high]
        return [self.low + (self.high - self.low) * tick / _TICKS for tick in range(_TICKS + 1)]


def curves(
    title: str,
    axes: tuple[str, str],
    drawn: Sequence[Curve],
    *,
    logarithmic: tuple[bool, bool] = (False, False),
) -> str:
    """A chart of all curves; `axes` names what runs across and up, `logarithmic` says which of them by powers of ten."""
    across = _Axis.over([x for each in drawn for x in each.x], _LEFT, _WIDTH - _RIGHT, logarithmic[0])
    up = _Axis.over([y for each in drawn for y in each.y], _HEIGHT - _BOTTOM, _TOP, logarithmic[1])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="12" y="24" font-size="16">{escape(title)}</text>',
        *_grid(across, up, axes),
    ]
    place = float(_LEFT)
    for each, colour in zip(drawn, _colours(drawn), strict=True):
        lines += _line(each, colour, across, up, place)
        place += 34 + 6.6 * len(each.label)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _colours(drawn: Sequence[Curve]) -> list[str]:
    used: dict[str, int] = {}
    found = []
    for each in drawn:
        palette = _COLOURS.get(each.kind, _THEIRS)
        found.append(palette[used.get(each.kind, 0) % len(palette)])
        used[each.kind] = used.get(each.kind, 0) + 1
    return found


def _grid(across: _Axis, up: _Axis, axes: tuple[str, str]) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    lines = []
    for tick in up.ticks():
        y = up.at(tick)
        lines.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e3e3e3"/>')
        lines.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" font-size="11" text-anchor="end">{tick:,.4g}</text>'
        )
    for tick in across.ticks():
        x = across.at(tick)
        lines.append(
            f'<text x="{x:.1f}" y="{bottom + 16}" font-size="11" text-anchor="middle">{tick:,.4g}</text>'
        )
    lines.append(
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 12}" font-size="12" text-anchor="middle">{escape(axes[0])}</text>'
    )
    lines.append(f'<text x="12" y="{_TOP - 10}" font-size="12">{escape(axes[1])}</text>')
    return lines


def _line(each: Curve, colour: str, across: _Axis, up: _Axis, place: float) -> list[str]:
    points = [(across.at(x), up.at(y)) for x, y in zip(each.x, each.y, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    lines = [
        f'<rect x="{place:.0f}" y="34" width="12" height="12" fill="{colour}"/>',
        f'<text x="{place + 16:.0f}" y="44" font-size="12">{escape(each.label)}</text>',
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
    ]
    marks = points if len(points) <= 40 else []
    return lines + [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in marks]
