"""Followers of a query that are written to together: `Follower` is one connection, `FollowerGroups` writes each event to all
that are up to date at once, as the same bytes, whether they are event streams or WebSockets.

A follower first reads by itself what it has not got. Then it joins those of the same query and form: after an epoch the rows
are read and encoded once, and written to each connection without waking its handler. One that cannot take them now, because its
connection still holds earlier data or it has no credit, leaves them and reads by itself at its own pace again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import Final

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError
from headrace.server.following import Batch, Event, Feed, Publications
from headrace.server.problems import Refused
from headrace.server.security.principal import Principal

KEEP_ALIVE_SECONDS: Final = 15.0
"""Without an event, until followers are sent a comment, by which a lost connection is noticed."""
STALLED_SECONDS: Final = 60.0
"""Until a connection is cut off whose client takes nothing; the client resumes after its last event."""
MOST_CREDITS: Final = 1 << 20
KINDS: Final = ("events", "websocket")
"""Of connections of followers."""
_MOST_UNSENT: Final = 1 << 16
"""Bytes of a connection that are not sent yet, beyond which its follower reads by itself."""
_WRITTEN: Final = 16
"""Followers that are written to before other tasks have their turn."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How a kind of connection writes events, and what it writes between them to find out that it is lost, if anything."""

    kind: str
    """One of `KINDS`."""
    frame: Callable[[Sequence[Event]], bytes]
    comment: bytes = b""


@dataclass(slots=True)
class Credits:
    """Events that a client will take, up to `MOST_CREDITS`."""

    left: int = 0
    _given: asyncio.Event = field(default_factory=asyncio.Event)

    def give(self, count: int) -> None:
        """Let so many more events be sent."""
        self.left = min(self.left + max(0, count), MOST_CREDITS)
        if self.left:
            self._given.set()

    def take(self, count: int) -> bool:
        """Pay for events, if there are as many credits."""
        if self.left < count:
            return False
        self.left -= count
        return True

    async def some(self) -> None:
        """Wait until there is a credit."""
        while not self.left:
            self._given.clear()
            await self._given.wait()


@dataclass(slots=True, eq=False)
class Follower:
    """One connection, and the position after the last event that was written to it."""

    feed: Feed
    transport: asyncio.Transport
    framing: Framing
    position: int
    credits: Credits | None = None
    """None: it takes every event."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has to read by itself, to end, or when its client is gone."""
    error: Exception | None = None

    @property
    def is_prompt(self) -> bool:
        """Whether the connection takes what is written to it."""
        return not self.transport.is_closing() and self.transport.get_write_buffer_size() <= _MOST_UNSENT

    def takes(self, events: int) -> bool:
        """Whether events may be written now; they are paid for then."""
        return self.is_prompt and (self.credits is None or self.credits.take(events))

    async def follow(self, groups: FollowerGroups, send: Callable[[Event], Awaitable[None]]) -> None:
        """Read events and `send` them, or get them with the others, until the server stops or the client is gone.

        Raises as `Feed.require_permitted`, and what `send` raises.
        """
        publications, feed = groups.publications, self.feed
        with feed.access.lasting(feed.permissions.principal), groups.counted(self):
            while not publications.ended and not self.transport.is_closing():
                wanted = (publications.waiter, feed.query, feed.form, self.position)
                batch = await publications.reading(wanted, partial(feed.read, self.position))
                feed.require_permitted()
                for event in batch.events:
                    await send(event)
                self.position = batch.position
                if batch.is_all and groups.join(self):
                    await self.woken.wait()
                    self.woken.clear()
                    if self.error is not None:
                        raise self.error


