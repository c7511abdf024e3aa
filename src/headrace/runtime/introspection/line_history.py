"""The rows along one line of EXPLAIN's picture in each of the newest epochs, from the home's log of epochs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from headrace.dataclass import dataclass
from headrace.planner.explain.diagram import rows_along
from headrace.planner.explain.plan_graph import Explained
from headrace.runtime.home.home import Home
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.introspection.explain import measured

_MOST_PARTS: Final = 200_000
"""Operators times epochs whose rows are added up."""


@dataclass(frozen=True, slots=True)
class LinePoint:
    """The rows of a line in one epoch; where thousands of operators are logged in turn, those of the epochs since theirs before."""

    epoch: int
    rows: float


def line_history(
    home: Home,
    graph: Explained,
    ends: tuple[str, str],
    epochs: int,
    query: str | None = None,
    chosen: Collection[str] = (),
) -> list[LinePoint]:
    """The newest measured epochs, oldest first, of a line between two boxes by name; fewer than asked for among thousands of operators.

    `query` and `chosen` as in `picture`. Raises `UnknownName` where a box is not in the picture.
    """
    most = min(epochs, max(1, _MOST_PARTS // max(1, len(graph.owners))))
    lines = [line for line in last_lines(Path(home.store.root), most) if "work" in line]
    seen = [observed for line in lines if (observed := measured(graph.sharing, [line])) is not None]
    rows = rows_along(graph, ends, seen, query, chosen)
    return [LinePoint(observation.last, passed) for observation, passed in zip(seen, rows, strict=True)]
