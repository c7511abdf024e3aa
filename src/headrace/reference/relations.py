"""The relation of a query without sliding windows at an instant, and the instants at which it may change.

A relation in FROM is such a query itself, so the evaluation is recursive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from headrace.algebra.query import (
    Ago,
    Bounds,
    Emit,
    Node,
    Query,
    QueryScan,
    StreamScan,
    Windowed,
    derived_in,
    walk,
)
from headrace.algebra.windows.window import Changing, TimeRange
from headrace.dataclass import dataclass
from headrace.errors import UnsupportedQuery
from headrace.reference.history import relation_of, sources_of
from headrace.reference.relational import Moment, answer, named, stream_rows, time_of
from headrace.reference.scalar import evaluate
from headrace.reference.values import Row
from headrace.reference.windows import sliding_nodes
from headrace.time import Instant


@dataclass(slots=True)
class Relation:
    """A query over a history, evaluated at instants."""

    query: Query
    moment: Moment
    read: Mapping[Windowed, list[Relation]]
    starts: set[Instant]
    """The event times of its streams, and the first instants with rows of the relations that it reads."""
    instants: list[Instant]
    """All instants at which it may change, in order."""
    cache: dict[Instant, list[Row]]

    @staticmethod
    def of(query: Query, moment: Moment) -> Relation:
        """The relation of a query."""
        if sliding_nodes(query):
            raise UnsupportedQuery(
                "a query whose window slides has an answer per window, not at every instant"
            )
        reads = _relations_read(query).items()
        read = {node: [Relation.of(inner, moment) for inner in members] for node, members in reads}
        starts = event_times(query, moment)
        changing = {at + shift for at in starts for shift in _shifts(query)}
        for inner in chain(*read.values()):
            starts |= {at for at in inner.instants if inner.at(at)}
            changing |= set(inner.instants)
        return Relation(query, moment, read, starts, sorted(changing), {})

    def at(self, instant: Instant) -> list[Row]:
        """R(instant): empty before the first row of any input, then the relation of the query's tree."""
        if instant not in self.cache:
            self.cache[instant] = self._at(instant)
        return self.cache[instant]

    def _at(self, instant: Instant) -> list[Row]:
        if sources_of(self.query) and not any(at <= instant for at in self.starts):
            return []
        held = {
            node: [row for member in members for row in _held(member, instant, node)]
            for node, members in self.read.items()
        }
        return answer(tree(self.query), replace(self.moment, instant=instant, held=held))


def _held(member: Relation, instant: Instant, node: Windowed) -> list[Row]:
    """The rows of a relation that a query reads, each as often as it counts."""
    rows, window = named(member.at(instant), member.query, node), node.window
    if not isinstance(window, Changing) or window.times is None:
        return rows
    return [row for row in rows for _ in range(evaluate(window.times, row))]


def tree(query: Query) -> Node:
    """The query's tree without the relation-to-stream operator at its root."""
    return query.root.source if isinstance(query.root, Emit) else query.root


def event_times(query: Query, moment: Moment) -> set[Instant]:
    """The event times of the streams that it reads directly."""
    scans = (node for node in walk(query.root) if isinstance(node, StreamScan | QueryScan))
    streams = [scan for scan in scans if relation_of(scan) is None]
    return {time_of(row, scan) for scan in streams for row in stream_rows(scan, moment)}


def _relations_read(query: Query) -> dict[Windowed, list[Query]]:
    """The relations that a query reads; one name may have several, which are read together."""
    return {
        node: [inner for _, inner in derived_in(replace(query, root=node))]
        for node in walk(query.root)
        if isinstance(node, Windowed) and isinstance(node.window, Changing)
    }


def _shifts(query: Query) -> set[int]:
    """The lengths after which a row may leave a window, or cross a bound."""
    shifts = {0}
    for node in walk(query.root):
        if isinstance(node, Windowed) and isinstance(node.window, TimeRange):
            shifts.add(node.window.range + 1)
        if isinstance(node, Bounds):
            shifts |= {
                bound.duration + offset
                for bound in (node.begin, node.end)
                for offset in (0, 1)
                if isinstance(bound, Ago)
            }
    return shifts
