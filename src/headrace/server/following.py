"""Following of a query's results: `Feed` reads the rows that were committed after a position, as events for event streams
and WebSockets; `Publications` wakes all followers after an epoch, those over PostgreSQL's protocol too, and lets
those that want the same events wait for one reading of them.

A follower reads committed results at its own pace and has no queue: one that is slow holds back nothing but its own
connection, and resumes at the position of the last event that it has received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from itertools import islice
from typing import Final, TypeAlias

from starlette.concurrency import run_in_threadpool

from headrace.dataclass import dataclass
from headrace.observation import EpochObservation
from headrace.runtime.delivery.cursor import Due, due
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.hub.hub import Hub
from headrace.server.access import Access
from headrace.server.security.permissions import Permissions
from headrace.server.tables import table_text

_BATCH: Final = 16
"""Epochs that are read and encoded before the followers of others have their turn."""
ENCODED: Final = 256
"""Events whose text is kept for other followers."""


@dataclass(frozen=True, slots=True)
class Event:
    """One epoch's rows of a query as JSON text, and the position in the results after them."""

    position: int
    data: str


@dataclass(frozen=True, slots=True)
class Batch:
    """The events of the next epochs, and the position after them. `is_all`: more come with a later epoch only."""

    events: list[Event]
    position: int
    is_all: bool


_Wanted: TypeAlias = tuple[asyncio.Event, str, str, int]
"""After which epoch, of which query in which form, and from which position on."""


@dataclass(slots=True)
class Publications:
    """Wakes followers after each epoch, and ends them with the server. Used by the server's thread and by others."""

    loop: asyncio.AbstractEventLoop | None = None
    waiter: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the next epoch, or by the end."""
    ended: bool = False
    _readings: dict[_Wanted, asyncio.Future[Batch]] = field(default_factory=dict)
    """Those under way."""

    async def reading(self, wanted: _Wanted, read: Callable[[], Batch]) -> Batch:
        """What `read` returns or raises, in a thread; of followers that want the same only the first one's is called."""
        under_way = self._readings.get(wanted)
        if under_way is None:
            under_way = asyncio.ensure_future(run_in_threadpool(read))
            self._readings[wanted] = under_way
            under_way.add_done_callback(lambda done: self._done(wanted, done))
        return await asyncio.shield(under_way)

    def _done(self, wanted: _Wanted, reading: asyncio.Future[Batch]) -> None:
        del self._readings[wanted]
        if not reading.cancelled():
            reading.exception()  # all that wanted it may have left

    def epoch(self, _: EpochObservation) -> None:
        """An epoch was committed."""
        self._wake_in_loop()

    def end(self) -> None:
        """The server stops: followers end."""
        self.ended = True
        self._wake_in_loop()

    def _wake_in_loop(self) -> None:
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing follows any more
                self.loop.call_soon_threadsafe(self.wake)

    def wake(self) -> None:
        """Let all followers look again. In the loop's thread."""
        self.waiter.set()
        self.waiter = asyncio.Event()


@dataclass(frozen=True, slots=True)
class Feed:
    """The results of one query as events; `form` is that of `table_text`."""

    hub: Hub
    query: str
    form: str
    encoded: Recent[tuple[str, int, str], str]
    """The data of events of all queries, by operator, position and form."""
    permissions: Permissions
    access: Access

    def require_permitted(self) -> None:
        """Raises `Refused` once the token is revoked, and `UnknownName` once the query is dropped or another owner's.

        Another owner may have registered one of its name.
        """
        self.access.require_valid(self.permissions.principal)
        self.permissions.require_seen(self.hub.catalog, self.query)

    def read(self, position: int) -> Batch:
        """Events of the next epochs from a position on, for any follower. Raises `UnknownName` once the query is dropped."""
        operator, bound = self.hub.operator_and_query(self.query)
        home = self.hub.home
        events, is_all = [], False
        for part in islice(due(home, home.latest(), operator, bound, position), _BATCH):
            position = part.position
            if part.rows is None:
                is_all = True
            elif part.rows.num_rows:
                events.append(Event(position, self._data(operator.id, part)))
        return Batch(events, position, is_all)

    def _data(self, operator: str, part: Due) -> str:
        key = (operator, part.position, self.form)
        data = self.encoded.get(key)
        if data is None:
            rows = table_text(part.rows, self.form)
            data = f'{{"cursor": {part.position}, "epoch": {part.epoch}, "rows": {rows}}}'
            self.encoded.put(key, data)
        return data
