"""Bodies of HTTP requests, read in parts as bytes or as UTF-8 text; refused when larger than a limit."""

from __future__ import annotations

from typing import Final

from fastapi import Request

from headrace.server.problems import Refused

LARGEST: Final = 64 << 20
"""Bytes of a body."""


async def body_of(request: Request, largest: int = LARGEST) -> bytes:
    """The body.

    Raises `Refused` as soon as it is larger than the limit.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise Refused(413, f"the body is larger than {largest:,} bytes", "Send it in several requests.")
        parts.append(part)
    return b"".join(parts)


async def text_of(request: Request, largest: int = LARGEST) -> str:
    """The body as text, as `body_of`.

    Raises `Refused` when it is not UTF-8.
    """
    try:
        return (await body_of(request, largest)).decode()
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not UTF-8: byte {error.start + 1}") from None
