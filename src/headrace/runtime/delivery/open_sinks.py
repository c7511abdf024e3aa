"""Open sinks of a hub: the results they hold back from retention, their states, and their end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from headrace.errors import UserError
from headrace.runtime.delivery.sink_states import undelivered
from headrace.runtime.home.home import Home

if TYPE_CHECKING:
    from headrace.runtime.delivery.sinks import Sink


class OpenSinks:
    """Sinks in the order in which they were opened."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._sinks: list[Sink] = []

    def add(self, sink: Sink) -> None:
        """Deliver by this sink until `close`.

        Raises `UserError` while another one has its position: each would leave out what the other has delivered.
        """
        for other in self._sinks:
            if other.cursor.name == sink.cursor.name and other.is_delivering:
                raise UserError(
                    f"a sink of the query '{other.query}' has the position '{sink.cursor.name}' already",
                    remedy="Give each sink a name of its own: hub.sink(…, name='…').",
                )
        self._sinks.append(sink)
        sink.start()

    def serve(self, query: str) -> bool:
        """Whether one of them delivers a query's results."""
        return any(sink.query == query for sink in self._sinks)

    def held(self) -> dict[str, int]:
        """Operator → index of the first of its results that a sink has not delivered. A stopped sink holds nothing."""
        positions: dict[str, int] = {}
        for sink in self._sinks:
            standing = self._home.catalog.query(sink.query)
            if standing is not None and sink.state.state != "stopped":
                position = sink.cursor.read()
                positions[standing.operator_id] = min(position, positions.get(standing.operator_id, position))
        return positions

    def report(self) -> list[dict[str, Any]]:
        """The state of each of them, as plain values."""
        return list(self._reports())

    def _reports(self) -> Iterator[dict[str, Any]]:
        for sink in list(self._sinks):
            seen, position = sink.state, sink.cursor.read()
            yield {
                "sink": sink.cursor.name,
                "query": sink.query,
                "target": sink.target,
                "state": seen.state,
                "since": seen.since,
                "attempts": seen.attempts,
                "failures": seen.failures,
                "error": seen.error,
                "missed": seen.missed,
                "position": position,
                **undelivered(self._home, sink.query, position),
            }

    def close(self) -> None:
        """Deliver the rest and stop, the last one first; raises the error of the first of them to fail."""
        with ExitStack() as closing:
            for sink in self._sinks:
                closing.callback(sink.close)
            self._sinks = []
