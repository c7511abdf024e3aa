"""Authentication of one PostgreSQL connection: the password is an access token of the role administer, checked again
with each statement, so that a revoked token ends its connection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from headrace.server.access import Tokens
from headrace.server.postgres.protocol.problems import Problem
from headrace.server.postgres.session import Session
from headrace.server.security.permissions import Limits


@dataclass(slots=True)
class Admission:
    """Who may use one connection. `tokens` None: all of this machine."""

    tokens: Tokens | None
    limits: Limits
    _password: str = ""

    @property
    def needs_password(self) -> bool:
        """Whether a token is asked for."""
        return self.tokens is not None

    async def refusal(self, session: Session, password: str) -> Problem | None:
        """Why a token is not admitted; None: the session has its permissions now.

        Tools read the tables of all owners, so they need a token that may do that.
        """
        assert self.tokens is not None
        self._password = password
        principal = await asyncio.to_thread(self.tokens.admit, password)
        if principal is not None and not principal.is_limited:
            session.permissions = self.limits.of(principal)
            return None
        if principal is None:
            refusal = Problem(
                "28P01", "the password is no valid token of this hub", "headrace serve shows one."
            )
        else:
            refusal = Problem(
                "28000",
                f"the token's role is '{principal.role}', and SQL tools need 'administer'",
                "They read the tables of all owners. Over HTTP the token gives access to those of its own.",
            )
        await asyncio.to_thread(session.audit, principal, status=refusal.code, message=refusal.message)
        return refusal

    async def holds(self) -> bool:
        """Whether the token is still valid."""
        return self.tokens is None or await asyncio.to_thread(self.tokens.admit, self._password) is not None
