"""The actions of a hub's queries: their dispatcher, made with the first query that has some, so that a hub without them
loads and runs nothing for them; and the states of the actions of a home that is read without its hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.runtime.delivery.cursor import Cursor
from headrace.runtime.delivery.sink_states import ACTION, undelivered
from headrace.runtime.introspection.epoch_log import sink_lines
from headrace.store.files.filesystem import MissingFile

if TYPE_CHECKING:
    from headrace.runtime.delivery.actions.dispatcher import Dispatcher
    from headrace.runtime.delivery.actions.receivers import Receivers
    from headrace.runtime.delivery.actions.writing import Push
    from headrace.runtime.epoch.pipeline import Pipeline
    from headrace.runtime.home.home import Home


class OpenActions:
    """The actions of a hub's queries, as the catalog has them."""

    def __init__(self, pipeline: Pipeline, push: Push, receivers: Receivers | None) -> None:
        """`receivers`: those that actions may reach; None: all."""
        self._pipeline, self._push, self.receivers = pipeline, push, receivers
        self._dispatcher: Dispatcher | None = None

    def start(self) -> None:
        """Deliver for the queries of the catalog."""
        if any(query.definition.actions for query in self._pipeline.catalog.queries.values()):
            self._open().start()

    def logged(self, entries: tuple[Mapping[str, Any], ...]) -> None:
        """Follow changes of the catalog."""
        if self._dispatcher is not None or any(map(_has_actions, entries)):
            self._open().logged(entries)

    def _open(self) -> Dispatcher:
        if self._dispatcher is None:
            from headrace.runtime.delivery.actions.dispatcher import Dispatcher  # noqa: PLC0415 - see above

            self._dispatcher = Dispatcher(self._pipeline, self._push, self.receivers)
        return self._dispatcher

    def published(self) -> None:
        """An epoch was committed."""
        if self._dispatcher is not None:
            self._dispatcher.wake()

    def held(self) -> dict[str, int]:
        """Operator → index of the first of its results that an action has not delivered."""
        return {} if self._dispatcher is None else self._dispatcher.held()

    def serve(self, query: str) -> bool:
        """Whether a query has actions."""
        return self._dispatcher is not None and self._dispatcher.serve(query)

    def report(self) -> list[dict[str, Any]]:
        """The state of each of them, as plain values."""
        return [] if self._dispatcher is None else self._dispatcher.report()

    def close(self) -> None:
        """Deliver the rest for a few seconds, and stop."""
        if self._dispatcher is not None:
            self._dispatcher.close()


def _has_actions(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("query", {}).get("actions") or entry.get("settings", {}).get("actions"))


def recorded_actions(home: Home) -> list[dict[str, Any]]:
    """The actions of a home without its hub: by their positions, the log of epochs and the dead letters."""
    from headrace.runtime.delivery.actions.dead_letters import DeadLetters  # noqa: PLC0415 - where there are some

    events = {line["sink"]: line for line in sink_lines(Path(home.store.root))}
    reports = []
    for query in home.catalog.queries.values():
        for action in query.definition.actions:
            event, position = events.get(f"{ACTION}{action.id}", {}), action.since
            with suppress(MissingFile):
                position = max(position, Cursor(home.store, f"{ACTION}{action.id}").read())
            reports.append(
                {
                    "name": query.definition.name,
                    "action": action.title,
                    "id": action.id,
                    "state": event.get("state"),
                    "since": event.get("at"),
                    "attempts": event.get("attempts"),
                    "error": event.get("error"),
                    "dead_letters": DeadLetters(home.store, action.id).count,
                    "position": position,
                    **undelivered(home, query.definition.name, position),
                }
            )
    return reports
