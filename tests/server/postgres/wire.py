"""A client of the protocol that sends any bytes, and a served home with some rows for real clients."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.server.serving import STREAM, TOTAL, TUMBLE, Served, served

PSQL = shutil.which("psql")
needs_psql = pytest.mark.skipif(PSQL is None, reason="needs psql, which this machine does not have")
ROWS = '{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}\n{"k":"b","v":2,"at":"2024-01-01T00:00:12.5Z"}\n'
CATEGORY = "CREATE STREAM tail (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at; CREATE QUERY all_of_tail AS SELECT v FROM tail;"


@contextmanager
def with_rows(home: Path, *, auth: bool = False) -> Iterator[Served]:
    """A home with a stream of two rows, one closed window, and a total."""
    options = ("--postgres-port", "0", "--allow-root", str(home.parent.parent))
    with served(home, *options, auth=auth) as hub:
        if not auth:
            status, outcomes = hub.post("/v1/statements", STREAM + TUMBLE + TOTAL + CATEGORY)
            assert status == 200, outcomes
            hub.post("/v1/streams/s/rows", ROWS, "-H", "Content-Type: application/x-ndjson")
            until(lambda: hub.get("/v1/queries/q/results")["rows"])
        yield hub


def until(found) -> None:
    """Wait for a condition."""
    for _ in range(500):
        if found():
            return
        time.sleep(0.01)
    pytest.fail("it did not happen")


@dataclass
class Raw:
    """A connection of which the test writes the bytes."""

    socket: socket.socket
    key: tuple[int, int] = (0, 0)
    settings: dict[str, str] = field(default_factory=dict)

    def send(self, kind: bytes, body: bytes = b"") -> None:
        self.socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def query(self, text: str) -> list[tuple[bytes, bytes]]:
        self.send(b"Q", text.encode() + b"\0")
        return self.until_ready()

    def until_ready(self) -> list[tuple[bytes, bytes]]:
        """The messages up to ReadyForQuery."""
        found = []
        while not found or found[-1][0] != b"Z":
            found.append(self.receive())
        return found

    def receive(self) -> tuple[bytes, bytes]:
        head = self._exactly(5)
        kind, length = head[:1], struct.unpack_from("!i", head, 1)[0]
        return kind, self._exactly(length - 4)

    def _exactly(self, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            if not part:
                raise EOFError(parts)
            parts += part
        return parts


def startup(**options: str) -> bytes:
    body = struct.pack("!i", 3 << 16) + b"".join(
        name.encode() + b"\0" + value.encode() + b"\0" for name, value in options.items()
    )
    body += b"\0"
    return struct.pack("!i", len(body) + 4) + body


@contextmanager
def connected(port: int, password: str | None = None) -> Iterator[Raw]:
    """A connection after its startup."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        raw = Raw(connection)
        connection.sendall(startup(user="anyone", database="headrace"))
        if password is not None:
            prove(raw, password)
        for kind, body in raw.until_ready():
            assert kind in b"RSKZ", body
            if kind == b"K":
                raw.key = struct.unpack("!iI", body)
            if kind == b"S":
                name, value, _ = body.split(b"\0")
                raw.settings[name.decode()] = value.decode()
        yield raw


def prove(raw: Raw, token: str, header: str = "n,,") -> tuple[bytes, bytes]:
    """The client's side of SCRAM-SHA-256 (RFC 5802); the messages of both, and the signature that the server should answer."""
    mechanism, bare = b"SCRAM-SHA-256\0", "n=,r=fyko+d2lbbFgONRv9qkxdawL"
    assert raw.receive() == (b"R", struct.pack("!i", 10) + mechanism + b"\0")
    first = f"{header}{bare}".encode()
    raw.send(b"p", mechanism + struct.pack("!i", len(first)) + first)
    kind, challenge = raw.receive()
    assert (kind, challenge[:4]) == (b"R", struct.pack("!i", 11)), challenge
    asked = dict(part.split("=", 1) for part in challenge[4:].decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", token.encode(), base64.b64decode(asked["s"]), int(asked["i"]))
    last = f"c={base64.b64encode(header.encode()).decode()},r={asked['r']}"
    messages = f"{bare},{challenge[4:].decode()},{last}".encode()
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), messages, "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    raw.send(b"p", f"{last},p={base64.b64encode(proof).decode()}".encode())
    return messages, hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), messages, "sha256")


def fields(body: bytes) -> dict[str, str]:
    """An ErrorResponse by its letters."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def error(messages: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """The one error of an answer."""
    (body,) = [body for kind, body in messages if kind == b"E"]
    return fields(body)


def rows(messages: list[tuple[bytes, bytes]]) -> list[list[bytes | None]]:
    """The cells of all DataRows."""
    return [cells(body) for kind, body in messages if kind == b"D"]


def cells(body: bytes) -> list[bytes | None]:
    count, at, found = struct.unpack_from("!h", body)[0], 2, []
    for _ in range(count):
        length = struct.unpack_from("!i", body, at)[0]
        at += 4
        found.append(None if length == -1 else body[at : at + length])
        at += max(length, 0)
    assert at == len(body)
    return found
