"""Access: who may use a hub over the network. Over its local socket the file system's permissions decide."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

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
        """Raise `Refused` for a request over the network without a valid token."""
        if self.tokens is None or is_local(request):
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


def _file(token: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(token.encode()).hexdigest()}"
