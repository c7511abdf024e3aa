"""Dispatcher of the actions of a hub: a thread with an event loop that delivers each outbox whose query has new results.

No epoch waits for a receiver: rows that wait are committed results, read when their turn comes. At most `_SENDING` outboxes
have rows in memory, those of one epoch each; an outbox that waits for its next attempt has none. A hub without actions has no
thread, and a query without actions costs nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceError, StoreError
from headrace.runtime.delivery.actions.channel import ChannelLoop
from headrace.runtime.delivery.actions.making import Maker
from headrace.runtime.delivery.actions.outbox import Outbox
from headrace.runtime.delivery.actions.receivers import Receivers
from headrace.runtime.delivery.actions.writing import Push
from headrace.runtime.delivery.cursor import FOLDER, Cursor
from headrace.runtime.delivery.sink_states import ACTION, is_of_action
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.results.result_log import retained_entries
from headrace.time import FOREVER

if TYPE_CHECKING:
    from headrace.runtime.epoch.pipeline import Pipeline

_SENDING: Final = 64
_MAILING: Final = 8
"""Mails that are on the way at the same time, each in a thread."""
_CLOSING_SECONDS: Final = 5.0
"""How long the rest may take at the end; what is left is delivered by the next run."""
_RETRY_SECONDS: Final = 1.0
"""Until results that could not be read are read again."""


class Dispatcher:
    """The outboxes of a hub. All methods but the coroutines may be called from any thread."""

    def __init__(self, pipeline: Pipeline, push: Push, receivers: Receivers | None) -> None:
        self._pipeline = pipeline
        self._maker = Maker(pipeline, push, asyncio.Semaphore(_MAILING), receivers)
        self._lock = threading.RLock()
        self._outboxes: dict[str, Outbox] = {}
        self._read_to = FOREVER
        """Entries of the results list below it were searched for results of queries with actions; none before the first action."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._ending = asyncio.Event()
        self._slots = asyncio.Semaphore(_SENDING)
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def start(self) -> None:
        """Deliver for all queries of the catalog, and drop the positions of actions that are no more."""
        self.update(query.definition.name for query in self._pipeline.catalog.queries.values())
        store = self._pipeline.home.store
        for name in {file.name.split("/")[1] for file in store.list(f"{FOLDER}/{ACTION}")}:
            if is_of_action(name) and name.removeprefix(ACTION) not in self._outboxes:
                Cursor(store, name).remove()

    def logged(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Follow changes of the catalog."""
        names = {
            name
            for entry in entries
            for name in (entry.get("name"), entry.get("to"), entry.get("query", {}).get("name"))
            if name is not None
        }
        self.update(names)

    def update(self, names: Iterable[str]) -> None:
        """Make the outboxes of queries equal to the actions that the catalog has for them."""
        with self._lock:
            named = {name.lower() for name in names}
            wanted = {
                action.id: (query, action)
                for query in map(self._pipeline.catalog.query, named)
                if query is not None
                for action in query.definition.actions
            }
            for outbox in [box for box in self._outboxes.values() if box.query.lower() in named]:
                if outbox.action.id not in wanted:
                    self._remove(outbox)
            for query, action in wanted.values():
                existing = self._outboxes.get(action.id)
                if existing is not None:
                    existing.query = query.definition.name
                    existing.follow(query)
                    continue
                outbox = self._outboxes[action.id] = self._maker.outbox(query, action)
                self._read_to = min(self._read_to, outbox.position)
            if self._outboxes and not self._is_closed:
                self._run()
        self.wake()

    def _remove(self, outbox: Outbox) -> None:
        del self._outboxes[outbox.action.id]
        outbox.is_removed = True
        task = self._tasks.get(outbox.action.id)
        if task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(task.cancel)
        with suppress(StoreError):  # else the next start removes it
            outbox.cursor.remove()

    def _run(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver, name="headrace-actions", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """An epoch was committed, or the actions have changed."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # closed meanwhile
                loop.call_soon_threadsafe(self._news.set)

    def held(self) -> dict[str, int]:
        """Operator → index of the first of its results that an action has not delivered."""
        positions: dict[str, int] = {}
        for outbox in self._all():
            positions[outbox.operator] = min(outbox.position, positions.get(outbox.operator, outbox.position))
        return positions

    def serve(self, query: str) -> bool:
        """Whether a query has actions."""
        return any(outbox.query == query for outbox in self._all())

    def report(self) -> list[dict[str, Any]]:
        """The state of each action, as plain values."""
        return [outbox.report() for outbox in self._all()]

    def _all(self) -> list[Outbox]:
        with self._lock:
            return list(self._outboxes.values())

    def close(self) -> None:
        """Deliver the rest for a few seconds and stop; what is left is delivered by the next run."""
        self._is_closed = True
        thread = self._thread
        if thread is not None:
            self.wake()
            thread.join()
            for outbox in self._all():
                outbox.close()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        with asyncio.Runner(loop_factory=ChannelLoop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            while not self._is_closed:
                await self._deliver_news()
                await self._news.wait()
                self._news.clear()
            await self._deliver_news()
            self._ending.set()
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=_CLOSING_SECONDS)
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        finally:
            self._loop = None
            await self._maker.close()

    async def _deliver_news(self) -> None:
        """Begin the delivery of each outbox that has something to deliver."""
        try:
            outboxes, newest, end = await asyncio.to_thread(self._find_news)
        except (
            HeadraceError,
            OSError,
        ):  # the disk does not answer: the epochs report it, and the entries are read again
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._news.set)
            return
        for outbox in outboxes:
            name, is_idle = outbox.action.id, outbox.action.id not in self._tasks
            if newest.get(outbox.operator, -1) < outbox.position:
                outbox.position = max(outbox.position, end) if is_idle else outbox.position
                continue
            self._again.add(name)
            if is_idle and not outbox.is_removed:
                task = self._tasks[name] = asyncio.create_task(self._drive(outbox))
                task.add_done_callback(partial(self._ended, name))

    def _ended(self, name: str, _: asyncio.Task[None]) -> None:
        del self._tasks[name]

    def _find_news(self) -> tuple[list[Outbox], dict[str, int], int]:
        """All outboxes, for each operator with new results the index of the last entry with some, and the end of the entries."""
        home = self._pipeline.home
        manifest = home.latest()
        catalog = self._pipeline.catalog  # read after the manifest: an operator with results there is in it
        with self._lock:
            start, self._read_to = self._read_to, home.list_of(manifest, "results").length
            end, outboxes = self._read_to, list(self._outboxes.values())
            for outbox in outboxes:
                outbox.follow(catalog.query(outbox.query))
        try:
            newest: dict[str, int] = {}
            operators = {outbox.operator for outbox in outboxes}
            for index, entry in retained_entries(home, manifest, start):
                results = answered(entry, home.store)
                newest |= {operator: index for operator in operators if operator in results}
        except (HeadraceError, OSError):
            with self._lock:
                self._read_to = min(self._read_to, start)
            raise
        return outboxes, newest, end

    async def _drive(self, outbox: Outbox) -> None:
        """Deliver what is due of an outbox, with waits after failures; at the end of the hub without."""
        while outbox.action.id in self._again and not outbox.is_removed:
            self._again.discard(outbox.action.id)
            wait = 0.0
            async with self._slots:
                try:
                    if await outbox.deliver():
                        self._again.add(outbox.action.id)
                except Exception as failure:  # noqa: BLE001 - whatever a receiver causes, it is tried again
                    self._again.add(outbox.action.id)
                    wait = outbox.failed(failure)
            if wait and await self._ends_within(wait):
                return

    async def _ends_within(self, seconds: float) -> bool:
        """Wait; True as soon as the hub ends."""
        try:
            await asyncio.wait_for(self._ending.wait(), seconds)
        except TimeoutError:
            return False
        return True
