"""The catalog: what exists, as the fold of the query log.

A query is named by the user and, for its state and results, by its *generation*: the ordinal of the log entry that gave
it its present text. ALTER makes a new generation, RENAME and PAUSE keep it; a generation is never used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

from headrace.catalog.definitions import (
    FunctionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
from headrace.catalog.journal import (
    function_from_json,
    query_from_json,
    relation_from_json,
    settings_from_json,
    stream_from_json,
    window_from_json,
)
from headrace.errors import CorruptStore, UserError, did_you_mean


@dataclass(frozen=True, slots=True)
class StandingQuery:
    """A registered query and the generation that names its state."""

    definition: QueryDefinition
    generation: int

    @property
    def operator_id(self) -> str:
        """The name of its operator's state and results."""
        return f"q{self.generation}"


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """A relation and the file of the version in force."""

    definition: RelationDefinition
    file: str
    version: int = 0


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything by name, compared without case; `position` is the number of log entries applied."""

    streams: Mapping[str, StreamDefinition] = field(default_factory=dict)
    relations: Mapping[str, StoredRelation] = field(default_factory=dict)
    queries: Mapping[str, StandingQuery] = field(default_factory=dict)
    functions: Mapping[str, FunctionDefinition] = field(default_factory=dict)
    windows: Mapping[str, WindowDefinition] = field(default_factory=dict)
    position: int = 0

    def stream(self, name: str) -> StreamDefinition | None:
        """The stream of that name, or None."""
        return self.streams.get(name.lower())

    def relation(self, name: str) -> StoredRelation | None:
        """The relation of that name, or None."""
        return self.relations.get(name.lower())

    def query(self, name: str) -> StandingQuery | None:
        """The query of that name, or None."""
        return self.queries.get(name.lower())

    def window(self, name: str) -> WindowDefinition | None:
        """The user's kind of window of that name, or None."""
        return self.windows.get(name.lower())

    def require_query(self, name: str) -> StandingQuery:
        """The query of that name.

        Raises `UserError` that names near ones.
        """
        found = self.query(name)
        if found is None:
            names = [query.definition.name for query in self.queries.values()]
            raise UserError(f"there is no query '{name}'", remedy=did_you_mean(name, names))
        return found

    def kind_of(self, name: str) -> str | None:
        """'stream', 'relation' or 'query': names are unique over all three."""
        if self.stream(name):
            return "stream"
        if self.relation(name):
            return "relation"
        return "query" if self.query(name) else None

    def apply_all(self, entries: Sequence[Mapping[str, Any]]) -> Catalog:
        """The catalog after log entries; a run of those about queries costs one copy of the names, however long it is."""
        after = self
        for about_queries, run in groupby(entries, is_about_queries):
            if about_queries:
                after = after._with_queries(list(run))
            else:
                for entry in run:
                    after = after.apply(entry)
        return after

    def _with_queries(self, entries: Sequence[Mapping[str, Any]]) -> Catalog:
        queries = dict(self.queries)
        for ordinal, entry in enumerate(entries, self.position):
            _change(queries, entry, ordinal)
        return replace(self, queries=queries, position=self.position + len(entries))

    def apply(self, entry: Mapping[str, Any]) -> Catalog:
        """The catalog after one log entry.

        Raises `CorruptStore` for an entry of no known kind.
        """
        ordinal, kind = self.position, entry["do"]
        if is_about_queries(entry):
            return self._with_queries([entry])
        after = replace(self, position=ordinal + 1)
        match kind:
            case "create_stream":
                stream = stream_from_json(entry["stream"])
                return replace(after, streams={**self.streams, stream.name.lower(): stream})
            case "put_relation":
                relation = relation_from_json(entry["relation"])
                known = self.relation(relation.name)
                stored = StoredRelation(relation, entry["file"], known.version + 1 if known else 0)
                return replace(after, relations={**self.relations, relation.name.lower(): stored})
            case "put_function":
                function = function_from_json(entry["function"])
                return replace(after, functions={**self.functions, function.name.lower(): function})
            case "put_window":
                window = window_from_json(entry["window"])
                return replace(after, windows={**self.windows, window.name.lower(): window})
            case "drop":
                return replace(after, **self._without(entry["kind"], entry["name"].lower()))
        raise CorruptStore(f"entry {ordinal} of the query log is of the unknown kind '{kind}'")

    def _without(self, kind: str, name: str) -> dict[str, Any]:
        room = {"stream": "streams", "relation": "relations"}[kind]
        return {room: {key: value for key, value in getattr(self, room).items() if key != name}}


def is_about_queries(entry: Mapping[str, Any]) -> bool:
    """Whether a log entry changes standing queries and nothing else."""
    return entry["do"] in _ABOUT_QUERIES or (entry["do"], entry.get("kind")) == ("drop", "query")


_ABOUT_QUERIES: Final = frozenset({"put_query", "pause", "resume", "rename", "retain", "set"})


def _change(queries: dict[str, StandingQuery], entry: Mapping[str, Any], ordinal: int) -> None:
    """Apply an entry about queries; a registration's ordinal is its generation."""
    if entry["do"] == "put_query":
        query = query_from_json(entry["query"])
        queries[query.name.lower()] = StandingQuery(query, ordinal)
        return
    known = entry["name"].lower()
    old = queries[known]
    match entry["do"]:
        case "drop":
            del queries[known]
            return
        case "rename":
            del queries[known]
            definition = replace(old.definition, name=entry["to"])
        case "retain":  # as older versions wrote it
            definition = replace(old.definition, retain=entry["retain"])
        case "set":
            definition = replace(old.definition, **settings_from_json(entry["settings"]))
        case _:
            definition = replace(old.definition, paused=entry["do"] == "pause")
    queries[definition.name.lower()] = replace(old, definition=definition)
