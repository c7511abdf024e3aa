"""EXPLAIN's diagram: boxes from the streams to the queries, and lines for the rows between them, as a value and as
text for Graphviz.

Each column shows the costliest boxes; the rest, perhaps thousands, are one box.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final
from typing import Literal as Choice

from headrace.dataclass import dataclass
from headrace.errors import UnknownName
from headrace.planner.explain.cost_attribution import Measured
from headrace.planner.explain.plan_graph import (
    Explained,
    bytes_of,
    count,
    percent_of,
    ratio_of,
    rows_of,
    time_of,
)
from headrace.planner.explain.work_sharing import WorkItem

Kind = Choice["read", "fold", "state", "query", "more"]
_COLUMNS: Final = 4
_PLACE: Final = {"read": 0, "fold": 1, "state": 2, "query": 3}
_MOST: Final = {"read": 8, "fold": 12, "state": 14, "query": 16}


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a column; `share` of all time is drawn as a bar.

    Its content is the work at `places` of the sharing, or `queries`. `name` is the same in later pictures of this work.
    """

    id: str
    column: int
    kind: Kind
    title: str
    lines: tuple[str, ...] = ()
    share: float = 0.0
    name: str = ""
    places: tuple[int, ...] = ()
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """Rows from box to box, for this number of operators; `rows` an epoch, 0 before the first measurement."""

    source: str
    target: str
    operators: int
    rows: float = 0.0


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes and lines; `caption` is their title."""

    caption: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def picture(graph: Explained, query: str | None = None, chosen: Collection[str] = ()) -> Picture:
    """All running queries, or one query, or those that are `chosen`, with what they need and share."""
    drawn = _Drawing(graph, query, frozenset(chosen))
    boxes = tuple(drawn.boxes())
    lines = dict[tuple[str, str], list[float]]()
    for source, target, rows in drawn.lines():
        lines.setdefault((source, target), []).append(rows)
    epochs = 1 if graph.seen is None else graph.seen.epochs
    return Picture(
        drawn.caption(),
        boxes,
        tuple(Line(*ends, len(rows), sum(rows) / epochs) for ends, rows in lines.items()),
    )


def rows_along(
    graph: Explained,
    ends: tuple[str, str],
    measurements: Iterable[Measured],
    query: str | None = None,
    chosen: Collection[str] = (),
) -> list[float]:
    """The rows between two boxes of a picture, by their names, in each of some measurements; 0 where there is no line.

    Raises `UnknownName` for a box that the picture has not.
    """
    drawn = _Drawing(graph, query, frozenset(chosen))
    ids = {box.name: box.id for box in drawn.boxes()}
    for name in ends:
        if name not in ids:
            raise UnknownName(f"there is no box '{name}' now", remedy="Ask for the network again.")
    line = ids[ends[0]], ids[ends[1]]
    return [
        sum(rows for *of, rows in drawn.lines(replace(graph, seen=seen)) if (*of,) == line)
        for seen in measurements
    ]


@dataclass(frozen=True)
class _Drawing:
    graph: Explained
    query: str | None
    chosen: frozenset[str]

    @cached_property
    def operators(self) -> dict[str, str]:
        """The operators in the picture, with their queries: for chosen queries also those whose results they read."""
        chosen = self.chosen if self.query is None else {self.query}
        if not chosen:
            return dict(self.graph.owners)
        needed: dict[str, str] = {}
        waiting = [operator for operator, owner in self.graph.owners.items() if owner in chosen]
        while waiting:
            operator = waiting.pop()
            needed[operator] = self.graph.owners[operator]
            maker = self.graph.makers.get(self._work_of(operator, "read").stream)
            if maker is not None and maker not in needed:
                waiting.append(maker)
        return needed

    @cached_property
    def levels(self) -> dict[str, int]:
        """By stream, the number of queries between it and a source."""
        heights: dict[str, int] = {}
        for work in self.graph.sharing.works:
            if work.kind == "read":
                self._level(work.stream, heights)
        return heights

    def _level(self, stream: str, heights: dict[str, int]) -> int:
        if stream not in heights:
            maker = self.graph.makers.get(stream)
            registered = maker is not None and maker in self.graph.sharing.places
            heights[stream] = (
                1 + self._level(self._work_of(str(maker), "read").stream, heights) if registered else 0
            )
        return heights[stream]

    def _work_of(self, operator: str, kind: str) -> WorkItem:
        return self.graph.sharing.works[self._position(operator, kind)]

    def _position(self, operator: str, kind: str) -> int:
        works = self.graph.sharing.works
        return next(
            position for position in self.graph.sharing.places[operator] if works[position].kind == kind
        )

    @cached_property
    def drawn(self) -> dict[int, str]:
        """The box of each piece of work: its own, or that of the rest of its column."""
        places = {position for operator in self.operators for position in self.graph.sharing.places[operator]}
        boxes: dict[int, str] = {}
        boxes_in: dict[int, int] = {}
        for position in self.graph.by_weight(places):
            column = self._column(position)
            boxes_in[column] = boxes_in.get(column, 0) + 1
            many = boxes_in[column] > _MOST[self.graph.sharing.works[position].kind]
            boxes[position] = f"more{column}" if many else f"work{position}"
        return boxes

    def _column(self, position: int) -> int:
        work = self.graph.sharing.works[position]
        return _COLUMNS * self.levels[work.stream] + _PLACE[work.kind]

    @cached_property
    def queries(self) -> dict[str, str]:
        """The box of each query, of those in `operators`, the costliest first."""
        names = set(self.operators.values())
        costs = [cost.name for cost in self.graph.costs if cost.name in names]
        if self.query is not None:
            costs.remove(self.query)
            costs.insert(0, self.query)
        return {
            name: f"query{rank}" if rank < _MOST["query"] else "others" for rank, name in enumerate(costs)
        }

    def boxes(self) -> Iterator[Box]:
        rest: dict[str, list[int]] = {}
        for position, box in self.drawn.items():
            work = self.graph.sharing.works[position]
            if not box.startswith("more"):
                yield Box(
                    box,
                    self._column(position),
                    work.kind,
                    work.label,
                    self._lines(position),
                    self.graph.share(position),
                    work.key,
                    (position,),
                )
            else:
                rest.setdefault(box, []).append(position)
        for box, places in rest.items():
            users = {user for position in places for user in self.graph.sharing.works[position].users}
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
                f"more {box}",
                tuple(places),
            )
        yield from self._query_boxes()

    def _lines(self, position: int) -> tuple[str, ...]:
        work, seen = self.graph.sharing.works[position], self.graph.measured(position)
        users = count(len(self.graph.queries_of(work.users)), "query", "queries")
        if seen is None or self.graph.seen is None:
            return (users,)
        epochs = self.graph.seen.epochs
        rows = f"{rows_of(seen.rows_in / epochs)} in, {rows_of(seen.rows_out / epochs)} out{ratio_of(seen.rows_in, seen.rows_out)}"
        state = f", state {bytes_of(seen.state_bytes)}" if work.kind == "state" else ""
        cost = f"{time_of(seen.nanoseconds / epochs)}, {percent_of(self.graph.share(position))}"
        return (f"{users}{state}", rows, cost)

    def _query_boxes(self) -> Iterator[Box]:
        costs = {item.name: item for item in self.graph.costs}
        total = sum(item.nanoseconds for item in costs.values()) or 1.0
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
                yield Box(box, columns[name], "query", name, cost, share, f"query {name}", queries=(name,))
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
                "more queries",
                queries=tuple(others),
            )

    def lines(self, seen: Explained | None = None) -> Iterator[tuple[str, str, float]]:
        """The two ends of each line and rows in all measured epochs, or in those of `seen`, once for each operator.

        Rows that operators share are divided among them, so the sum over a line's operators is what passes along it.
        """
        works, graph = self.graph.sharing.works, seen or self.graph
        for operator, owner in self.operators.items():
            read, fold, state = (self._position(operator, kind) for kind in ("read", "fold", "state"))
            offered, counts = graph.measured(fold), graph.of_operator(operator)
            rows_in = offered.rows_in / len(works[fold].users) if offered is not None else 0.0
            yield self.drawn[read], self.drawn[fold], rows_in
            yield self.drawn[fold], self.drawn[state], counts.delta_rows
            if "." not in operator:
                yield self.drawn[state], self.queries[owner], counts.results
            maker = self.graph.makers.get(works[read].stream)
            if maker in self.operators:
                maker_box = self.drawn[self._position(str(maker), "state")]
                source = maker_box if "." in str(maker) else self.queries[self.operators[str(maker)]]
                rows = graph.of_operator(str(maker)).results / len(works[read].users)
                yield source, self.drawn[read], rows

    def caption(self) -> str:
        """The subject of the picture, and the time of the measurements."""
        names = self.chosen or set(self.operators.values())
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
    lines = [
        "digraph headrace {",
        f"  label={_quoted(drawn.caption)}; labelloc=t; rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
    ]
    for box in drawn.boxes:
        label = _quoted("\n".join((box.title, *box.lines)))
        lines.append(f"  {box.id} [label={label}, fillcolor={_quoted(colours[box.kind])}];")
    lines += [
        f"  {line.source} -> {line.target} [label={_quoted(f'{line.operators:,}')}];" for line in drawn.lines
    ]
    return "\n".join([*lines, "}"])


COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "read": ("#dbeafe", "#2563eb"),
    "fold": ("#dcfce7", "#16a34a"),
    "state": ("#fef3c7", "#d97706"),
    "query": ("#ede9fe", "#7c3aed"),
    "more": ("#f1f5f9", "#64748b"),
}
"""Fill and border of each kind of box."""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
