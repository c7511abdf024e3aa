"""What does a query without windows that slide hold at an instant, and at which instants may that change?

A relation in FROM is such a query itself, so this looks into itself: what it reads of others is what they hold then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.algebra.query import (
    Ago,
    Bounds,
    Emit,
    Node,
    Query,
    QueryScan,
    StreamScan,
    Windowed,
    walk,
)
from headrace.algebra.windows import Changing, TimeRange
from headrace.errors import UnsupportedQuery
from headrace.reference.history import sources_of
from headrace.reference.relational import Moment, answer, named, stream_rows, time_of
from headrace.reference.values import Row
from headrace.reference.windows import sliding_nodes
from headrace.time import Instant


@dataclass(slots=True)
class Relation:
    """A query over a history, to be asked at instants."""

    query: Query
    moment: Moment
    read: Mapping[Windowed, Relation]
    begun: set[Instant]
    """The event times of its streams, and where each relation that it reads begins to hold rows."""
    instants: list[Instant]
    """All instants at which it may change, in order."""
    known: dict[Instant, list[Row]]

    @staticmethod
    def of(query: Query, moment: Moment) -> Relation:
        """The relation of a query."""
        if sliding_nodes(query):
            raise UnsupportedQuery(
                "a query whose window slides has an answer per window, not at every instant"
            )
        read = {node: Relation.of(inner, moment) for node, inner in _relations_read(query)}
        begun = event_times(query, moment)
        changing = {at + shift for at in begun for shift in _shifts(query)}
        for inner in read.values():
            begun |= {at for at in inner.instants if inner.at(at)}
            changing |= set(inner.instants)
        return Relation(query, moment, read, begun, sorted(changing), {})

    def at(self, instant: Instant) -> list[Row]:
        """R(instant): nothing before the first row of anything it reads, then what the query's tree says."""
        if instant not in self.known:
            self.known[instant] = self._at(instant)
        return self.known[instant]

    def _at(self, instant: Instant) -> list[Row]:
        if sources_of(self.query) and not any(at <= instant for at in self.begun):
            return []
        held = {node: named(inner.at(instant), node) for node, inner in self.read.items()}
        return answer(tree(self.query), replace(self.moment, instant=instant, held=held))


def tree(query: Query) -> Node:
    """The query's tree without the relation-to-stream operator at its top."""
    return query.root.source if isinstance(query.root, Emit) else query.root


def event_times(query: Query, moment: Moment) -> set[Instant]:
    """The event times of the streams that it reads itself."""
    relations = {node.source for node, _ in _relations_read(query)}
    scans = (node for node in walk(query.root) if isinstance(node, StreamScan | QueryScan))
    return {
        time_of(row, scan) for scan in scans if scan not in relations for row in stream_rows(scan, moment)
    }


def _relations_read(query: Query) -> list[tuple[Windowed, Query]]:
    return [
        (node, node.source.query)
        for node in walk(query.root)
        if isinstance(node, Windowed) and isinstance(node.window, Changing)
        if isinstance(node.source, QueryScan) and node.source.query is not None
    ]


def _shifts(query: Query) -> set[int]:
    """After how long a row may leave a window, or cross a bound."""
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
