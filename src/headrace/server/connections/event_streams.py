"""Event streams of followers over HTTP: `EventStream` is the response to one of them, `EventStreams` writes each event to
all that are up to date at once, as the same bytes.

A follower first reads by itself what it has not got. Then it joins those of the same query and form: after an epoch the rows
are read and encoded once, and written to each connection without waking its handler. One whose connection still holds
earlier data leaves them, reads by itself at its own pace again, and is cut off when it takes nothing for `STALLED_SECONDS`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.errors import HeadraceError
from headrace.server.connections.http_protocol import TRANSPORT
from headrace.server.following import Batch, Event, Feed, Publications
from headrace.server.problems import Refused, problem_of
from headrace.server.security.principal import Principal

KEEP_ALIVE_SECONDS: Final = 15.0
"""Without an event, until followers are sent a comment, by which a lost connection is noticed."""
STALLED_SECONDS: Final = 60.0
"""Until a connection is cut off whose client takes nothing; the client resumes after its last event."""
_MOST_UNSENT: Final = 1 << 16
"""Bytes of a connection that are not sent yet, beyond which its follower reads by itself."""
_WRITTEN: Final = 16
"""Followers that are written to before other tasks have their turn."""
_FOLLOWING: Final = b": following\n\n"
_WAITING: Final = b": waiting\n\n"


@dataclass(slots=True, eq=False)
class _Follower:
    """One connection, and the position after the last event that was written to it."""

    feed: Feed
    transport: asyncio.Transport
    is_chunked: bool
    position: int
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has to read by itself, to end, or when its client is gone."""
    error: Exception | None = None

    @property
    def is_prompt(self) -> bool:
        """Whether the connection takes what is written to it."""
        return not self.transport.is_closing() and self.transport.get_write_buffer_size() <= _MOST_UNSENT


@dataclass(slots=True, eq=False)
class _Group:
    """Followers of one query in one form that are up to date."""

    feed: Feed
    """Of any of them: it is read for all."""
    position: int
    followers: dict[Principal, set[_Follower]] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None

    def add(self, follower: _Follower) -> None:
        self.followers.setdefault(follower.feed.permissions.principal, set()).add(follower)

    def has(self, follower: _Follower) -> bool:
        return follower in self.followers.get(follower.feed.permissions.principal, ())

    def remove(self, follower: _Follower) -> None:
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

    def end(self, followers: set[_Follower], error: Exception | None) -> None:
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
        whole = {is_chunked: _framed(batch.events, is_chunked) for is_chunked in (True, False)}
        waiting = [follower for followers in self.followers.values() for follower in followers]
        for number, follower in enumerate(waiting):
            if number % _WRITTEN == _WRITTEN - 1:
                await asyncio.sleep(0)
            if not self.has(follower):  # it left meanwhile
                continue
            if not follower.is_prompt:
                self.end({follower}, None)
                continue
            if follower.position < batch.events[0].position:
                follower.transport.write(whole[follower.is_chunked])
            else:  # it has read further by itself
                newer = [event for event in batch.events if event.position > follower.position]
                follower.transport.write(_framed(newer, follower.is_chunked))
            follower.position = max(follower.position, batch.position)

    def write_comment(self) -> None:
        """Write what shows a lost connection, and makes no event."""
        for followers in self.followers.values():
            for follower in followers:
                if follower.is_prompt:
                    follower.transport.write(_chunk(_WAITING, follower.is_chunked))


@dataclass(slots=True)
class EventStreams:
    """The groups of an application, by query and form. In the thread of its loop."""

    publications: Publications
    _groups: dict[tuple[str, str], _Group] = field(default_factory=dict)

    def join(self, follower: _Follower) -> bool:
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

    def leave(self, follower: _Follower) -> None:
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


class EventStream(Response):
    """The response to one follower, from a position on."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, position: int, streams: EventStreams) -> None:
        self._feed, self._position, self._streams = feed, position, streams
        self.status_code, self.background = 200, None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client is gone, the server stops, or the follower may not have more."""
        follower = _Follower(self._feed, scope[TRANSPORT], scope["http_version"] == "1.1", self._position)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send(_body(_FOLLOWING))
        watching = asyncio.create_task(_wake_when_gone(receive, follower))
        try:
            with self._feed.access.lasting(self._feed.permissions.principal):
                await self._follow(follower, send)
        except (Refused, HeadraceError) as error:
            await send(_body(f"event: error\ndata: {json.dumps(problem_of(error)[1])}\n\n".encode()))
        except TimeoutError:
            follower.transport.abort()
            await asyncio.sleep(0)  # until the server knows it
            return
        finally:
            self._streams.leave(follower)
            watching.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _follow(self, follower: _Follower, send: Send) -> None:
        publications, feed = self._streams.publications, self._feed
        while not publications.ended and not follower.transport.is_closing():
            wanted = (publications.waiter, feed.query, feed.form, follower.position)
            batch = await publications.reading(wanted, partial(feed.read, follower.position))
            feed.require_permitted()
            for event in batch.events:
                async with asyncio.timeout(STALLED_SECONDS):
                    await send(_body(_text(event)))
            follower.position = batch.position
            if batch.is_all and self._streams.join(follower):
                await follower.woken.wait()
                follower.woken.clear()
                if follower.error is not None:
                    raise follower.error


async def _wake_when_gone(receive: Receive, follower: _Follower) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    follower.woken.set()


def _text(event: Event) -> bytes:
    return f"id: {event.position}\nevent: rows\ndata: {event.data}\n\n".encode()


def _framed(events: Sequence[Event], is_chunked: bool) -> bytes:
    return _chunk(b"".join(map(_text, events)), is_chunked) if events else b""


def _chunk(data: bytes, is_chunked: bool) -> bytes:
    """Data as HTTP/1.1 has it in a response without a length; HTTP/1.0 has it as it is."""
    return b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data


def _body(data: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": True}
