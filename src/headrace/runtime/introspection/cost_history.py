"""The cost, selectivity, results and state of one query over the newest epochs, from the home's log of epochs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.observation import OperatorObservation
from headrace.planner.explain.plan_graph import Explained
from headrace.runtime.home.home import Home
from headrace.runtime.introspection.epoch_log import last_lines

_MOST_PARTS: Final = 200_000
"""Operators times epochs whose parts of shared work are added up."""


@dataclass(frozen=True, slots=True)
class CostPoint:
    """A query in one epoch: the nanoseconds attributed to it (see `cost_attribution`), and its own measurements."""

    epoch: int
    nanoseconds: float
    rows_in: int
    rows_kept: int
    results: int
    state_rows: int


def cost_history(home: Home, graph: Explained, query: str, epochs: int) -> list[CostPoint]:
    """The newest epochs in which the query was measured, oldest first; fewer than asked for where thousands share its work."""
    of_query = frozenset(operator for operator, owner in graph.owners.items() if owner == query)
    places = {index for operator in of_query for index in graph.sharing.places[operator]}
    users = sum(len(graph.sharing.works[index].users) for index in places)
    lines = last_lines(Path(home.store.root), min(epochs, max(1, _MOST_PARTS // max(1, users))))
    return [
        CostPoint(
            line["epoch"],
            sum(_attributed(graph, line, of_query, places)),
            seen.rows_in,
            seen.rows_kept,
            seen.results,
            seen.state_rows,
        )
        for line in lines
        if "work" in line and of_query & line["operators"].keys()
        for seen in (_measured(line["operators"], of_query),)
    ]


def _measured(operators: Mapping[str, Mapping[str, int]], of_query: frozenset[str]) -> OperatorObservation:
    total = OperatorObservation()
    for name in of_query & operators.keys():
        total = total.plus(
            OperatorObservation(**{field: operators[name].get(field, 0) for field in total._fields})
        )
    return total


def _attributed(
    graph: Explained, line: Mapping[str, Any], of_query: frozenset[str], places: set[int]
) -> Iterator[float]:
    """The query's part of each piece of its work: the rule of `cost_attribution`, in one epoch."""
    for key, counters in line["work"].items():
        index = graph.sharing.place_of(key)
        if index in places:
            work, operators = graph.sharing.works[index], line["operators"]
            parts = {user: _parts(work.kind, operators.get(user, {})) for user in work.users}
            yield counters["nanoseconds"] * sum(parts.get(user, 0) for user in of_query) / sum(parts.values())


def _parts(kind: str, seen: Mapping[str, int]) -> int:
    measures = {"read": (), "fold": ("delta_rows",), "state": ("state_rows", "results")}[kind]
    return 1 + sum(seen.get(measure, 0) for measure in measures)
