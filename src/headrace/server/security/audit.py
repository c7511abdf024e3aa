"""Audit log (`audit.jsonl` in the home), and the middleware that writes a line for each HTTP request that is refused
(401, 403, 429) or is not GET, HEAD or OPTIONS (except accepted pushes of rows), and for each WebSocket that is accepted,
refused or closed by the server for what its client did. PostgreSQL clients have lines for refusals and for statements that
change definitions.

A line has the time, owner, role, token, address, method, path, statement, status and message; of a WebSocket the method is
`WEBSOCKET`, and the status that of the handshake or the code of the close; of an SQL tool the method is `SQL`, and the status an
SQLSTATE. Lines are appended and never changed;
a full file is renamed `audit-NUMBER.jsonl`, and the newest `_RETAINED` of these are retained.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.server.security.principal import Principal
from headrace.time import Clock, Instant, render_instant

NAME: Final = "audit.jsonl"
_LARGEST: Final = 16 << 20
_RETAINED: Final = 16
_LONGEST: Final = 10_000
"""Characters of a statement that a line has."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSED: Final = frozenset({401, 403, 429})
POLICY: Final = 1008
"""The close code of a WebSocket whose client does what it may not do."""


class AuditLog:
    """Appends whole lines, from any thread."""

    _lock = threading.Lock()
    """Of all listeners of a process: each has a log, of the same file."""

    def __init__(self, home: Path, largest: int = _LARGEST) -> None:
        self._path, self._largest = home / NAME, largest

    def write(self, line: dict[str, Any]) -> None:
        """Append a line. Raises `OSError` when it cannot be written."""
        text = json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"
        with self._lock:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, text)
                is_full = os.fstat(descriptor).st_size >= self._largest
            finally:
                os.close(descriptor)
            if is_full:
                self._rotate()

    def _rotate(self) -> None:
        older = sorted(self._path.parent.glob("audit-*.jsonl"))
        number = int(older[-1].stem.partition("-")[2]) + 1 if older else 1
        self._path.rename(self._path.with_name(f"audit-{number:06d}.jsonl"))
        for path in older[: max(0, len(older) - _RETAINED + 1)]:
            path.unlink()


class Audited:
    """An application whose changes and refusals are logged, before their response is sent."""

    def __init__(self, app: ASGIApp, log: AuditLog, clock: Clock) -> None:
        self._app, self._log, self._clock = app, log, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        was_accepted = False

        async def audited(message: Message) -> None:
            nonlocal was_accepted
            match message["type"]:
                case "http.response.start":
                    status = message["status"]
                    is_push = scope["path"].endswith("/rows") and status < 300
                    if status in _REFUSED or (scope["method"] not in _READING and not is_push):
                        self._log.write(self._line(scope, status))
                case "websocket.http.response.start":
                    self._log.write(self._line(scope, message["status"]))
                case "websocket.accept":
                    was_accepted = True
                    self._log.write(self._line(scope, 101))
                case "websocket.close" if not was_accepted or message.get("code") == POLICY:
                    scope.setdefault("state", {})["message"] = message.get("reason") or None
                    self._log.write(self._line(scope, POLICY if was_accepted else 403))
            await send(message)

        await self._app(scope, receive, audited)

    def _line(self, scope: Scope, status: int) -> dict[str, Any]:
        state, client = scope.get("state", {}), scope.get("client")
        return {
            "at": render_instant(self._clock()),
            **whose(state.get("principal"), client[0] if client else "local"),
            "method": scope.get("method", "WEBSOCKET"),
            "path": scope["path"],
            "statement": state.get("statement", "")[:_LONGEST] or None,
            "status": status,
            "message": state.get("message"),
        }


def whose(principal: Principal | None, address: str) -> dict[str, str | None]:
    """Who has made a request, and from where: a part of a line."""
    return {
        "owner": principal.owner if principal else None,
        "role": principal.role if principal else None,
        "token": principal.token if principal else None,
        "address": address,
    }


def of_tool(
    now: Instant,
    principal: Principal | None,
    address: str,
    *,
    statement: str = "",
    status: str = "00000",
    message: str | None = None,
) -> dict[str, Any]:
    """The line of a statement of an SQL tool; without a statement of a connection that was refused."""
    return {
        "at": render_instant(now),
        **whose(principal, address),
        "method": "SQL",
        "path": None,
        "statement": statement[:_LONGEST] or None,
        "status": status,
        "message": message,
    }
