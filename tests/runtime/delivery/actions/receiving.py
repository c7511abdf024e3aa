"""Receivers for tests of actions: a real HTTP server and a real SMTP server, each in a thread."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

STREAM = "CREATE STREAM s (k STRING, v BIGINT) USING push;"
SOON = "wait '0.001 SECONDS', longestWait '0.01 SECONDS'"


def until(fulfilled: Callable[[], Any]) -> Any:
    """Wait for what has to come; only a run that hangs ends here."""
    for _ in range(6000):
        if result := fulfilled():
            return result
        time.sleep(0.01)
    raise AssertionError("nothing came")


@dataclass
class Call:
    """A request that was received."""

    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def values(self) -> list[int]:
        return [row["v"] for row in self.json["rows"]]


@dataclass
class Hook:
    """A web server. `answers` are the statuses (and headers) of the first calls, each later one gets 204; `before` runs first."""

    answers: list[Any] = field(default_factory=list)
    before: Callable[[int], None] = lambda _: None
    calls: list[Call] = field(default_factory=list)
    url: str = ""

    @property
    def values(self) -> list[int]:
        return [value for call in self.calls for value in call.values]


@contextmanager
def hook(answers: list[Any] | None = None, before: Callable[[int], None] = lambda _: None) -> Iterator[Hook]:
    seen = Hook(answers or [], before)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:  # the caller was stopped while it sent: no call was received
                self.close_connection = True
                return
            with lock:
                number = len(seen.calls)
                seen.calls.append(Call({name.lower(): value for name, value in self.headers.items()}, body))
                answer = seen.answers[number] if number < len(seen.answers) else 204
            seen.before(number)
            status, headers = answer if isinstance(answer, tuple) else (answer, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that is gone is no error of a test."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        seen.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        try:
            yield seen
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Mailbox:
    """A mail server; `refusals` are its answers to the first RCPT commands, None accepts."""

    refusals: list[str | None] = field(default_factory=list)
    mails: list[tuple[list[str], str]] = field(default_factory=list)
    url: str = ""


@contextmanager
def mailbox(refusals: list[str | None] | None = None) -> Iterator[Mailbox]:
    box = Mailbox(refusals or [])

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(line.encode() + b"\r\n")

        def handle(self) -> None:
            self.say("220 test")
            to: list[str] = []
            while line := self.rfile.readline().decode().strip():
                verb = line[:4].upper()
                if verb == "RCPT":
                    refusal = box.refusals.pop(0) if box.refusals else None
                    if refusal is None:
                        to.append(line.partition("<")[2].rstrip(">"))
                    self.say(refusal or "250 ok")
                elif verb == "DATA":
                    self.say("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                        lines.append(text)
                    box.mails.append((to, "\n".join(lines)))
                    to = []
                    self.say("250 ok")
                elif verb == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 test" if verb in ("EHLO", "HELO", "MAIL", "RSET") else "500 what")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        box.url = f"smtp://127.0.0.1:{server.server_address[1]}"
        try:
            yield box
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def running(home: Path, *statements: str) -> Iterator[Hub]:
    """A hub with the stream and these statements, whose epochs run."""
    with open_hub(home, local=True) as hub, hub.running():
        hub.execute(STREAM)
        for statement in statements:
            hub.execute(statement)
        yield hub


def push(hub: Hub, *values: int, stream: str = "s") -> None:
    """Rows, and wait for an epoch that has read them."""
    before = hub.status()["streams"][stream].get("rows", 0)
    hub.push(stream, [{"k": "a", "v": value} for value in values])
    until(lambda: hub.status()["streams"][stream].get("rows", 0) == before + len(values))


def shown(hub: Hub) -> dict[str, Any]:
    """The one row of SHOW ACTIONS."""
    (row,) = hub.execute("SHOW ACTIONS")[0].table.to_pylist()
    return row


def letters(home: Path) -> list[dict[str, Any]]:
    """All dead letters, in order."""
    files = sorted((home / "dead-letters").rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
