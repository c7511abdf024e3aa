"""Event streams of followers over HTTP: `EventStream` is the response to one of them, which reads by itself what it has not
got, and then gets its events with the other followers of its query.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.errors import HeadraceError
from headrace.server.connections import follower_groups
from headrace.server.connections.follower_groups import Follower, FollowerGroups, Framing
from headrace.server.connections.http_protocol import TRANSPORT
from headrace.server.following import Event, Feed
from headrace.server.problems import Refused, problem_of

_FOLLOWING: Final = b": following\n\n"
_WAITING: Final = b": waiting\n\n"


class EventStream(Response):
    """The response to one follower, from a position on."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, position: int, groups: FollowerGroups) -> None:
        self._feed, self._position, self._groups = feed, position, groups
        self.status_code, self.background = 200, None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client is gone, the server stops, or the follower may not have more."""
        framing = _CHUNKED if scope["http_version"] == "1.1" else _PLAIN
        follower = Follower(self._feed, scope[TRANSPORT], framing, self._position)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send(_body(_FOLLOWING))
        watching = asyncio.create_task(_wake_when_gone(receive, follower))

        async def send_event(event: Event) -> None:
            async with asyncio.timeout(follower_groups.STALLED_SECONDS):
                await send(_body(_text(event)))

        try:
            await follower.follow(self._groups, send_event)
        except (Refused, HeadraceError) as error:
            await send(_body(f"event: error\ndata: {json.dumps(problem_of(error)[1])}\n\n".encode()))
        except TimeoutError:
            follower.transport.abort()
            await asyncio.sleep(0)  # until the server knows it
            return
        finally:
            self._groups.leave(follower)
            watching.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wake_when_gone(receive: Receive, follower: Follower) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    follower.woken.set()


def _text(event: Event) -> bytes:
    return f"id: {event.position}\nevent: rows\ndata: {event.data}\n\n".encode()


def _plain(events: Sequence[Event]) -> bytes:
    return b"".join(map(_text, events))


def _chunk(data: bytes) -> bytes:
    """Data as HTTP/1.1 has it in a response without a length; HTTP/1.0 has it as it is."""
    return b"%x\r\n%b\r\n" % (len(data), data)


_PLAIN: Final = Framing("events", _plain, _WAITING)
_CHUNKED: Final = Framing("events", lambda events: _chunk(_plain(events)), _chunk(_WAITING))


def _body(data: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": True}
