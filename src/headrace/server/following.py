"""Following of a query's results: `Feed` reads the rows that were committed after a position, as events for server-sent
events and WebSockets, each epoch encoded once for all followers; `Publications` wakes all followers after an epoch,
those over PostgreSQL's protocol too.

A follower reads committed results at its own pace and has no queue: one that is slow holds back nothing but its own
connection, and resumes at the position of the last event that it has received.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from starlette.concurrency import run_in_threadpool

from headrace.observation import EpochObservation
from headrace.runtime.delivery.cursor import Due, due
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.hub.hub import Hub
from headrace.server.security.permissions import Permissions
from headrace.server.tables import table_text

_BATCH: Final = 16
"""Epochs that are read and encoded before the followers of others have their turn."""
_KEEP_ALIVE_SECONDS: Final = 15.0
ENCODED: Final = 256
"""Events whose text is kept for other followers."""


@dataclass(slots=True)
class Publications:
    """Wakes followers after each epoch, and ends them with the server. Used by the server's thread and by others."""

    loop: asyncio.AbstractEventLoop | None = None
    waiter: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the next epoch, or by the end."""
    ended: bool = False

    def epoch(self, _: EpochObservation) -> None:
        """An epoch was committed."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._wake)

    def end(self) -> None:
        """The server stops: followers end."""
        self.ended = True
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self.waiter.set()
        self.waiter = asyncio.Event()


@dataclass(frozen=True, slots=True)
class Event:
    """One epoch's rows of a query as JSON text, and the position in the results after them."""

    position: int
    data: str


@dataclass(frozen=True, slots=True)
class Feed:
    """The results of one query as events; `form` is that of `table_text`."""

    hub: Hub
    query: str
    form: str
    encoded: Recent[tuple[str, int, str], str]
    """The data of events of all queries, by operator, position and form."""
    permissions: Permissions

    def read(self, position: int) -> tuple[list[Event], int]:
        """Events of the next epochs from a position on, and the position after them.

        Raises `UnknownName` once the query is dropped, or is another owner's, who may have registered one of its name.
        """
        self.permissions.require_seen(self.hub.catalog, self.query)
        operator, bound = self.hub.operator_and_query(self.query)
        home = self.hub.home
        manifest = home.latest()
        events = []
        for part in islice(due(home, manifest, operator, bound, position), _BATCH):
            position = part.position
            if part.rows is not None and part.rows.num_rows:
                events.append(Event(position, self._data(operator.id, part)))
        return events, position

    def _data(self, operator: str, part: Due) -> str:
        key = (operator, part.position, self.form)
        data = self.encoded.get(key)
        if data is None:
            rows = table_text(part.rows, self.form)
            data = f'{{"cursor": {part.position}, "epoch": {part.epoch}, "rows": {rows}}}'
            self.encoded.put(key, data)
        return data

    async def events(self, position: int, publications: Publications) -> AsyncIterator[Event | None]:
        """Events from a position on, until the server stops; None when there was none for a while."""
        while not publications.ended:
            waiter = publications.waiter
            events, after = await run_in_threadpool(self.read, position)
            for event in events:
                yield event
            if after == position or not events:
                try:
                    await asyncio.wait_for(waiter.wait(), _KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    yield None
            position = after

    async def server_sent(self, position: int, publications: Publications) -> AsyncIterator[str]:
        """The events as text of an event stream; a comment now and then, by which a lost connection is noticed."""
        yield ": following\n\n"
        async for event in self.events(position, publications):
            if event is None:
                yield ": waiting\n\n"
            else:
                yield f"id: {event.position}\nevent: rows\ndata: {event.data}\n\n"
