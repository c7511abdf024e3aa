"""Names with `/` in the paths of requests: `%2F` belongs to a segment of a path, and does not divide it.

A server decodes a path before it is routed, and a name with `/` would be two segments. `EncodedPaths` leaves `%2F` and `%25`
as they were sent, and routes read a name with `{name:text}`, which decodes the two.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

CONVERTOR: Final = ":text"
"""What the path of a route has in a name, besides the description's."""
_ESCAPED: Final = re.compile(rb"%(2[Ff]|25)")
_KEPT: Final = re.compile("%2F|%25")


class EncodedPaths:
    """An application that gets the paths of its requests with `%2F` and `%25` in them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        raw: bytes = scope.get("raw_path") or b""
        if _ESCAPED.search(raw) is not None:
            sent = _ESCAPED.sub(lambda match: b"%25" + match[1].upper(), raw)
            scope["path"] = scope.get("root_path", "") + unquote(sent.decode("ascii"))
        await self._app(scope, receive, send)


class TextConvertor(Convertor[str]):
    """The text of one segment of a path."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """The text that a client has encoded."""
        return _KEPT.sub(lambda match: unquote(match[0]), value)

    def to_string(self, value: str) -> str:
        """The segment of a text."""
        return value.replace("%", "%25").replace("/", "%2F")


register_url_convertor(CONVERTOR.removeprefix(":"), TextConvertor())
