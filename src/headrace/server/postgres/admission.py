"""The startup of one PostgreSQL connection: encryption where the hub has a certificate, the access token, and a place among
the admitted connections. The token is the password of an encrypted connection; over one in clear the client proves by SCRAM
that it has the token. It is checked again with each statement, and while one waits, so that one that was revoked or
has expired ends its connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

from headrace.dataclass import dataclass
from headrace.server.postgres.protocol import frames
from headrace.server.postgres.protocol.frames import Body, Malformed
from headrace.server.postgres.protocol.problems import Failed, Problem
from headrace.server.postgres.session import Session
from headrace.server.security.permissions import Limits
from headrace.server.security.principal import Principal
from headrace.server.security.scram import MECHANISM, Exchange, NoScram
from headrace.server.security.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Entrance:
    """Who may connect. `tokens` None: all of this machine. `tls`: how connections have to be encrypted; None: not."""

    tokens: Tokens | None
    limits: Limits
    tls: ssl.SSLContext | None = None


@dataclass(slots=True)
class Startup:
    """The startup of one connection."""

    entrance: Entrance
    session: Session
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    key: tuple[int, int]
    """What a request to cancel a statement of this connection must name."""
    enter: Callable[[], bool]
    """Takes a place among the admitted connections; False if there is none."""
    cancel: Callable[[int, int], None]
    """Ends the statement under way of the connection with a key."""
    _principal: Principal | None = None
    """Whose token was admitted."""

    async def admits(self) -> bool:
        """Whether the client is admitted, and its messages follow. Raises `Malformed`, and what reading raises."""
        code, body, is_encrypted = await self._opened()
        if code == frames.CANCEL_REQUEST:
            self.cancel(body.int32(), body.int32() & 0xFFFFFFFF)
            return False
        refusal = await self._refusal(code, body, is_encrypted=is_encrypted)
        if refusal is not None:
            await say_last(self.writer, refusal)
        return refusal is None

    async def holds(self) -> bool:
        """Whether the token is still valid."""
        tokens, principal = self.entrance.tokens, self._principal
        return tokens is None or (principal is not None and await asyncio.to_thread(tokens.holds, principal))

    async def _opened(self) -> tuple[int, Body, bool]:
        """The startup message, after the encryption that was asked for before it; and whether there is encryption."""
        is_encrypted = False
        while True:
            code, body = await frames.read_startup(self.reader)
            if code not in (frames.SSL_REQUEST, frames.GSS_REQUEST):
                return code, body, is_encrypted
            tls = self.entrance.tls if code == frames.SSL_REQUEST and not is_encrypted else None
            if tls is not None:
                await self._encrypt(tls)
                is_encrypted = True
            else:
                self.writer.write(b"N")
                await self.writer.drain()

    async def _encrypt(self, tls: ssl.SSLContext) -> None:
        """Encrypt the connection. Data in clear after the request is refused: it may be from a machine in between."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]  # what comes from here on is part of the handshake
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await self.reader.readexactly(1)
                raise Malformed("received unencrypted data after SSL request", lost=True)
        self.writer.write(b"S")
        try:
            await self.writer.start_tls(tls)
        except ssl.SSLError as error:
            raise ConnectionError from error

    async def _refusal(self, code: int, body: Body, *, is_encrypted: bool) -> Problem | None:
        """Why the client is not admitted; None: it is, and was greeted."""
        if code >> 16 != frames.PROTOCOL:
            return Problem("0A000", f"protocol version {code >> 16}.{code & 0xFFFF} is not supported, 3.0 is")
        options: dict[str, str] = {}
        while name := body.text():
            options[name] = body.text()
        if code & 0xFFFF or any(name.startswith("_pq_.") for name in options):
            self._negotiate([name for name in options if name.startswith("_pq_.")])
        if self.entrance.tls is not None and not is_encrypted:
            return Problem("28000", "this hub is reached with encryption only", "sslmode=require")
        refusal = await self._refusal_of_token(is_encrypted=is_encrypted) or self._put_settings(options)
        if refusal is None and not self.enter():
            refusal = Problem("53300", "sorry, too many clients already")
        if refusal is None:
            await self._greet()
        return refusal

    def _negotiate(self, unknown: Sequence[str]) -> None:
        body = b"\0\0\0\0" + len(unknown).to_bytes(4, "big") + b"".join(map(frames.text, unknown))
        self.writer.write(frames.message(b"v", body))

    async def _refusal_of_token(self, *, is_encrypted: bool) -> Problem | None:
        tokens, session = self.entrance.tokens, self.session
        if tokens is None:
            return None
        prove = self._admitted_by_password if is_encrypted else self._admitted_by_scram
        self._principal = await prove(tokens)
        if self._principal is not None:
            session.admit(self.entrance.limits.of(self._principal), self.holds)
            return None
        refusal = Problem(
            "28P01",
            "the password is no valid token of this hub",
            "headrace serve shows one; one that was made by an earlier version needs an encrypted connection.",
        )
        await asyncio.to_thread(session.audit, None, status=refusal.code, message=refusal.message)
        return refusal

    async def _admitted_by_password(self, tokens: Tokens) -> Principal | None:
        password = (await self._answered(frames.authentication(frames.PASSWORD))).text()
        return await asyncio.to_thread(tokens.admit, password)

    async def _admitted_by_scram(self, tokens: Tokens) -> Principal | None:
        """RFC 5802: the token itself is not sent, and the hub proves that it knows it too."""
        try:
            offer = frames.authentication(frames.SASL, frames.text(MECHANISM) + b"\0")
            first = await self._answered(offer)
            if first.text() != MECHANISM:
                raise Malformed(f"the mechanism is {MECHANISM}", lost=True)
            exchange = Exchange.of(first.sized() or b"")
            challenge = frames.authentication(frames.SASL_CONTINUE, exchange.server_first.encode())
            last = await self._answered(challenge)
            admitted = await asyncio.to_thread(lambda: exchange.finished(last.data, tokens.verifiers()))
        except NoScram as error:
            raise Malformed(str(error), lost=True) from None
        if admitted is None:
            return None
        principal, proof = admitted
        self.writer.write(frames.authentication(frames.SASL_FINAL, proof))
        return principal

    async def _answered(self, request: bytes) -> Body:
        """What a client answers when it is asked who it is."""
        self.writer.write(request)
        await self.writer.drain()
        kind, body = await frames.read_message(self.reader, frames.LARGEST_STARTUP)
        if kind != b"p":
            raise Malformed("a password was expected", lost=True)
        return body

    def _put_settings(self, options: dict[str, str]) -> Problem | None:
        for name in ("client_encoding", "application_name", "DateStyle"):
            value = options.get(name, options.get(name.lower()))
            try:
                if value is not None:
                    self.session.settings.put(name, value)
            except Failed as failed:
                return failed.problem
        if user := options.get("user"):
            self.session.settings.reported["session_authorization"] = self.session.reader.user = user
        return None

    async def _greet(self) -> None:
        self.writer.write(frames.authentication(frames.ADMITTED))
        for name, value in self.session.settings.reported.items():
            self.writer.write(frames.parameter_status(name, value))
        self.writer.write(frames.backend_key(*self.key) + frames.ready(self.session.status))
        await self.writer.drain()


async def say_last(writer: asyncio.StreamWriter, problem: Problem) -> None:
    """Write why a connection ends, unless its client is gone or takes nothing."""
    try:
        writer.write(problem.as_error("FATAL"))
        async with asyncio.timeout(1):
            await writer.drain()
    except (ConnectionError, TimeoutError):
        return
