"""Authentication of HTTP requests: the check of each one's token, which sets its principal (an owner and a role); of
requests that do not end by themselves, for as long as they last. Over the home's socket no token is needed: file
permissions decide.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from headrace.dataclass import dataclass
from headrace.server.problems import Refused
from headrace.server.security.principal import LOCAL, OPEN, Principal
from headrace.server.security.tokens import Tokens

WATCH_SECONDS: Final = 1.0
"""Until followers with a token that was revoked or has expired are found."""


@dataclass(slots=True, eq=False)
class Access:
    """The check of each request. `tokens` None: everything is open, which is allowed on loopback only."""

    tokens: Tokens | None
    _followers: Counter[Principal] = field(default_factory=Counter)
    """How many requests that last there are of each token."""
    _revoked: set[str] = field(default_factory=set)

    @contextmanager
    def lasting(self, principal: Principal) -> Iterator[None]:
        """A block of a request that does not end by itself, and may last longer than its token is valid."""
        self._followers[principal] += 1
        try:
            yield
        finally:
            self._followers[principal] -= 1
            if not self._followers[principal]:
                del self._followers[principal]

    def require_valid(self, principal: Principal) -> None:
        """Raises `Refused` once the token of a request that lasts was revoked or has expired."""
        if principal.token in self._revoked:
            raise Refused(403, "the token was revoked")
        if self.tokens is not None and self.tokens.has_expired(principal):
            raise Refused(403, "the token has expired")

    async def watch(self, wake: Callable[[], None]) -> None:
        """Find out every `WATCH_SECONDS` which tokens of requests that last are not valid any more, and `wake` these requests."""
        while self.tokens is not None:
            await asyncio.sleep(WATCH_SECONDS)
            used = {principal for principal in self._followers if principal.token}
            if not used:
                continue
            names = await asyncio.to_thread(self.tokens.names)
            revoked = {principal.token for principal in used} - names - self._revoked
            self._revoked |= revoked
            if revoked or any(map(self.tokens.has_expired, used)):
                wake()

    async def __call__(self, request: HTTPConnection) -> None:
        """As `admit`, for routes; in the loop's thread: to change to another one and back takes longer, three times a request."""
        self.admit(request)

    def admit(self, request: HTTPConnection) -> None:
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
                403,
                self.tokens.why_not(token.strip()),
                "headrace serve shows one when it starts the first time; headrace token create makes more.",
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
