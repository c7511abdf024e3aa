"""Authentication: the access tokens of a home (create, list, revoke), which are also the passwords of PostgreSQL
clients, and the check of each HTTP request, which sets its principal (an owner and a role); of requests that do not end by
themselves, for as long as they last. Over the home's socket no token is needed: file permissions decide.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from headrace.errors import UserError
from headrace.server.problems import Refused
from headrace.server.security.principal import LOCAL, OPEN, Principal, Role
from headrace.store.files.filesystem import MissingFile, Store

FOLDER: Final = "tokens"
"""Of a home."""
WATCH_SECONDS: Final = 1.0
"""Until followers with a token that was revoked are found."""
_SHORT: Final = 12
"""Characters of a digest that are a token's short name."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a home: a file for each, named by its digest, with its owner and role. A token is shown once, when it is made."""

    store: Store

    def make(self, owner: str | None = None, role: Role = "administer") -> str:
        """A new token, valid from now on.

        Raises `UserError` for a token of a role that is limited to an owner's queries, without owner.
        """
        if owner is None and role != "administer":
            raise UserError(
                f"a token of the role '{role}' needs an owner", remedy="It sees the queries of its owner."
            )
        token = secrets.token_urlsafe(32)
        self.store.put_if_absent(_file(token), json.dumps({"owner": owner, "role": role}).encode())
        return token

    def admit(self, token: str) -> Principal | None:
        """On whose behalf a token is used; None for one that is not valid."""
        name = _file(token)
        return self._principal(name) if self.store.exists(name) else None

    def _principal(self, name: str) -> Principal | None:
        try:
            content = self.store.read(name)
        except MissingFile:  # revoked meanwhile
            return None
        facts = json.loads(content) if content else {}  # earlier tokens have no facts
        return Principal(facts.get("owner"), facts.get("role", "administer"), _short(name))

    def all(self) -> list[Principal]:
        """The valid tokens, without the tokens themselves."""
        found = (self._principal(file.name) for file in self.store.list(f"{FOLDER}/"))
        return [principal for principal in found if principal is not None]

    def names(self) -> set[str]:
        """The short names of the valid tokens."""
        return {_short(file.name) for file in self.store.list(f"{FOLDER}/")}

    def revoke(self, token: str) -> Principal:
        """Make a token invalid, given by its short name; durable on return.

        Raises `UserError` when there is none, or more than one.
        """
        files = self.store.list(f"{FOLDER}/{token}") if token else []
        if len(files) != 1:
            raise UserError(f"there is no token '{token}'", remedy="headrace token list shows them.")
        principal = self._principal(files[0].name)
        self.store.delete(files[0].name, durable=True)
        return principal or Principal(token=token)

    def any(self) -> bool:
        """Whether there is a token."""
        return any(True for _ in self.store.list(f"{FOLDER}/"))


@dataclass(slots=True, eq=False)
class Access:
    """The check of each request. `tokens` None: everything is open, which is allowed on loopback only."""

    tokens: Tokens | None
    _followers: Counter[str] = field(default_factory=Counter)
    """How many requests that last there are of each token, by its short name."""
    _revoked: set[str] = field(default_factory=set)

    @contextmanager
    def lasting(self, principal: Principal) -> Iterator[None]:
        """A block of a request that does not end by itself, and may last longer than its token is valid."""
        self._followers[principal.token] += 1
        try:
            yield
        finally:
            self._followers[principal.token] -= 1

    def require_valid(self, principal: Principal) -> None:
        """Raises `Refused` once the token of a request that lasts was revoked."""
        if principal.token in self._revoked:
            raise Refused(403, "the token was revoked")

    async def watch(self, wake: Callable[[], None]) -> None:
        """Find out every `WATCH_SECONDS` which tokens of requests that last were revoked, and `wake` these requests."""
        while self.tokens is not None:
            await asyncio.sleep(WATCH_SECONDS)
            used = {token for token, count in self._followers.items() if count and token}
            if used and (revoked := used - await asyncio.to_thread(self.tokens.names) - self._revoked):
                self._revoked |= revoked
                wake()

    def __call__(self, request: HTTPConnection) -> None:
        """Set the principal of a request.

        Raises `Refused` for one over the network without a valid token, or without tokens for one of another site's page.
        """
        request.state.principal = self._principal(request)

    def _principal(self, request: HTTPConnection) -> Principal:
        if is_local(request):
            return LOCAL
        if self.tokens is None:
            _require_own_page(request)
            return OPEN
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused(401, "a token is missing", "Send the header 'Authorization: Bearer TOKEN'.")
        principal = self.tokens.admit(token.strip())
        if principal is None:
            raise Refused(
                403, "the token is not valid", "headrace serve shows one when it starts the first time."
            )
        return principal


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


def _short(name: str) -> str:
    return name.rpartition("/")[2][:_SHORT]


def _file(token: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(token.encode()).hexdigest()}"
