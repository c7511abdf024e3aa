"""Listeners of a hub: listening sockets with a server behind them, in a thread of the hub's process; one for HTTP and
one for PostgreSQL's protocol, both with TLS where that is asked for. Opening of a TCP socket and the check of a TLS
certificate.

Every hub listens on a socket of the file system in its home, for which permissions of files are the access control. The
server's modules are loaded when the first connection comes, so that a program without connections pays nothing for them.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.remote.sockets import BACKLOG, SOCKET

if TYPE_CHECKING:
    from headrace.runtime.hub.hub import Hub

_STOP_SECONDS: Final = 5.0


def network_socket(host: str, port: int) -> socket.socket:
    """A listening TCP socket, whose connections send at once: else the body of an answer waits 40 ms for the client to confirm its head.

    Raises `UserError` when the address cannot be used.
    """
    try:
        listening = socket.create_server((host, port), backlog=BACKLOG, reuse_port=False)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            f"cannot listen on {host}:{port}: {reason}",
            remedy="Name another --host or --port; port 0 is any free one.",
        ) from None
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # which those it accepts inherit
    return listening


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM form: a certificate with its chain, and its key."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """The server's side of encryption. Raises `UserError` when the two cannot be used."""
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise UserError(
                f"cannot use the certificate {self.certificate} with the key {self.key}: {error}",
                remedy="Both are files in PEM form, and belong together.",
            ) from None
        return context


@dataclass(slots=True)
class Listener:
    """Answers requests of a hub on its sockets, from `start` until `stop`."""

    home: Path
    sockets: Sequence[socket.socket]
    make_server: Callable[[], Any]
    """The server of these sockets (uvicorn); called with the first connection."""
    before_stop: list[Callable[[], None]]
    """Called first when it stops."""
    eager: bool = False
    """Whether the server is made at once."""
    _server: Any = None
    _thread: threading.Thread | None = None
    _wake: tuple[int, int] = field(default_factory=os.pipe)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Listen in a thread."""
        self._thread = threading.Thread(target=self._run, name="headrace-server", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all connections and the thread, and remove the local socket."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        os.write(self._wake[1], b"x")
        for action in self.before_stop:
            action()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        for listening in self.sockets:
            listening.close()
        for end in self._wake:
            os.close(end)
        (self.home / SOCKET).unlink(missing_ok=True)

    def _run(self) -> None:
        if not self.eager:
            select.select([*(listening.fileno() for listening in self.sockets), self._wake[0]], [], [])
        if self._stopped.is_set():
            return
        self._server = self.make_server()
        if self._stopped.is_set():
            return
        self._server.run(sockets=list(self.sockets))


def listener_of(
    hub: Hub,
    sockets: Sequence[socket.socket],
    *,
    tokens: Any = None,
    limits: Any = None,
    tls: Certificate | None = None,
    eager: bool = False,
) -> Listener:
    """The listener of a hub; `tokens` as in `Access`, `limits` as in `headrace.server.security.permissions`."""
    before_stop: list[Callable[[], None]] = []

    def make_server() -> Any:
        import uvicorn  # noqa: PLC0415 - with the first connection

        from headrace.server.access import Access  # noqa: PLC0415
        from headrace.server.application import application  # noqa: PLC0415
        from headrace.server.connections.http_protocol import HttpConnection  # noqa: PLC0415
        from headrace.server.connections.web_sockets import WebSocketConnection  # noqa: PLC0415
        from headrace.server.following import Publications  # noqa: PLC0415
        from headrace.server.security.permissions import Limits  # noqa: PLC0415
        from headrace.server.security.roots import Roots  # noqa: PLC0415

        publications = Publications()
        before_stop.append(publications.end)
        return uvicorn.Server(
            uvicorn.Config(
                application(hub, Access(tokens), publications, limits or Limits(Roots((), hub.path))),
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else tls.key,
                http=HttpConnection,
                ws=WebSocketConnection,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=2,
                backlog=BACKLOG,
            )
        )

    return Listener(hub.path, sockets, make_server, before_stop, eager)


def tools_listener_of(
    hub: Hub, listening: socket.socket, tokens: Any, limits: Any, tls: Certificate | None = None
) -> Listener:
    """The listener of a hub for SQL tools, over PostgreSQL's protocol; `tokens` and `limits` as in `listener_of`."""
    before_stop: list[Callable[[], None]] = []

    def make_server() -> Any:
        from headrace.server.following import Publications  # noqa: PLC0415 - with the first connection
        from headrace.server.postgres.postgres_server import PostgresServer  # noqa: PLC0415

        publications = Publications()
        before_stop.append(publications.end)
        return PostgresServer(hub, tokens, publications, limits, None if tls is None else tls.context())

    return Listener(hub.path, [listening], make_server, before_stop)
