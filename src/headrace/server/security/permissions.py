"""Permissions of a principal (an owner with a role): which statements it may execute, over which queries, files and
secrets; checks of HTTP routes for a role. A statement that is not allowed is refused, one over many queries is limited
to the principal's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from typing import Any, Final

from starlette.requests import HTTPConnection, Request

from headrace.catalog.catalog import Catalog
from headrace.catalog.definitions import ActionDefinition, QueryDefinition
from headrace.catalog.system_streams import is_system
from headrace.dataclass import dataclass
from headrace.errors import UnknownName
from headrace.language.parser.query import parse_select
from headrace.language.statements import statement as stmt
from headrace.language.statements.actions import ENVIRONMENT
from headrace.language.statements.query_filter import Condition
from headrace.language.syntax.ast import Source
from headrace.server.problems import Refused
from headrace.server.security.principal import Principal, Role
from headrace.server.security.quotas import Quotas
from headrace.server.security.roots import Roots

_OF_ONE_QUERY: Final = (
    stmt.AlterQuery,
    stmt.RenameQuery,
    stmt.SetQuery,
    stmt.SetActions,
    stmt.SetWindow,
    stmt.PauseQuery,
    stmt.ResumeQuery,
)


@dataclass(frozen=True, slots=True)
class Permissions:
    """The permissions of one principal."""

    principal: Principal
    roots: Roots
    quotas: Quotas

    def permit(self, catalog: Catalog, statement: stmt.Statement) -> stmt.Statement:
        """The statement to run, limited to the principal's own queries.

        Raises `Refused` for one that it may not run, and `UnknownName` for queries that it does not see.
        """
        if self.principal.is_remote:
            for path in _paths(statement):
                self.roots.require(path)
        return self._limited(catalog, statement) if self.principal.is_limited else statement

    def _limited(self, catalog: Catalog, statement: stmt.Statement) -> stmt.Statement:
        match statement:
            case stmt.Show(kind="query" | "action"):
                return replace(statement, selection=(*statement.selection, self._own()))
            case stmt.Show(kind="stream" | "relation") | stmt.SetTimeZone():
                return statement
            case (
                stmt.Describe(name=name)
                | stmt.ShowCreate(name=name)
                | stmt.ExplainQuery(name=name)
                | stmt.ExplainAdaptive(name=name)
                | stmt.Invoke(name=name)
            ):
                self.require_seen(catalog, name)
                return statement
            case stmt.ExplainSelect(select=select) | stmt.Ask(select=select):
                self._require_sources(catalog, select)
                return statement
            case stmt.AllQueries():
                self.require("register")
                return replace(statement, selection=(*statement.selection, self._own()))
            case stmt.CreateQuery(definition=definition):
                self._require_sources(catalog, statement.select)
                self._require_own_actions(definition.actions)
                return replace(statement, definition=self.registered(catalog, definition))
        if isinstance(statement, _OF_ONE_QUERY) or (
            isinstance(statement, stmt.Drop) and statement.kind == "query"
        ):
            self.require("register")
            self.require_seen(catalog, statement.name)
            if isinstance(statement, stmt.AlterQuery):
                self._require_sources(catalog, statement.select)
            if isinstance(statement, stmt.SetActions):
                self._require_own_actions(statement.actions)
            if isinstance(statement, stmt.SetQuery) and "owner" in statement.settings:
                self._require_own(statement.settings["owner"])
            return statement
        self.require("administer")
        return statement

    def registered(self, catalog: Catalog, definition: QueryDefinition, further: int = 0) -> QueryDefinition:
        """The definition of a query to register, with the principal's owner, besides `further` ones.

        Raises `Refused` for another owner, and beyond the quota.
        """
        self.require("register")
        if not self.principal.is_limited:
            return definition
        self._require_own(definition.owner)
        existing = catalog.query(definition.name)
        if existing is None:
            self.quotas.require_query(catalog, self.principal, further)
        elif not self.principal.sees(existing.definition):
            raise Refused(409, f"the name '{definition.name}' is taken", "Choose another one.")
        return replace(definition, owner=self.principal.owner)

    @property
    def largest_body(self) -> int:
        """Bytes of the largest body of a request."""
        return self.quotas.largest_body(self.principal)

    def require(self, role: Role) -> None:
        """Raises `Refused` for a principal that may not do what needs a role."""
        if not self.principal.may(role):
            raise Refused(
                403,
                f"the token's role is '{self.principal.role}', and this needs '{role}'",
                "headrace token create makes one with another role.",
            )

    def require_seen(self, catalog: Catalog, name: str) -> None:
        """Raises `UnknownName` for a query of another owner, as if it did not exist."""
        query = catalog.query(name)
        if query is not None and not self.principal.sees(query.definition):
            raise UnknownName(f"there is no query '{name}'")

    def visible(self, catalog: Catalog, names: Sequence[str]) -> list[str]:
        """Those of some queries that the principal sees."""
        named_queries = ((name, catalog.query(name)) for name in names)
        return [
            name
            for name, query in named_queries
            if query is not None and self.principal.sees(query.definition)
        ]

    def _require_sources(self, catalog: Catalog, select: object) -> None:
        for name in sources_of(select):
            self.require_seen(catalog, name)
            if is_system(name):  # they have rows about the queries of all owners
                self.require("administer")

    def _require_own_actions(self, actions: Sequence[ActionDefinition]) -> None:
        """Refuse files of the machine, and other secrets than the owner's: they could be sent to a receiver of its choice."""
        owner = self.principal.owner or ""
        for action in actions:
            if action.kind == "folder":
                self.require("administer")
            variable, file = action.option("secretenv", ""), action.option("secretfile", "")
            if variable not in ("", f"{ENVIRONMENT}{owner.upper()}") or (
                file and file.partition(".")[0].casefold() != owner.casefold()
            ):
                raise Refused(
                    403,
                    f"the secret '{variable or file}' is not that of '{owner}'",
                    f"The secrets of an owner are {ENVIRONMENT}{owner.upper()} and files such as '{owner}.key'.",
                )

    def _require_own(self, owner: str | None) -> None:
        if owner is not None and owner.casefold() != (self.principal.owner or "").casefold():
            raise Refused(403, f"the token belongs to '{self.principal.owner}', not to '{owner}'")

    def owner_of_all(self, catalog: Catalog, selects: Mapping[str, str], owner: str | None) -> str | None:
        """The owner of queries to register, by name.

        Raises `Refused` as `registered`, and what the parser raises.
        """
        for further, (name, text) in enumerate(selects.items()):
            if self.principal.is_limited:
                self._require_sources(catalog, parse_select(text.strip().rstrip(";")))
            self.registered(catalog, QueryDefinition(name, text, owner=owner), further)
        return self.principal.owner if self.principal.is_limited else owner

    def _own(self) -> Condition:
        return Condition("owner", self.principal.owner or "")


