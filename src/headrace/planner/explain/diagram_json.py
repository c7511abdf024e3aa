"""EXPLAIN's picture as plain values for the console: boxes with their places, the rows along each line, and the content
of one box.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.dataclass import dataclass
from headrace.planner.explain.diagram import Box, Picture
from headrace.planner.explain.diagram_svg import MARGIN, WIDTH, placed_boxes
from headrace.planner.explain.plan_graph import Explained, QueryCost
from headrace.planner.explain.plan_text import measures


def as_json(drawn: Picture) -> dict[str, Any]:
    """The picture: sizes in points, boxes and lines; a box is named by `name`, so that it is found in the next picture."""
    placed = placed_boxes(drawn)
    return {
        "caption": drawn.caption,
        "width": max((placed_box.x + WIDTH for placed_box in placed.values()), default=WIDTH) + MARGIN,
        "height": max((placed_box.y + placed_box.height for placed_box in placed.values()), default=MARGIN)
        + MARGIN,
        "boxes": [
            {
                "name": placed_box.box.name,
                "kind": placed_box.box.kind,
                "title": placed_box.title,
                "lines": placed_box.box.lines,
                "share": placed_box.box.share,
                "x": placed_box.x,
                "y": placed_box.y,
                "width": WIDTH,
                "height": placed_box.height,
            }
            for placed_box in placed.values()
        ],
        "lines": [
            {
                "source": placed[line.source].box.name,
                "target": placed[line.target].box.name,
                "operators": line.operators,
                "rows": line.rows,
            }
            for line in drawn.lines
        ],
    }


@dataclass(frozen=True, slots=True)
class BoxContent:
    """The content of a box: each piece of its work in a line, and the queries that have a part in it, the costliest first."""

    title: str
    works: tuple[str, ...]
    queries: tuple[QueryCost, ...]


def content_of(graph: Explained, box: Box, most: int) -> BoxContent:
    """The content of a box, with at most so many pieces of work."""
    works = graph.sharing.works
    names = set(box.queries)
    for index in box.places:
        names.update(graph.queries_of(works[index].users))
    return BoxContent(
        box.title,
        tuple(_described(graph, box.places[:most])),
        tuple(cost for cost in graph.costs if cost.name in names),
    )


def _described(graph: Explained, places: tuple[int, ...]) -> Iterator[str]:
    for index in places:
        measured = "; ".join(measures(graph, index))
        yield f"{graph.sharing.works[index].label}{': ' if measured else ''}{measured}"
