"""`/v1/queries/NAME/follow`: rows as epochs commit them, as server-sent events or over a WebSocket, and acknowledgement."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, WebSocket, WebSocketDisconnect
from starlette.concurrency import run_in_threadpool

from headrace.errors import HeadraceError, UserError
from headrace.runtime.hub.hub import Hub
from headrace.server.access import WATCH_SECONDS
from headrace.server.connections import follower_groups
from headrace.server.connections.event_streams import EventStream
from headrace.server.connections.follower_groups import Credits, Follower, FollowerGroups
from headrace.server.connections.http_protocol import TRANSPORT
from headrace.server.connections.web_sockets import FRAMES
from headrace.server.following import Event, Feed
from headrace.server.paging import require_committed
from headrace.server.problems import PROBLEMS_OF_EVENTS, Refused, problem_of
from headrace.server.security.audit import POLICY
from headrace.server.security.permissions import Permissions, needs_own_query, permissions_of

router = APIRouter(prefix="/v1/queries", tags=["followers"], dependencies=[Depends(needs_own_query)])
_FORM = "^(json|arrow)$"


@router.get("/{name:text}/follow", response_class=EventStream, status_code=200, responses=PROBLEMS_OF_EVENTS)
def follow(
    request: Request,
    name: str,
    client: str | None = None,
    since: Annotated[int | None, Query(ge=0)] = None,
    tables: Annotated[str, Query(pattern=_FORM)] = "json",
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventStream:
    """Rows as epochs commit them, as server-sent events whose `id` is the cursor.

    With `client` it begins with what that client has not acknowledged; with `Last-Event-ID` or `since` after that cursor;
    else with the next epoch.
    """
    state = request.app.state
    start = _cursor(last_event_id) if last_event_id is not None else since
    feed, position = _opened(state, permissions_of(request), name, client, start, tables)
    return EventStream(feed, position, state.follower_groups)


@router.websocket("/{name:text}/follow")
async def follow_with_credits(
    socket: WebSocket,
    name: str,
    client: str | None = None,
    since: Annotated[int | None, Query(ge=0)] = None,
    tables: Annotated[str, Query(pattern=_FORM)] = "json",
) -> None:
    """The same over a WebSocket: an event costs a credit, and the client sends `{"credits": 10}` for ten more.

    `{"acknowledge": CURSOR}` acknowledges for its `client`. What is refused before the handshake has the same response as over HTTP.
    """
    state = socket.app.state
    feed, position = await run_in_threadpool(
        _opened, state, permissions_of(socket), name, client, since, tables
    )
    await socket.accept()
    follower = Follower(feed, socket.scope[TRANSPORT], FRAMES, position, Credits())
    sending = asyncio.create_task(_send(socket, follower, state.follower_groups))
    reason = None
    try:
        reason = await _receive(socket, follower, client)
    except (WebSocketDisconnect, RuntimeError):  # closed by the client, or by `_send`
        pass
    finally:
        state.follower_groups.leave(follower)
        sending.cancel()
        with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
            await sending
    if reason is not None:
        with suppress(RuntimeError):  # closed by `_send`
            await socket.close(POLICY, reason[:100])


async def _send(socket: WebSocket, follower: Follower, groups: FollowerGroups) -> None:
    """Send events, each for a credit, until the server stops or the follower may not have more."""

    async def send(event: Event) -> None:
        await _paid(follower)
        async with asyncio.timeout(follower_groups.STALLED_SECONDS):
            await socket.send_text(event.data)

    try:
        await follower.follow(groups, send)
    except (Refused, HeadraceError) as error:
        await socket.close(POLICY, str(error)[:100])
    except TimeoutError:
        follower.transport.abort()
    else:
        await socket.close(1001)


async def _paid(follower: Follower) -> None:
    """Wait for a credit, as long as the follower may have the next event."""
    credits_ = follower.credits
    assert credits_ is not None
    follower.feed.require_permitted()
    while not credits_.take(1):
        with suppress(TimeoutError):
            await asyncio.wait_for(credits_.some(), WATCH_SECONDS)
        follower.feed.require_permitted()


async def _receive(socket: WebSocket, follower: Follower, client: str | None) -> str:
    """Take credits and acknowledgements; returns why the connection has to be closed."""
    feed, credits_ = follower.feed, follower.credits
    assert credits_ is not None
    while True:
        try:
            message = _numbers(await socket.receive_text())
            feed.require_permitted()
            if (cursor := message.get("acknowledge")) is not None:
                if client is None:
                    return "an acknowledgement is for a client: connect with ?client=NAME"
                await run_in_threadpool(_acknowledge, feed.hub, feed.query, client, cursor)
            credits_.give(message.get("credits", 0))
        except Refused as error:
            return str(error)
        except HeadraceError as error:
            await socket.send_text(json.dumps(problem_of(error)[1]))
        except (ValueError, KeyError, RecursionError):
            return 'expected {"credits": n} or {"acknowledge": cursor}'


def _numbers(text: str) -> dict[str, int]:
    """A message: `credits`, `acknowledge` or both. Raises `ValueError` for another text."""
    message = json.loads(text)
    if not isinstance(message, dict) or not message or message.keys() - {"credits", "acknowledge"}:
        raise ValueError(text)
    if not all(type(value) is int for value in message.values()) or message.get("credits", 0) < 0:
        raise ValueError(text)
    return message


@router.post("/{name:text}/acknowledge")
def acknowledge(
    request: Request, name: str, client: str, cursor: Annotated[int, Query(ge=0)]
) -> dict[str, Any]:
    """Never send this client rows up to a cursor again. Durable when answered; repeating it is harmless."""
    _acknowledge(request.app.state.hub, name, client, cursor)
    return {"client": client, "cursor": cursor}


def _opened(
    state: Any, permissions: Permissions, name: str, client: str | None, start: int | None, tables: str
) -> tuple[Feed, int]:
    """The feed of a query and the position that a follower begins at; what cannot be followed is refused now."""
    hub: Hub = state.hub
    if start is not None:
        require_committed(hub, start)
    if client is not None:
        start = max(hub.query(name).client(client).position, start or 0)
    elif start is None:
        start = hub.home.list_of(hub.home.latest(), "results").length
    query = hub.catalog.require_query(name).definition.name
    feed = Feed(hub, query, tables, state.encoded, permissions, state.access)
    feed.require_permitted()
    feed.read(start)
    return feed, start


def _acknowledge(hub: Hub, name: str, client: str, cursor: int) -> None:
    require_committed(hub, cursor)
    hub.query(name).client(client).acknowledge_to(cursor)


def _cursor(text: str) -> int:
    if not text.isdecimal():
        raise UserError(f"the Last-Event-ID '{text}' is no cursor", remedy="Send the id of a received event.")
    return int(text)
