"""Outbox of an action: committed rows of its query, message by message, from a durable position on.

Rows of an epoch are cut into messages in their order of emission. When all of them are delivered or are dead letters, the
position is stored. So after a kill the messages of one epoch are repeated at most, each with the key it had. Not thread-safe:
one delivery at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalog.definitions import ActionDefinition
from headrace.dataclass import dataclass
from headrace.errors import UnknownName
from headrace.runtime.delivery.actions.channel import Channel, Message, Undelivered
from headrace.runtime.delivery.actions.dead_letters import DeadLetters
from headrace.runtime.delivery.cursor import Cursor, Due, due
from headrace.runtime.delivery.sink_states import ACTION, Patience, SinkState, undelivered

if TYPE_CHECKING:
    from headrace.catalog.catalog import CatalogQuery
    from headrace.runtime.epoch.pipeline import Pipeline


def cursor_of(pipeline: Pipeline, action: ActionDefinition) -> Cursor:
    """The position of an action, as a file of the home."""
    return Cursor(pipeline.home.store, f"{ACTION}{action.id}")


@dataclass(slots=True)
class Outbox:
    """What one action of a query has delivered, and what is due."""

    pipeline: Pipeline
    query: str
    operator: str
    action: ActionDefinition
    channel: Channel
    patience: Patience
    state: SinkState
    letters: DeadLetters
    cursor: Cursor
    position: int
    """Entries of the results list below it are delivered, or have no rows of the query. It may be ahead of the cursor."""
    is_removed: bool = False
    delivered: int = 0
    """Messages, since the hub was opened."""
    _epoch: int = field(default=-1, init=False)
    _sent: int = field(default=0, init=False)
    """Messages of `_epoch` that are delivered or are dead letters."""

    def follow(self, query: CatalogQuery | None) -> None:
        """Deliver the results of a query's operator, if the query has this action: ALTER QUERY … AS gives it another operator."""
        if query is not None and self.action in query.definition.actions:
            self.operator = query.operator_id

    async def deliver(self) -> bool:
        """Deliver the next epoch with rows; False when there is none. Raises what the channel raises."""
        part = await asyncio.to_thread(self._next)
        if part is None or part.rows is None:
            return False
        if part.epoch != self._epoch:
            self._epoch, self._sent = part.epoch, 0
        for message in self._messages(part.epoch, part.rows):
            await self._send(message)
            self._sent = message.number + 1
        await asyncio.to_thread(self._store, part.position)
        self.position = part.position
        return True

    def _store(self, position: int) -> None:
        """Store the position, unless the action was removed: also while it was written."""
        self.cursor.write(position)
        if self.is_removed:
            self.cursor.remove()

    def _next(self) -> Due | None:
        """The next epoch with rows; None where the query is dropped."""
        home = self.pipeline.home
        try:
            operator_and_query = self.pipeline.operator_and_query(self.query)
        except (UnknownName, KeyError):  # dropped, and the outbox is about to be removed
            return None
        part = next(due(home, home.latest(), *operator_and_query, self.position))
        if part.rows is None:
            self.position = max(self.position, part.position)
        return part

    def _messages(self, epoch: int, rows: pa.Table) -> Iterator[Message]:
        """Those of an epoch that were not sent."""
        size = self.channel.batch or max(1, rows.num_rows)
        for number in range(self._sent, -(-rows.num_rows // size)):
            part = rows.slice(number * size, size)
            yield Message(self.query, self.action.id, epoch, number, part)

    async def _send(self, message: Message) -> None:
        """Deliver a message or make it a dead letter; raises where it is to be sent again."""
        try:
            await self.channel.send(message)
        except Undelivered as failure:
            attempts, limit = self.state.attempts + 1, self.channel.attempts
            if not failure.lasting and (limit is None or attempts < limit):
                raise
            self.state = self.state.failed(failure, self._now())
            await asyncio.to_thread(
                self.letters.add, message, self.action.title, str(failure), attempts, self._now()
            )
            self._become(self.state.now("delivering", self._now()))
            return
        self.delivered += 1
        if self.state.state != "delivering":
            self._become(self.state.now("delivering", self._now()))

    def failed(self, failure: Exception) -> float:
        """Record that a delivery failed; how many seconds to wait before the next attempt."""
        is_first = self.state.state != "retrying"
        self.state = self.state.failed(failure, self._now())
        if is_first:
            self._log()
        after = failure.after if isinstance(failure, Undelivered) else 0.0
        return max(after, self.patience.wait(self.state.attempts))

    def close(self) -> None:
        """Store the position, durably where it moved without a delivery, and the last state."""
        if self.position > self.cursor.read():
            self.cursor.write(self.position)
        self._become(self.state.now("closed", self._now()))

    def report(self) -> dict[str, Any]:
        """Its state, as plain values."""
        return {
            "name": self.query,
            "action": self.action.title,
            "id": self.action.id,
            "state": self.state.state,
            "since": self.state.since,
            "attempts": self.state.attempts,
            "failures": self.state.failures,
            "error": self.state.error,
            "delivered": self.delivered,
            "dead_letters": self.letters.count,
            "position": self.position,
            **undelivered(self.pipeline.home, self.query, self.position),
        }

    def _become(self, state: SinkState) -> None:
        self.state = state
        self._log()

    def _log(self) -> None:
        self.pipeline.record(self.state.as_event(self.cursor.name, self.query, self.action.title))

    def _now(self) -> int:
        return self.pipeline.loop.engine.clock()
