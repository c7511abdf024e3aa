"""The catalog: all definitions (streams, relations, queries, functions, windows) by name, computed by applying the
entries of the query log in order.

A query is named by the user and, for its state and results, by its *generation*: the ordinal of the log entry with
its present text. ALTER makes a new generation, RENAME and PAUSE keep it; a generation is never reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from typing import Any, Final, TypeVar

from headrace.catalog.definition_json import from_json, reducer_from_json, settings_from_json, to_json
from headrace.catalog.definitions import (
    FunctionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
from headrace.catalog.immutable_mapping import Edit, ImmutableMapping
from headrace.dataclass import dataclass
from headrace.errors import CorruptStore, UnknownName, did_you_mean

_Value = TypeVar("_Value")
OF_MANY_SIDES: Final = 1
OF_SIDES: Final = 2
OF_PRODUCTS: Final = 3
OF_SUMS: Final = 4
OF_NAMES: Final = 5
LAYOUT: Final = OF_NAMES
"""The layout in which this version's operators store state. Before `OF_MANY_SIDES`, joins had two sides each, with a key for
each equality; before `OF_SIDES`, all aggregates over joins were of pairs, before `OF_PRODUCTS` those of products of two sides, and
before `OF_SUMS` those of sums of two sides. Before `OF_NAMES`, some columns without alias had other names than in Spark.
"""
_OF_QUERIES: Final = frozenset({"put_query", "pause", "resume", "rename", "retain", "set"})


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """A registered query, the generation that names its state, and the layout of the version that registered it."""

    definition: QueryDefinition
    generation: int
    layout: int = LAYOUT

    @property
    def operator_id(self) -> str:
        """The name of its operator's state and results."""
        return f"q{self.generation}"

    @property
    def has_former_names(self) -> bool:
        """Whether its columns without alias keep the names of an earlier version, as its results and readers have them."""
        return self.layout < OF_NAMES


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """A relation and the file of its current version."""

    definition: RelationDefinition
    file: str
    version: int = 0


@dataclass(frozen=True, slots=True)
class Catalog:
    """All definitions by name, compared without case; `position` is the number of log entries applied."""

    streams: Mapping[str, StreamDefinition] = field(default_factory=dict)
    relations: Mapping[str, StoredRelation] = field(default_factory=dict)
    queries: ImmutableMapping[CatalogQuery] = field(default_factory=ImmutableMapping)
    functions: Mapping[str, FunctionDefinition] = field(default_factory=dict)
    windows: Mapping[str, WindowDefinition] = field(default_factory=dict)
    position: int = 0
    sample_rates: Mapping[str, float] = field(default_factory=dict)
    """The share of its rows that a stream keeps, by lower-case name, where it was changed after CREATE."""
    ignored_entries: tuple[int, ...] = ()
    """Ordinals of log entries without effect: their object was dropped, or they were appended before."""

    @property
    def definitions(self) -> int:
        """How many there are, of all kinds."""
        kinds = (self.streams, self.relations, self.queries, self.functions, self.windows)
        return sum(map(len, kinds))

    def stream(self, name: str) -> StreamDefinition | None:
        """The stream of that name, or None."""
        return self.streams.get(name.lower())

    def sample_rate_of(self, name: str) -> float:
        """The share of a stream's rows for queries WITH SHEDDING, above 0 and at most 1."""
        stream = self.stream(name)
        return self.sample_rates.get(name.lower(), 1.0 if stream is None else stream.keep)

    def relation(self, name: str) -> StoredRelation | None:
        """The relation of that name, or None."""
        return self.relations.get(name.lower())

    def query(self, name: str) -> CatalogQuery | None:
        """The query of that name, or None."""
        return self.queries.get(name.lower())

    def window(self, name: str) -> WindowDefinition | None:
        """The user's kind of window of that name, or None."""
        return self.windows.get(name.lower())

    def require_query(self, name: str) -> CatalogQuery:
        """The query of that name.

        Raises `UserError` with similar names.
        """
        names = (query.definition.name for query in self.queries.values())
        return _required("query", name, self.query(name), names)

    def require_stream(self, name: str) -> StreamDefinition:
        """The stream of that name, as `require_query`."""
        return _required("stream", name, self.stream(name), (stream.name for stream in self.streams.values()))

    def require_relation(self, name: str) -> StoredRelation:
        """The relation of that name, as `require_query`."""
        names = (relation.definition.name for relation in self.relations.values())
        return _required("relation", name, self.relation(name), names)

    def kind_of(self, name: str) -> str | None:
        """'stream', 'relation' or 'query': names are unique over all three."""
        if self.stream(name):
            return "stream"
        if self.relation(name):
            return "relation"
        return "query" if self.query(name) else None

    def apply_all(self, entries: Sequence[Mapping[str, Any]]) -> Catalog:
        """The catalog after log entries; a run of changes to queries costs its changes, however it is split."""
        after = self
        for of_queries, run in groupby(entries, is_of_query):
            if of_queries:
                after = after._with_queries(list(run))
            else:
                for entry in run:
                    after = after.apply(entry)
        return after

    def _with_queries(self, entries: Sequence[Mapping[str, Any]]) -> Catalog:
        queries = self.queries.edit()
        ignored = [
            ordinal
            for ordinal, entry in enumerate(entries, self.position)
            if not _change(queries, ordinal, entry)
        ]
        position = self.position + len(entries)
        return replace(
            self, queries=queries.done(), position=position, ignored_entries=(*self.ignored_entries, *ignored)
        )

    def without_effect(self, count: int) -> Catalog:
        """The catalog after `count` log entries that were appended before, and count once."""
        position = self.position + count
        return replace(
            self, position=position, ignored_entries=(*self.ignored_entries, *range(self.position, position))
        )

    def apply(self, entry: Mapping[str, Any]) -> Catalog:
        """The catalog after one log entry.

        Raises `CorruptStore` for an entry of no known kind.
        """
        ordinal, kind = self.position, entry["do"]
        if is_of_query(entry):
            return self._with_queries([entry])
        after = replace(self, position=ordinal + 1)
        match kind:
            case "create_stream":
                stream = from_json(StreamDefinition, entry["stream"])
                if (replaced := self.stream(stream.name)) is not None:
                    stream = replace(stream, reducers=replaced.reducers)
                streams = {**self.streams, stream.name.lower(): stream}
                return replace(
                    after, streams=streams, sample_rates=_without_key(self.sample_rates, stream.name)
                )
            case "keep":
                return replace(
                    after, sample_rates={**self.sample_rates, entry["name"].lower(): entry["keep"]}
                )
            case "put_reducer" | "drop_reducer":
                return self._with_reducer(after, entry)
            case "put_relation":
                relation = from_json(RelationDefinition, entry["relation"])
                previous = self.relation(relation.name)
                stored = StoredRelation(relation, entry["file"], previous.version + 1 if previous else 0)
                return replace(after, relations={**self.relations, relation.name.lower(): stored})
            case "put_function":
                function = from_json(FunctionDefinition, entry["function"])
                return replace(after, functions={**self.functions, function.name.lower(): function})
            case "put_window":
                window = from_json(WindowDefinition, entry["window"])
                return replace(after, windows={**self.windows, window.name.lower(): window})
            case "drop":
                if self.kind_of(entry["name"]) != entry["kind"]:
                    return replace(after, ignored_entries=(*self.ignored_entries, ordinal))
                return replace(after, **self._without(entry["kind"], entry["name"].lower()))
        raise CorruptStore(f"entry {ordinal} of the query log is of the unknown kind '{kind}'")

    def _with_reducer(self, after: Catalog, entry: Mapping[str, Any]) -> Catalog:
        """With a stream's new reducer, or without one that it had."""
        stream = self.stream(entry["stream"])
        if stream is None:
            return replace(after, ignored_entries=(*self.ignored_entries, self.position))
        new = [reducer_from_json(entry["reducer"])] if entry["do"] == "put_reducer" else []
        name = (new[0].name if new else entry["name"]).lower()
        others = [reducer for reducer in stream.reducers if reducer.name.lower() != name]
        stream = replace(stream, reducers=(*others, *new))
        return replace(after, streams={**self.streams, stream.name.lower(): stream})

    def _without(self, kind: str, name: str) -> dict[str, Any]:
        room = {"stream": "streams", "relation": "relations"}[kind]
        rates = self.sample_rates if kind == "relation" else _without_key(self.sample_rates, name)
        return {room: _without_key(getattr(self, room), name), "sample_rates": rates}


