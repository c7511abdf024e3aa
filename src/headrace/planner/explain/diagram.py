"""EXPLAIN as a picture: boxes from the streams to the queries, and lines for the rows between them.

Thousands of queries have the same few boxes as ten: of each column the costliest are drawn, the rest are one box.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from typing import Literal as Choice

from headrace.planner.explain.plan_graph import (
    Explained,
    bytes_of,
    count,
    percent_of,
    ratio_of,
    rows_of,
    time_of,
)
from headrace.planner.explain.work_sharing import Work

Kind = Choice["read", "fold", "state", "query", "more"]
_COLUMNS: Final = 4
_PLACE: Final = {"read": 0, "fold": 1, "state": 2, "query": 3}
_MOST: Final = {"read": 8, "fold": 12, "state": 14, "query": 16}


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a column; `share` of all time is drawn as a bar."""

    id: str
    column: int
    kind: Kind
    title: str
    lines: tuple[str, ...] = ()
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """Rows go from box to box, for so many operators."""

    source: str
    target: str
    operators: int


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn; `caption` says what of."""

    caption: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def picture(graph: Explained, query: str | None = None) -> Picture:
    """All that runs, or what one query needs and shares."""
    drawn = _Drawing(graph, query)
    boxes = tuple(drawn.boxes())
    lines = dict[tuple[str, str], int]()
    for ends in drawn.lines():
        lines[ends] = lines.get(ends, 0) + 1
    return Picture(drawn.caption(), boxes, tuple(Line(*ends, many) for ends, many in lines.items()))


@dataclass(frozen=True)
class _Drawing:
    graph: Explained
    query: str | None

    @cached_property
    def operators(self) -> dict[str, str]:
        """Those that are drawn, with their queries: for one query also those whose results it reads."""
        if self.query is None:
            return dict(self.graph.owners)
        found: dict[str, str] = {}
        waiting = [operator for operator, owner in self.graph.owners.items() if owner == self.query]
        while waiting:
            operator = waiting.pop()
            found[operator] = self.graph.owners[operator]
            maker = self.graph.makers.get(self._work_of(operator, "read").stream)
            if maker is not None and maker not in found:
                waiting.append(maker)
        return found

    @cached_property
    def levels(self) -> dict[str, int]:
        """By stream, how many queries stand between it and a source."""
        found: dict[str, int] = {}
        for work in self.graph.sharing.works:
            if work.kind == "read":
                self._level(work.stream, found)
        return found

    def _level(self, stream: str, found: dict[str, int]) -> int:
        if stream not in found:
            maker = self.graph.makers.get(stream)
            known = maker is not None and maker in self.graph.sharing.places
            found[stream] = 1 + self._level(self._work_of(str(maker), "read").stream, found) if known else 0
        return found[stream]

    def _work_of(self, operator: str, kind: str) -> Work:
        return self.graph.sharing.works[self._place(operator, kind)]

    def _place(self, operator: str, kind: str) -> int:
        works = self.graph.sharing.works
        return next(place for place in self.graph.sharing.places[operator] if works[place].kind == kind)

    @cached_property
    def drawn(self) -> dict[int, str]:
        """The box of each piece of work: its own, or that of all the rest of its column."""
        places = {place for each in self.operators for place in self.graph.sharing.places[each]}
        found: dict[int, str] = {}
        taken: dict[int, int] = {}
        for place in self.graph.by_weight(places):
            column = self._column(place)
            taken[column] = taken.get(column, 0) + 1
            many = taken[column] > _MOST[self.graph.sharing.works[place].kind]
            found[place] = f"more{column}" if many else f"work{place}"
        return found

    def _column(self, place: int) -> int:
        work = self.graph.sharing.works[place]
        return _COLUMNS * self.levels[work.stream] + _PLACE[work.kind]

    @cached_property
    def queries(self) -> dict[str, str]:
        """The box of each query, of those in `operators`, the costliest first."""
        names = set(self.operators.values())
        costs = [each.name for each in self.graph.costs if each.name in names]
        if self.query is not None:
            costs.remove(self.query)
            costs.insert(0, self.query)
        return {
            name: f"query{place}" if place < _MOST["query"] else "others" for place, name in enumerate(costs)
        }

    def boxes(self) -> Iterator[Box]:
        rest: dict[str, list[int]] = {}
        for place, box in self.drawn.items():
            work = self.graph.sharing.works[place]
            if not box.startswith("more"):
                yield Box(
                    box,
                    self._column(place),
                    work.kind,
                    work.label,
                    self._lines(place),
                    self.graph.share(place),
                )
            else:
                rest.setdefault(box, []).append(place)
        for box, places in rest.items():
            users = {user for place in places for user in self.graph.sharing.works[place].users}
            kind = self.graph.sharing.works[places[0]].kind
            title = f"{len(places):,} more {kind}s"
            whose = count(len(self.graph.queries_of(sorted(users))), "query", "queries")
            yield Box(
                box,
                self._column(places[0]),
                "more",
                title,
                (f"of {whose}",),
                sum(map(self.graph.share, places)),
            )
        yield from self._query_boxes()

    def _lines(self, place: int) -> tuple[str, ...]:
        work, seen = self.graph.sharing.works[place], self.graph.measured(place)
        users = count(len(self.graph.queries_of(work.users)), "query", "queries")
        if seen is None or self.graph.seen is None:
            return (users,)
        epochs = self.graph.seen.epochs
        rows = f"{rows_of(seen.rows_in / epochs)} in, {rows_of(seen.rows_out / epochs)} out{ratio_of(seen.rows_in, seen.rows_out)}"
        state = f", state {bytes_of(seen.state_bytes)}" if work.kind == "state" else ""
        cost = f"{time_of(seen.nanoseconds / epochs)}, {percent_of(self.graph.share(place))}"
        return (f"{users}{state}", rows, cost)

    def _query_boxes(self) -> Iterator[Box]:
        costs = {each.name: each for each in self.graph.costs}
        total = sum(each.nanoseconds for each in costs.values()) or 1.0
        columns = {
            owner: _COLUMNS * self.levels[self._work_of(operator, "state").stream] + _PLACE["query"]
            for operator, owner in self.operators.items()
            if "." not in operator
        }
        others = [name for name, box in self.queries.items() if box == "others"]
        for name, box in self.queries.items():
            if box != "others":
                share = costs[name].nanoseconds / total
                cost = (
                    (f"{time_of(costs[name].nanoseconds)}, {percent_of(share)}",) if self.graph.seen else ()
                )
                yield Box(box, columns[name], "query", name, cost, share)
        if others:
            share = sum(costs[name].nanoseconds for name in others) / total
            cost = (f"together {percent_of(share)}",) if self.graph.seen else ()
            yield Box(
                "others",
                max(columns[name] for name in others),
                "more",
                f"{len(others):,} more queries",
                cost,
                share,
            )

    def lines(self) -> Iterator[tuple[str, str]]:
        """The two ends of each line, once for each operator that it is for."""
        for operator, owner in self.operators.items():
            read, fold, state = (self._place(operator, kind) for kind in ("read", "fold", "state"))
            yield self.drawn[read], self.drawn[fold]
            yield self.drawn[fold], self.drawn[state]
            if "." not in operator:
                yield self.drawn[state], self.queries[owner]
            maker = self.graph.makers.get(self.graph.sharing.works[read].stream)
            if maker in self.operators:
                made = self.drawn[self._place(str(maker), "state")]
                yield (
                    made if "." in str(maker) else self.queries[self.operators[str(maker)]],
                    self.drawn[read],
                )

    def caption(self) -> str:
        """What the picture is of, and when it was measured."""
        names = set(self.operators.values())
        of = f"query {self.query}" if self.query is not None else count(len(names), "query", "queries")
        seen = self.graph.seen
        if seen is None:
            return f"{of}; nothing is measured yet"
        return (
            f"{of}; epochs {seen.first} to {seen.last}: {rows_of(seen.rows / seen.epochs)} rows and "
            f"{time_of(seen.nanoseconds / seen.epochs)} of work an epoch"
        )


def dot(drawn: Picture) -> str:
    """The picture for Graphviz."""
    colours: Mapping[str, str] = {kind: fill for kind, (fill, _) in COLOURS.items()}
    found = [
        "digraph headrace {",
        f"  label={_quoted(drawn.caption)}; labelloc=t; rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
    ]
    for box in drawn.boxes:
        label = _quoted("\n".join((box.title, *box.lines)))
        found.append(f"  {box.id} [label={label}, fillcolor={_quoted(colours[box.kind])}];")
    found += [
        f"  {line.source} -> {line.target} [label={_quoted(f'{line.operators:,}')}];" for line in drawn.lines
    ]
    return "\n".join([*found, "}"])


COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "read": ("#dbeafe", "#2563eb"),
    "fold": ("#dcfce7", "#16a34a"),
    "state": ("#fef3c7", "#d97706"),
    "query": ("#ede9fe", "#7c3aed"),
    "more": ("#f1f5f9", "#64748b"),
}
"""Of each kind of box: its ground and its edge."""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
