"""Frames between two processes over TCP: authenticated, in both directions at once.

A frame is the number of its round, a tag, a length and as many bytes. Sockets do not block: a process that sends also reads, so
two that send each other large frames cannot wait for each other.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

_HEADER: Final = struct.Struct(">QqQ")
_NONCE_BYTES: Final = 32
_HANDSHAKE_SECONDS: Final = 5.0
_LOST_SECONDS: Final = 15
"""A host that acknowledges nothing for this long counts as lost."""

BEAT: Final = -1
"""Tag of an empty frame that shows that its sender is alive."""


class ConnectionLost(ConnectionError):
    """The process at the other end has ended, closed the connection, or does not know the secret."""


class Frame(NamedTuple):
    """A received frame."""

    round: int
    tag: int
    data: bytes


class Channel:
    """One end of a connection to a process that knows the same secret."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()  # beats are sent by another thread
        self._outgoing: deque[memoryview] = deque()
        self._header = bytearray(_HEADER.size)
        self._body: bytearray | None = None
        self._filled = 0
        self.heard = time.monotonic()
        """When bytes last arrived."""

    @staticmethod
    def connect(address: tuple[str, int], secret: bytes) -> Channel:
        """A connection to a listening process. Raises `ConnectionLost`, or `OSError` when there is none."""
        connection = socket.create_connection(address, _HANDSHAKE_SECONDS)
        return Channel._authenticated(connection, secret, b"caller", b"listener")

    @staticmethod
    def accepted(connection: socket.socket, secret: bytes) -> Channel:
        """A connection that was accepted. Raises `ConnectionLost` when the caller does not know the secret."""
        return Channel._authenticated(connection, secret, b"listener", b"caller")

    @staticmethod
    def _authenticated(
        connection: socket.socket, secret: bytes, this_side: bytes, other_side: bytes
    ) -> Channel:
        """Both ends prove that they know the secret, each over both nonces and its own role."""
        try:
            connection.settimeout(_HANDSHAKE_SECONDS)
            nonce = os.urandom(_NONCE_BYTES)
            connection.sendall(nonce)
            challenge = _exactly(connection, _NONCE_BYTES)
            connection.sendall(hmac.digest(secret, this_side + nonce + challenge, "sha256"))
            expected = hmac.digest(secret, other_side + challenge + nonce, "sha256")
            _require_proof(_exactly(connection, len(expected)), expected)
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_lost_hosts(connection)
        except BaseException:
            connection.close()
            raise
        return Channel(connection)

    def fileno(self) -> int:
        """The socket's descriptor; -1 once it is closed."""
        return self._socket.fileno()

    @property
    def is_sending(self) -> bool:
        """Whether queued bytes have not been handed to the system yet."""
        return bool(self._outgoing)

    def send(self, round_: int, tag: int, data: bytes) -> None:
        """Queue a frame and send what the system takes now; `transfer` sends the rest."""
        with self._lock:
            self._outgoing.append(memoryview(_HEADER.pack(round_, tag, len(data))))
            if data:
                self._outgoing.append(memoryview(data))
            self._flush()

    def beat(self) -> None:
        """Show that this process is alive, unless it is sending anyway."""
        with self._lock:
            if not self._outgoing:
                self._outgoing.append(memoryview(_HEADER.pack(0, BEAT, 0)))
                self._flush()

    def flush(self) -> None:
        """Send what the system takes now."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        while self._outgoing:
            part = self._outgoing[0]
            try:
                sent = self._socket.send(part)
            except BlockingIOError:
                return
            except OSError as error:
                raise ConnectionLost(str(error)) from error
            if sent < len(part):
                self._outgoing[0] = part[sent:]
            else:
                self._outgoing.popleft()

    def received(self) -> list[Frame]:
        """The frames that are complete by now, without beats. Raises `ConnectionLost` at the end of the connection."""
        frames: list[Frame] = []
        while True:
            target = self._header if self._body is None else self._body
            if self._filled < len(target):
                try:
                    count = self._socket.recv_into(memoryview(target)[self._filled :])
                except BlockingIOError:
                    return frames
                except OSError as error:
                    raise ConnectionLost(str(error)) from error
                if count == 0:
                    raise ConnectionLost("the other end has closed the connection")
                self.heard = time.monotonic()
                self._filled += count
                if self._filled < len(target):
                    continue
            self._filled = 0
            round_, tag, length = _HEADER.unpack(self._header)
            if self._body is None and length:
                self._body = bytearray(length)
                continue
            body, self._body = bytes(self._body or b""), None
            if tag != BEAT:
                frames.append(Frame(round_, tag, body))

    def close(self) -> None:
        """Close the socket; the other end reads the end of the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def transfer(channels: Iterable[Channel], seconds: float | None) -> list[tuple[Channel, Frame]]:
    """Send and receive what is possible on these channels, after waiting at most `seconds` for any of it (None: without limit).

    Raises `ConnectionLost` when one of them has ended.
    """
    poll, by_descriptor = select.poll(), {}
    for channel in channels:
        descriptor = channel.fileno()
        if descriptor < 0:
            raise ConnectionLost("the connection is closed")
        by_descriptor[descriptor] = channel
        poll.register(descriptor, select.POLLIN | (select.POLLOUT if channel.is_sending else 0))
    frames: list[tuple[Channel, Frame]] = []
    for descriptor, events in poll.poll(None if seconds is None else max(0.0, seconds) * 1000):
        channel = by_descriptor[descriptor]
        if events & select.POLLOUT:
            channel.flush()
        if events & ~select.POLLOUT:
            frames += [(channel, frame) for frame in channel.received()]
    return frames


def finish_sending(channels: Sequence[Channel]) -> None:
    """Hand all queued bytes to the system. Frames that arrive meanwhile would be out of turn: raises `ConnectionLost`."""
    while any(channel.is_sending for channel in channels):
        if transfer(channels, None):
            raise ConnectionLost("a frame that was not expected")


def next_frame(channel: Channel, seconds: float) -> Frame:
    """The next frame of a channel. Raises `ConnectionLost`, also when there is none after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        frames = transfer([channel], until - time.monotonic())
        if len(frames) == 1:
            return frames[0][1]
        if frames or time.monotonic() > until:
            raise ConnectionLost(f"expected one frame in {seconds} seconds, found {len(frames)}")


def _require_proof(proof: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(proof, expected):
        raise ConnectionLost("a process that does not know the secret of the standing tasks")


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionLost("the other end has closed the connection")
        data += part
    return bytes(data)


def _notice_lost_hosts(connection: socket.socket) -> None:
    """Let the system end a connection whose host is lost, which sends no packet about it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 5),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 2),
        ("TCP_USER_TIMEOUT", _LOST_SECONDS * 1000),
    ):
        if hasattr(socket, name):  # those that this system has
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
