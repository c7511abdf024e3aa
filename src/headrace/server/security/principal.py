"""`Principal`, on whose behalf a request is made: an owner with one of the roles read, register and administer."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from headrace.catalog.definitions import QueryDefinition
from headrace.dataclass import dataclass
from headrace.time import Instant

Role: TypeAlias = Literal["read", "register", "administer"]
ROLES: Final[tuple[Role, ...]] = ("read", "register", "administer")
"""In this order: each may do what the one before it may."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An owner with a role. `token` is the short name of the token, for lists and logs; `is_remote`: it comes over the network.

    `expires`: when the token ceases to be valid; None: never.
    """

    owner: str | None = None
    role: Role = "administer"
    token: str = ""
    is_remote: bool = True
    expires: Instant | None = None

    def may(self, role: Role) -> bool:
        """Whether it may do what needs a role."""
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def is_limited(self) -> bool:
        """Whether it sees and changes only the queries of its owner."""
        return self.role != "administer"

    def sees(self, query: QueryDefinition) -> bool:
        """Whether it sees a query."""
        return not self.is_limited or (query.owner or "").casefold() == (self.owner or "").casefold()


LOCAL: Final = Principal(is_remote=False)
"""Over the socket in the home, for which permissions of files decide."""
OPEN: Final = Principal()
"""Without tokens: everything but paths outside of the allowed roots."""
