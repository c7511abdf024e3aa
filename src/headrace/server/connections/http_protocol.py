"""HTTP connections of a hub: uvicorn's protocol, with a limited time for the head of each request, a limited number of
connections, and the search for peers that are gone. Handlers find a connection's transport in the scope (`TRANSPORT`).
"""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.dataclass import dataclass
from headrace.server.connections.peers import find_lost_peer, most_connections

HEAD_SECONDS: Final = 10.0
"""For the head of a request, from the connection or its first byte on."""
TRANSPORT: Final = "headrace.transport"
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"
)


class HttpConnection(H11Protocol):
    """One connection."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Serve it, or refuse it when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            transport.write(_BUSY)
            transport.close()
            return
        find_lost_peer(transport.get_extra_info("socket"))
        self.app = WithTransport(self.app, transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Handle a part of a request."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._clear_deadline()
        elif self._deadline is None:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        self._clear_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


@dataclass(frozen=True, slots=True)
class WithTransport:
    """An application whose requests know the transport that they came over."""

    app: ASGIApp
    transport: asyncio.Transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope[TRANSPORT] = self.transport
        await self.app(scope, receive, send)