def _required(kind: str, name: str, value: _Value | None, names: Iterable[str]) -> _Value:
    if value is None:
        raise UnknownName(f"there is no {kind} '{name}'", remedy=did_you_mean(name, names))
    return value


def _without_key(values: Mapping[str, _Value], name: str) -> dict[str, _Value]:
    return {key: value for key, value in values.items() if key != name.lower()}


def registration(definition: QueryDefinition, former: CatalogQuery | None = None) -> dict[str, Any]:
    """The log entry that registers a query, or a new generation of it, with the names of columns of a `former` one."""
    keeps_names = former is not None and former.has_former_names
    layout = OF_NAMES - 1 if keeps_names else LAYOUT
    return {"do": "put_query", "query": to_json(definition), "layout": layout}


def is_of_query(entry: Mapping[str, Any]) -> bool:
    """Whether a log entry changes one query and nothing else."""
    return entry["do"] in _OF_QUERIES or (entry["do"] == "drop" and entry["kind"] == "query")


def _change(queries: Edit[CatalogQuery], ordinal: int, entry: Mapping[str, Any]) -> bool:
    """Apply one log entry of a query; False where the query was dropped.

    Such entries are in homes of older versions, which could append an entry twice.
    """
    kind = entry["do"]
    if kind == "put_query":
        query = from_json(QueryDefinition, entry["query"])
        queries.put(query.name.lower(), CatalogQuery(query, ordinal, entry.get("layout", 0)))
        return True
    name = entry["name"].lower()
    if name not in queries:
        return False
    if kind == "drop":
        queries.remove(name)
        return True
    old = queries[name]
    if kind == "rename":
        queries.remove(name)
        definition, name = replace(old.definition, name=entry["to"]), entry["to"].lower()
    elif kind == "set":
        definition = replace(old.definition, **settings_from_json(entry["settings"]))
    elif kind == "retain":  # as older versions wrote it
        definition = replace(old.definition, retain=entry["retain"])
    else:
        paused = kind == "pause"
        definition = replace(old.definition, paused=paused, failure=entry.get("reason") if paused else None)
    queries.put(name, replace(old, definition=definition))
    return True