@dataclass(frozen=True, slots=True)
class Limits:
    """What principals are limited to besides their roles."""

    roots: Roots
    quotas: Quotas = field(default_factory=Quotas)

    def of(self, principal: Principal) -> Permissions:
        """The permissions of a principal."""
        return Permissions(principal, self.roots, self.quotas)


def permissions_of(request: HTTPConnection) -> Permissions:
    """The permissions of the principal of a request."""
    limits: Limits = request.app.state.limits
    return limits.of(request.state.principal)


async def needs_register(request: Request) -> None:
    """A route that needs the role. Raises `Refused`."""
    permissions_of(request).require("register")


async def needs_administer(request: Request) -> None:
    """A route that needs the role. Raises `Refused`."""
    permissions_of(request).require("administer")


async def needs_own_query(request: HTTPConnection) -> None:
    """A route about the query `name`. Raises `UnknownName` for one of another owner."""
    name = request.path_params.get("name")
    if name is not None:
        permissions_of(request).require_seen(request.app.state.hub.catalog, name)


def _paths(statement: stmt.Statement) -> Iterator[str]:
    """Paths of a statement: what it reads, and the folders that its actions write."""
    actions: tuple[ActionDefinition, ...] = ()
    match statement:
        case stmt.CreateStream(definition=definition) | stmt.CreateRelation(definition=definition):
            yield from (value for name, value in definition.options.items() if name.lower() == "path")
        case stmt.CreateQuery(definition=query):
            actions = query.actions
        case stmt.SetActions():
            actions = statement.actions
    yield from (action.target for action in actions if action.kind == "folder")


def sources_of(node: Any) -> Iterator[str]:
    """The names in all FROM clauses of a SELECT, also of those inside it."""
    if isinstance(node, Source):
        yield node.name
    if isinstance(node, tuple | list):
        for inner in node:
            yield from sources_of(inner)
    elif is_dataclass(node) and not isinstance(node, type):
        for attribute in fields(node):
            yield from sources_of(getattr(node, attribute.name))
