"""`PostgresServer`, the server of PostgreSQL's protocol: accepts connections (at most 100 that are admitted) in one
thread with one event loop, makes a session for each, and cancels a session's statement when its client asks for it.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from headrace.runtime.hub.hub import Hub
from headrace.server.connections.peers import find_lost_peer
from headrace.server.following import Publications
from headrace.server.postgres.admission import Entrance, Startup
from headrace.server.postgres.connection import Connection
from headrace.server.postgres.protocol.problems import Problem
from headrace.server.postgres.session import Session
from headrace.server.security.audit import AuditLog, of_tool
from headrace.server.security.permissions import Limits
from headrace.server.security.principal import OPEN, Principal
from headrace.server.security.tokens import Tokens

MOST_CONNECTIONS: Final = 100
"""That are admitted."""
_MOST_STARTING: Final = 1000
"""That are not logged in yet: they have `START_SECONDS` for it, and hold no other place."""
_THREADS: Final = 16
"""Statements that run at once; those of other connections wait."""
_END_SECONDS: Final = 2.0


class PostgresServer:
    """Serves connections from `run` until `should_exit` is set."""

    def __init__(
        self,
        hub: Hub,
        tokens: Tokens | None,
        publications: Publications,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._entrance, self._log = Entrance(tokens, limits, tls), AuditLog(hub.path)
        self._hub, self._publications = hub, publications
        self._sessions: dict[int, tuple[int, Session]] = {}
        """Those that are admitted: each connection's number, with its secret."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._ends = False

    @property
    def should_exit(self) -> bool:
        """Whether it ends."""
        return self._ends

    @should_exit.setter
    def should_exit(self, ends: bool) -> None:
        self._ends = ends
        if ends and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    def run(self, sockets: Sequence[socket.socket]) -> None:
        """Serve until the end."""
        asyncio.run(self._serve(sockets))

    async def _serve(self, sockets: Sequence[socket.socket]) -> None:
        self._loop = self._publications.loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS, "headrace-postgres"))
        self._hub.on_epoch(self._publications.epoch)
        servers = [await asyncio.start_server(self._accept, sock=listening) for listening in sockets]
        if not self._ends:
            await self._stop.wait()
        for server in servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_SECONDS)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) - len(self._sessions) <= _MOST_STARTING:
                await self._connected(reader, writer)
        except asyncio.CancelledError:
            writer.write(Problem("57P01", "terminating connection: the hub ends").as_error("FATAL"))
        finally:
            self._tasks.discard(task)
            with suppress(ConnectionError):
                writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._last += 1
        number, secret = self._last, secrets.randbits(32)
        address = (writer.get_extra_info("peername") or ("local",))[0]

        def audit(principal: Principal | None, **facts: str) -> None:
            self._log.write(of_tool(self._hub.loop.engine.clock(), principal, address, **facts))

        session = Session(self._hub, self._publications, self._entrance.limits.of(OPEN), audit)

        def enter() -> bool:
            if len(self._sessions) >= MOST_CONNECTIONS:
                return False
            self._sessions[number] = secret, session
            return True

        find_lost_peer(writer.get_extra_info("socket"))
        try:
            startup = Startup(self._entrance, session, reader, writer, (number, secret), enter, self._cancel)
            await Connection(session, reader, writer, startup).serve()
        finally:
            self._sessions.pop(number, None)

    def _cancel(self, number: int, secret: int) -> None:
        known = self._sessions.get(number)
        if known is not None and secrets.compare_digest(str(known[0]), str(secret)):
            known[1].cancel()
