"""WebSockets of followers: uvicorn's protocol, whose handlers find a connection's transport in the scope as those of requests
do, and the frames in which events are written to many of them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode

from headrace.server.connections.follower_groups import Framing
from headrace.server.connections.http_protocol import WithTransport
from headrace.server.following import Event

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve it."""
        super().connection_made(transport)
        self.app = WithTransport(self.app, cast("asyncio.Transport", transport))

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message of the application. A response in place of the handshake ends it; uvicorn would log that as an error."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True


def _frames(events: Sequence[Event]) -> bytes:
    """Each event as one frame that is not compressed, as a server may send it whatever was negotiated (RFC 7692, section 6)."""
    return b"".join(Frame(Opcode.TEXT, event.data.encode()).serialize(mask=False) for event in events)


FRAMES: Final = Framing("websocket", _frames)
"""Lost connections are found by the protocol's own pings."""
