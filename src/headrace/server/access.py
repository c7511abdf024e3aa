"""Access: who may use a hub over the network. Over its local socket the file system's permissions decide."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from headrace.server.problems import Refused
from headrace.store.files.filesystem import Store

FOLDER: Final = "tokens"
"""Of a home."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a home: a file for each, named by its digest. A token itself is shown once, when it is made."""

    store: Store

    def make(self) -> str:
        """A new token, valid from now on."""
        token = secrets.token_urlsafe(32)
        self.store.put_if_absent(_file(token), b"")
        return token

    def admit(self, token: str) -> bool:
        """Whether a token is valid."""
        return self.store.exists(_file(token))

    def any(self) -> bool:
        """Whether a token was ever made."""
        return any(True for _ in self.store.list(f"{FOLDER}/"))


@dataclass(frozen=True, slots=True)
class Access:
    """The check of each request. `tokens` None: everything is open, which is allowed on loopback only."""

    tokens: Tokens | None

    def __call__(self, request: HTTPConnection) -> None:
        """Raise `Refused` for a request over the network without a valid token, or without tokens for one of another site's page."""
        if is_local(request):
            return
        if self.tokens is None:
            _require_own_page(request)
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused(401, "a token is missing", "Send the header 'Authorization: Bearer TOKEN'.")
        if not self.tokens.admit(token.strip()):
            raise Refused(
                403, "the token is not valid", "headrace serve shows one when it starts the first time."
            )


def is_local(request: HTTPConnection) -> bool:
    """Whether the request came over the hub's local socket."""
    server = request.scope.get("server")
    return server is not None and server[1] is None


def _require_own_page(request: HTTPConnection) -> None:
    """Refuse what a page of another site lets the browser of this machine send: by its origin, or by a name of its own for us."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if not is_loopback(urlsplit(f"//{host}").hostname or ""):
        raise Refused(
            403, f"the host '{host}' is not this machine", "Without tokens, use localhost or 127.0.0.1."
        )
    if origin is not None and urlsplit(origin).netloc != host:
        raise Refused(403, f"the page of '{origin}' may not use this hub", "Serve with tokens, and send one.")


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _file(token: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(token.encode()).hexdigest()}"
