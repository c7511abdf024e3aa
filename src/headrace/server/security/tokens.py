"""Access tokens of a home: made, listed, revoked and admitted, until they expire if they do; they are also the passwords
of PostgreSQL clients, which prove that they have one by SCRAM.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.server.security.principal import Principal, Role
from headrace.server.security.scram import Verifier
from headrace.store.files.filesystem import MissingFile, Store
from headrace.time import Clock, Duration, now

FOLDER: Final = "tokens"
"""Of a home."""
_SHORT: Final = 12
"""Characters of a digest that are a token's short name."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a home: a file for each, named by its digest. A token is shown once, when it is made.

    A file has owner, role, the instant at which the token expires, and its SCRAM verifier. `clock` decides what has expired: a
    clock that was set back makes such a token valid again, as it does elsewhere.
    """

    store: Store
    clock: Clock = now

    def make(self, owner: str | None = None, role: Role = "administer", lasts: Duration | None = None) -> str:
        """A new token, valid from now on; without end, or as long as it `lasts`.

        Raises `UserError` for a token of a role that is limited to an owner's queries, without owner.
        """
        if owner is None and role != "administer":
            raise UserError(
                f"a token of the role '{role}' needs an owner", remedy="It sees the queries of its owner."
            )
        token = secrets.token_urlsafe(32)
        expires = None if lasts is None else self.clock() + lasts
        facts = {"owner": owner, "role": role, "expires": expires, "scram": Verifier.of(token).text}
        self.store.put_if_absent(_file(token), json.dumps(facts).encode())
        return token

    def admit(self, token: str) -> Principal | None:
        """On whose behalf a token is used; None for one that is not valid, or not any more."""
        principal = self._principal(_file(token))
        return principal if principal is not None and not self.has_expired(principal) else None

    def has_expired(self, principal: Principal) -> bool:
        """Whether the token's time is over."""
        return principal.expires is not None and principal.expires <= self.clock()

    def why_not(self, token: str) -> str:
        """Why a token is not admitted."""
        is_known = self._principal(_file(token)) is not None
        return "the token has expired" if is_known else "the token is not valid"

    def holds(self, principal: Principal) -> bool:
        """Whether the token that a principal came with is still valid."""
        return not self.has_expired(principal) and bool(self.store.list(f"{FOLDER}/{principal.token}"))

    def verifiers(self) -> Iterator[tuple[Principal, Verifier]]:
        """The valid tokens' verifiers. Tokens of earlier versions have none."""
        for file in self.store.list(f"{FOLDER}/"):
            facts = self._facts(file.name)
            if facts is not None and "scram" in facts:
                principal = _principal(file.name, facts)
                if not self.has_expired(principal):
                    yield principal, Verifier.of_text(facts["scram"])

    def _principal(self, name: str) -> Principal | None:
        facts = self._facts(name)
        return None if facts is None else _principal(name, facts)

    def _facts(self, name: str) -> dict[str, Any] | None:
        if not self.store.exists(name):
            return None
        try:
            content = self.store.read(name)
        except MissingFile:  # revoked meanwhile
            return None
        facts: dict[str, Any] = json.loads(content) if content else {}  # earlier tokens have no facts
        return facts

    def all(self) -> list[Principal]:
        """All tokens, the expired ones too, without the tokens themselves."""
        principals = (self._principal(file.name) for file in self.store.list(f"{FOLDER}/"))
        return [principal for principal in principals if principal is not None]

    def names(self) -> set[str]:
        """The short names of all tokens."""
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


def _principal(name: str, facts: dict[str, Any]) -> Principal:
    return Principal(
        facts.get("owner"), facts.get("role", "administer"), _short(name), expires=facts.get("expires")
    )


def _short(name: str) -> str:
    return name.rpartition("/")[2][:_SHORT]


def _file(token: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(token.encode()).hexdigest()}"
