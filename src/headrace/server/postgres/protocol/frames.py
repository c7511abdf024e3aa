"""Messages of PostgreSQL's protocol as bytes: reading those of a client within limits, writing those of the server,
except rows (`rows`).

PostgreSQL documentation, part "Frontend/Backend Protocol": a message is its type, a length that counts itself, and a body.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Final

from headrace.dataclass import dataclass

PROTOCOL: Final = 3
"""The major version of the protocol; a startup has it in its upper 16 bits."""
SSL_REQUEST: Final = 80877103
GSS_REQUEST: Final = 80877104
CANCEL_REQUEST: Final = 80877102
ADMITTED: Final = 0
PASSWORD: Final = 3
SASL: Final = 10
SASL_CONTINUE: Final = 11
SASL_FINAL: Final = 12
LARGEST: Final = 16 << 20
"""Bytes of a message of a client that is admitted."""
LARGEST_STARTUP: Final = 10_000
"""Bytes of a message before that."""
_INT32: Final = struct.Struct("!i")
_INT16: Final = struct.Struct("!h")


class Malformed(Exception):
    """Bytes that are no message. `lost`: where the next message begins is unknown."""

    def __init__(self, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, Body]:
    """The first message of a connection: its code, and the rest.

    Raises `Malformed`, and `IncompleteReadError` at the end of the connection.
    """
    length = _INT32.unpack(await reader.readexactly(4))[0]
    if not 8 <= length <= LARGEST_STARTUP:
        raise Malformed("invalid length of startup packet", lost=True)
    body = Body(await reader.readexactly(length - 4))
    return body.int32(), body


async def read_message(reader: asyncio.StreamReader, largest: int = LARGEST) -> tuple[bytes, Body]:
    """The next message of a client: its type and its body; raises as `read_startup`."""
    head = await reader.readexactly(5)
    length = _INT32.unpack_from(head, 1)[0]
    if not 4 <= length <= largest + 4:
        raise Malformed(f"a message of {length:,} bytes, and at most {largest:,} are taken", lost=True)
    return head[:1], Body(await reader.readexactly(length - 4))


@dataclass(slots=True)
class Body:
    """The body of a message, read from its start. Every method raises `Malformed` where it is too short."""

    data: bytes
    at: int = 0

    def int16(self) -> int:
        """Two bytes, signed."""
        value: int = _INT16.unpack(self.take(2))[0]
        return value

    def int32(self) -> int:
        """Four bytes, signed."""
        value: int = _INT32.unpack(self.take(4))[0]
        return value

    def count(self) -> int:
        """How many of something follow: two bytes, without sign."""
        return self.int16() & 0xFFFF

    def text(self) -> str:
        """UTF-8 up to a zero byte."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise Malformed("a text of the message has no end")
        text, self.at = self.data[self.at : end], end + 1
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise Malformed("a text of the message is not UTF-8") from None

    def sized(self) -> bytes | None:
        """A value after its length; None for NULL."""
        length = self.int32()
        return None if length == -1 else self.take(length)

    def take(self, length: int) -> bytes:
        """The next bytes."""
        if not 0 <= length <= len(self.data) - self.at:
            raise Malformed("the message is shorter than its parts")
        self.at += length
        return self.data[self.at - length : self.at]


def message(kind: bytes, body: bytes = b"") -> bytes:
    """A message of the server."""
    return kind + _INT32.pack(len(body) + 4) + body


def text(value: str) -> bytes:
    """A text with the zero byte that ends it."""
    return value.replace("\0", "").encode(errors="replace") + b"\0"


def authentication(code: int, facts: bytes = b"") -> bytes:
    """What is asked for, or that it was enough: one of the codes above, and what belongs to it."""
    return message(b"R", _INT32.pack(code) + facts)


def parameter_status(name: str, value: str) -> bytes:
    """A setting that clients want to know."""
    return message(b"S", text(name) + text(value))


def backend_key(process: int, secret: int) -> bytes:
    """What a request to cancel must name."""
    return message(b"K", struct.pack("!iI", process, secret))


def ready(status: bytes) -> bytes:
    """The next statement may come; I: outside of a transaction, T: inside, E: inside one that has failed."""
    return message(b"Z", status)


def command_complete(tag: str) -> bytes:
    """A statement is done."""
    return message(b"C", text(tag))


def copy_in(columns: int) -> bytes:
    """The server waits for rows, as text, of so many columns."""
    return message(b"G", struct.pack("!bh", 0, columns) + b"\0\0" * columns)


def copy_out(columns: int) -> bytes:
    """Rows as text follow."""
    return message(b"H", struct.pack("!bh", 0, columns) + b"\0\0" * columns)


def parameter_types(oids: Sequence[int]) -> bytes:
    """The types of a statement's parameters."""
    return message(b"t", _INT16.pack(len(oids)) + b"".join(struct.pack("!I", oid) for oid in oids))


def fields(kind: bytes, values: Sequence[tuple[bytes, str]]) -> bytes:
    """An error (E) or a notice (N): a letter and a text for each field."""
    return message(kind, b"".join(letter + text(value) for letter, value in values) + b"\0")


PARSE_COMPLETE: Final = message(b"1")
BIND_COMPLETE: Final = message(b"2")
CLOSE_COMPLETE: Final = message(b"3")
NO_DATA: Final = message(b"n")
EMPTY_QUERY: Final = message(b"I")
PORTAL_SUSPENDED: Final = message(b"s")
COPY_DONE: Final = message(b"c")
