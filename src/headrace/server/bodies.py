"""Bodies of HTTP requests, read in parts as bytes or as UTF-8 text; refused when compressed, in another charset, larger than a
limit, or when no part comes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from headrace.server.problems import Refused

LARGEST: Final = 64 << 20
"""Bytes of a body."""
PART_SECONDS: Final = 30.0
"""Until the next part of a body."""

_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]*)", re.IGNORECASE)
_CHARSETS: Final = ("", "utf-8", "utf8", "us-ascii", "ascii")


async def body_of(request: Request, largest: int) -> bytes:
    """The body.

    Raises `Refused` as soon as it is larger than the limit, when nothing comes for `PART_SECONDS`, and for a content coding or a
    charset that is not read.
    """
    _require_plain(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > largest:
        raise _too_large(largest)
    parts, size = [], 0
    async for part in _parts(request):
        size += len(part)
        if size > largest:
            raise _too_large(largest)
        parts.append(part)
    return b"".join(parts)


def _require_plain(request: Request) -> None:
    for coding in ",".join(request.headers.getlist("content-encoding")).split(","):
        if coding.strip().lower() not in ("", "identity"):
            raise Refused(
                415,
                f"a body with the content coding '{coding.strip()}' is not read",
                "Send it uncompressed, without the header Content-Encoding.",
            )
    charset = _CHARSET.search(request.headers.get("content-type", ""))
    if charset is not None and charset[1].lower() not in _CHARSETS:
        raise Refused(415, f"a body in the charset '{charset[1]}' is not read", "Send it in UTF-8.")


def _too_large(largest: int) -> Refused:
    return Refused(413, f"the body is larger than {largest:,} bytes", "Send it in several requests.")


async def _parts(request: Request) -> AsyncIterator[bytes]:
    parts = request.stream()
    while True:
        try:
            async with asyncio.timeout(PART_SECONDS):
                part = await anext(parts)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Refused(
                408, f"no part of the body came for {PART_SECONDS:.0f} seconds", "Send it again."
            ) from None
        except ClientDisconnect:
            raise Refused(400, "the connection ended before the body did") from None
        yield part


async def text_of(request: Request, largest: int) -> str:
    """The body as text, as `body_of`.

    Raises `Refused` when it is not UTF-8.
    """
    try:
        return (await body_of(request, largest)).decode()
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not UTF-8: byte {error.start + 1}") from None
