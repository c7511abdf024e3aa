"""EXPLAIN's picture as SVG: columns of boxes from left to right, curves between them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from headrace.dataclass import dataclass
from headrace.planner.explain.diagram import COLOURS, Box, Picture

WIDTH: Final = 248
"""Of a box."""
_GAP: Final = 84
MARGIN: Final = 24
"""Around all boxes."""
_TOP: Final = 64
_LINE: Final = 15
_BETWEEN: Final = 14
_LETTERS: Final = 31
"""The number of letters of the title in a line of a box."""
_TITLE_LINES: Final = 4
_SWEEPS: Final = 4
_THICKEST: Final = 7.0


@dataclass(frozen=True, slots=True)
class Placed:
    """A box, its title in lines, and its place in points from the left and from above."""

    box: Box
    title: tuple[str, ...]
    x: float
    y: float
    height: float

    @property
    def middle(self) -> float:
        """Where lines begin and end."""
        return self.y + self.height / 2


def svg(drawn: Picture) -> str:
    """The picture as a complete document, in UTF-8."""
    placed = placed_boxes(drawn)
    width = max((box.x + WIDTH for box in placed.values()), default=WIDTH) + MARGIN
    height = max((box.y + box.height for box in placed.values()), default=_TOP) + MARGIN
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="12">'
        ),
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="34" font-size="15" fill="#0f172a">{escape(_plain(drawn.caption))}</text>',
        *_curves(drawn, placed),
        *(part for box in placed.values() for part in _box(box)),
        "</svg>",
    ]
    return "\n".join(parts)


def placed_boxes(drawn: Picture) -> dict[str, Placed]:
    """The boxes by id, in columns from left to right."""
    columns: dict[int, list[Box]] = {}
    for box in drawn.boxes:
        columns.setdefault(box.column, []).append(box)
    ordered = _untangled([columns[number] for number in sorted(columns)], _neighbours(drawn))
    titles = {
        box.id: tuple(textwrap.wrap(_plain(box.title), _LETTERS, max_lines=_TITLE_LINES, placeholder=" …"))
        or ("",)
        for box in drawn.boxes
    }
    heights = {box.id: 22 + _LINE * (len(titles[box.id]) + len(box.lines)) for box in drawn.boxes}
    tall = [sum(heights[box.id] for box in column) + _BETWEEN * (len(column) - 1) for column in ordered]
    positions = {}
    for number, column in enumerate(ordered):
        y = _TOP + (max(tall) - tall[number]) / 2
        for box in column:
            x = MARGIN + number * (WIDTH + _GAP)
            positions[box.id] = Placed(box, titles[box.id], x, y, heights[box.id])
            y += heights[box.id] + _BETWEEN
    return positions


def _plain(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return "".join(mark if mark.isprintable() else "\ufffd" for mark in text)


def _neighbours(drawn: Picture) -> Mapping[str, list[str]]:
    neighbours: dict[str, list[str]] = {}
    for line in drawn.lines:
        neighbours.setdefault(line.target, []).append(line.source)
        neighbours.setdefault(line.source, []).append(line.target)
    return neighbours


def _untangled(columns: Sequence[list[Box]], neighbours: Mapping[str, list[str]]) -> list[list[Box]]:
    """Boxes of each column in the order of their neighbours' mean places, so that few lines cross (Sugiyama 1981)."""
    ordered = [list(column) for column in columns]
    for _ in range(_SWEEPS):
        for column in ordered:
            places = {box.id: n / max(1, len(boxes)) for boxes in ordered for n, box in enumerate(boxes)}
            means = {
                box.id: sum(near) / len(near)
                if (near := [places[other] for other in neighbours.get(box.id, ()) if other in places])
                else places[box.id]
                for box in column
            }
            column.sort(key=lambda box, means=means: (box.kind == "more", means[box.id]))  # type: ignore[misc]
    return ordered


def _curves(drawn: Picture, placed: Mapping[str, Placed]) -> Iterator[str]:
    most = max((line.operators for line in drawn.lines), default=1)
    for line in drawn.lines:
        source, target = placed[line.source], placed[line.target]
        thick = 1 + (_THICKEST - 1) * math.sqrt(line.operators / most) if most > 1 else 1.5
        left, right = source.x + WIDTH, target.x
        bend = max(40.0, (right - left) / 2)
        colour = COLOURS[source.box.kind][1]
        yield (
            f'<path d="M{left:.1f},{source.middle:.1f} C{left + bend:.1f},{source.middle:.1f} '
            f'{right - bend:.1f},{target.middle:.1f} {right:.1f},{target.middle:.1f}" fill="none" '
            f'stroke="{colour}" stroke-opacity="0.35" stroke-width="{thick:.1f}">'
            f"<title>{line.operators:,}</title></path>"
        )


def _box(placed: Placed) -> Iterator[str]:
    box = placed.box
    fill, edge = COLOURS[box.kind]
    yield f"<g><title>{escape(_plain(box.title))}</title>"
    yield (
        f'<rect x="{placed.x:.1f}" y="{placed.y:.1f}" width="{WIDTH}" height="{placed.height:.1f}" rx="7" '
        f'fill="{fill}" stroke="{edge}"/>'
    )
    y = placed.y + 19
    for text in placed.title:
        yield f'<text x="{placed.x + 11:.1f}" y="{y:.1f}" fill="#0f172a" font-weight="600">{escape(text)}</text>'
        y += _LINE
    for text in box.lines:
        yield f'<text x="{placed.x + 11:.1f}" y="{y:.1f}" font-size="11" fill="#475569">{escape(text)}</text>'
        y += _LINE
    bar = (WIDTH - 22) * min(1.0, box.share)
    if bar > 0:
        yield (
            f'<rect x="{placed.x + 11:.1f}" y="{placed.y + placed.height - 9:.1f}" width="{bar:.1f}" height="4" rx="2" '
            f'fill="{edge}"/>'
        )
    yield "</g>"