@dataclass(slots=True, eq=False)
class _Group:
    """Followers of one query in one form that are up to date."""

    feed: Feed
    """Of any of them: it is read for all."""
    position: int
    followers: dict[Principal, set[Follower]] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None

    def add(self, follower: Follower) -> None:
        self.followers.setdefault(follower.feed.permissions.principal, set()).add(follower)

    def has(self, follower: Follower) -> bool:
        return follower in self.followers.get(follower.feed.permissions.principal, ())

    def remove(self, follower: Follower) -> None:
        principal = follower.feed.permissions.principal
        followers = self.followers.get(principal, set())
        followers.discard(follower)
        if not followers:
            self.followers.pop(principal, None)

    def check(self) -> None:
        """End the followers that may not have the next event."""
        for followers in tuple(self.followers.values()):
            try:
                next(iter(followers)).feed.require_permitted()
            except (Refused, HeadraceError) as error:
                self.end(followers, error)

    def end(self, followers: set[Follower], error: Exception | None) -> None:
        """Let followers go, with the reason if it is an error."""
        for follower in tuple(followers):
            follower.error = error
            follower.woken.set()
            self.remove(follower)

    async def write(self, batch: Batch) -> None:
        """Write the events of a batch to all followers, a few at a time: requests are answered in between.

        Who joins meanwhile has read the batch by itself.
        """
        self.position = batch.position
        whole: dict[Framing, bytes] = {}
        waiting = [follower for followers in self.followers.values() for follower in followers]
        for number, follower in enumerate(waiting):
            if number % _WRITTEN == _WRITTEN - 1:
                await asyncio.sleep(0)
            if not self.has(follower):  # it left meanwhile
                continue
            newer = [event for event in batch.events if event.position > follower.position]
            if not newer:  # it has read as far by itself
                continue
            if not follower.takes(len(newer)):
                self.end({follower}, None)
                continue
            framing = follower.framing
            if len(newer) < len(batch.events):
                follower.transport.write(framing.frame(newer))
            else:
                if framing not in whole:
                    whole[framing] = framing.frame(newer)
                follower.transport.write(whole[framing])
            follower.position = max(follower.position, batch.position)

    def write_comment(self) -> None:
        """Write what shows a lost connection, and makes no event."""
        for followers in self.followers.values():
            for follower in followers:
                if follower.framing.comment and follower.is_prompt:
                    follower.transport.write(follower.framing.comment)


@dataclass(slots=True)
class FollowerGroups:
    """The groups of an application, by query and form. In the thread of its loop."""

    publications: Publications
    counts: Counter[str] = field(default_factory=Counter)
    """Followers of all queries, by the kind of their connection."""
    _groups: dict[tuple[str, str], _Group] = field(default_factory=dict)

    @contextmanager
    def counted(self, follower: Follower) -> Iterator[None]:
        """A block in which a connection follows."""
        self.counts[follower.framing.kind] += 1
        try:
            yield
        finally:
            self.counts[follower.framing.kind] -= 1

    def join(self, follower: Follower) -> bool:
        """Write the next events to a follower, until it is woken; False if the others have already got further than it."""
        key = follower.feed.query, follower.feed.form
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(follower.feed, follower.position)
            group.task = asyncio.create_task(self._run(key, group))
        elif follower.position < group.position:
            return False
        group.add(follower)
        return True

    def leave(self, follower: Follower) -> None:
        """Write no more to a follower."""
        group = self._groups.get((follower.feed.query, follower.feed.form))
        if group is not None:
            group.remove(follower)

    async def _run(self, key: tuple[str, str], group: _Group) -> None:
        try:
            while group.followers and not self.publications.ended:
                waiter = self.publications.waiter
                batch = await self.publications.reading(
                    (waiter, *key, group.position), partial(group.feed.read, group.position)
                )
                group.check()
                if batch.events:
                    await group.write(batch)
                group.position = batch.position
                if batch.is_all:
                    try:
                        await asyncio.wait_for(waiter.wait(), KEEP_ALIVE_SECONDS)
                    except TimeoutError:
                        group.write_comment()
        except Exception as error:  # noqa: BLE001 - each follower's handler raises it
            self._end(group, error)
        finally:
            del self._groups[key]
            self._end(group, None)

    def _end(self, group: _Group, error: Exception | None) -> None:
        for followers in tuple(group.followers.values()):
            group.end(followers, error)
