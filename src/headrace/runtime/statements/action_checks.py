"""Checks of a query's actions (THEN …) when they are defined: one that cannot be delivered is refused with its place. Also
their ids and start positions, the log entry that changes them, and the streams that actions write to.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.algebra.query import Query, QueryScan, StreamScan, every_node
from headrace.catalog.catalog import Catalog
from headrace.catalog.definition_json import settings_to_json
from headrace.catalog.definitions import ActionDefinition, QueryDefinition
from headrace.connectors.sources.segment_files import as_rows
from headrace.dataclass import dataclass
from headrace.errors import Span, UserError
from headrace.language.statements.statement import SetActions
from headrace.operators.base.operator import Operator
from headrace.runtime.delivery.on_demand_changelog import require_changelog
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.epoch.push import require_stream
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.epoch_planner import operator_of
from headrace.runtime.statements.outcome import Outcome

if TYPE_CHECKING:
    from headrace.runtime.delivery.actions.receivers import Receivers


@dataclass(frozen=True, slots=True)
class ActionRules:
    """What holds for the actions of a hub's queries."""

    pipeline: Pipeline
    receivers: Receivers | None

    def identified(self, definition: QueryDefinition, existing: QueryDefinition | None) -> QueryDefinition:
        """A definition whose actions have full paths, ids and starts.

        Those that the existing query has already continue from their positions; others begin with the next results.
        """
        if not definition.actions:
            return definition
        former = () if existing is None else existing.actions
        home = self.pipeline.home
        start = home.list_of(home.latest(), "results").length
        actions = [
            next((other for other in former if other == action), None)
            or replace(action, id=uuid.uuid4().hex, since=start)
            for action in map(_settled, definition.actions)
        ]
        return replace(definition, actions=tuple(actions))

    def require(
        self,
        catalog: Catalog,
        definition: QueryDefinition,
        query: Query,
        operator: Operator,
        places: Sequence[Span] = (),
    ) -> None:
        """Refuse actions whose targets cannot be used. Raises `UserError` at the place of the first."""
        if definition.actions:
            require_changelog(definition.name, operator)
        for index, action in enumerate(definition.actions):
            try:
                if action.kind == "stream":
                    _require_stream_fits(catalog, definition.name, query, action.target)
                elif action.kind == "folder":
                    _require_own_files(catalog, definition.name, action)
                elif action.kind in ("call", "notify"):
                    from headrace.runtime.delivery.actions.secret import secret_of  # noqa: PLC0415 - with the first call

                    secret_of(action, self.pipeline.path)
                    if self.receivers is not None:
                        self.receivers.require(_host(action))
            except UserError as error:
                if error.span is None and places:
                    error.span = places[index]
                raise

    def changed(self, catalog: Catalog, statement: SetActions) -> tuple[Sequence[Mapping[str, Any]], Outcome]:
        """Entries of the log that set a query's actions, none where it has them already, and the outcome.

        Raises `UserError` as `require`.
        """
        existing = catalog.require_query(statement.name)
        before = existing.definition
        after = self.identified(replace(before, actions=statement.actions), before)
        query = bound(catalog, existing)
        self.require(catalog, after, query, operator_of(catalog, existing), statement.places)
        settings = settings_to_json({"actions": after.actions})
        entry = {"do": "set", "name": before.name, "settings": settings}
        count = len(after.actions)
        message = f"query {before.name} has {count or 'no'} action{'s' * (count != 1)}"
        return [entry] * (before.actions != after.actions), Outcome("alter", before.name, message)


def _settled(action: ActionDefinition) -> ActionDefinition:
    """An action with the full path of its folder."""
    if action.kind != "folder":
        return action
    return replace(action, target=str(Path.cwd() / Path(action.target).expanduser()))


def _host(action: ActionDefinition) -> str:
    url = action.target if action.kind == "call" else action.option("server", "")
    return urlsplit(url).hostname or ""


def _require_stream_fits(catalog: Catalog, name: str, query: Query, target: str) -> None:
    stream = require_stream(catalog, target)
    if stream.using != "push":
        raise UserError(
            f"the stream '{stream.name}' reads {stream.using}, so nothing can be written to it",
            remedy="CREATE STREAM … USING push.",
        )
    if query.emission == "relation" or query.revisions is not None or query.repair:
        raise UserError(
            f"the query '{name}' retracts rows, and a stream has insertions only",
            remedy="Select ISTREAM(…), or windows with SLIDE and without revisions or repair.",
        )
    as_rows(stream, query.schema.arrow().empty_table())
    written, sources = {stream.name.lower()}, set(_sources(catalog, query))
    writers = [
        (set(_sources(catalog, bound(catalog, other))), targets)
        for other in catalog.queries.values()
        if other.definition.name.lower() != name.lower() and (targets := _targets(other.definition.actions))
    ]
    while True:
        further = {target for read, targets in writers if read & written for target in targets} - written
        if not further:
            break
        written |= further
    if written & sources:
        raise UserError(
            f"the query '{name}' reads what it would write to '{stream.name}', so it would never end",
            remedy="Write to a stream that it does not read, also not through other queries.",
        )


def _require_own_files(catalog: Catalog, name: str, action: ActionDefinition) -> None:
    """Each file is of one query: another one would find it there, and take its own rows for delivered."""
    for other in catalog.queries.values():
        is_other = other.definition.name.lower() != name.lower()
        if is_other and _files(name, action) in (
            _files(other.definition.name, theirs) for theirs in other.definition.actions
        ):
            raise UserError(
                f"a query that was called '{name}' before writes its files to this folder under that name",
                remedy="Name another folder, or another query.",
            )


def _files(name: str, action: ActionDefinition) -> tuple[str, str, str, str]:
    """What the files of an action in a folder have in common."""
    return (action.kind, action.target, action.option("format", "csv"), (action.files or name).lower())


def renaming(definition: QueryDefinition, name: str) -> list[Mapping[str, Any]]:
    """Entries of the log that give a query another name. Its files in folders keep theirs, so that each epoch has one whatever is killed."""
    entry = {"do": "rename", "name": definition.name, "to": name}
    actions = tuple(
        replace(action, files=action.files or definition.name) if action.kind == "folder" else action
        for action in definition.actions
    )
    if all(action.kind != "folder" for action in actions):
        return [entry]
    return [{"do": "set", "name": definition.name, "settings": settings_to_json({"actions": actions})}, entry]


def _targets(actions: Sequence[ActionDefinition]) -> set[str]:
    return {action.target.lower() for action in actions if action.kind == "stream"}


def _sources(catalog: Catalog, query: Query) -> Iterator[str]:
    """The streams that a query reads, also through other queries, in lower case."""
    for node in every_node(query):
        if isinstance(node, StreamScan):
            yield node.name.lower()
        elif isinstance(node, QueryScan) and node.is_named:
            yield from _sources(catalog, bound(catalog, catalog.require_query(node.name)))


def refuse_if_written(catalog: Catalog, stream: str) -> None:
    """Raises `UserError` while actions write to a stream."""
    writers = [
        query.definition.name
        for query in catalog.queries.values()
        if stream.lower() in _targets(query.definition.actions)
    ]
    if writers:
        raise UserError(
            f"the stream '{stream}' is written by {', '.join(writers)}",
            remedy=f"ALTER QUERY {writers[0]} THEN NOTHING, or drop the query.",
        )
