"""A whole catalog as JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.catalog.catalog import Catalog, CatalogQuery, StoredRelation
from headrace.catalog.definition_json import from_json, to_json
from headrace.catalog.definitions import (
    FunctionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
from headrace.catalog.immutable_mapping import ImmutableMapping


def catalog_to_json(catalog: Catalog) -> dict[str, Any]:
    """All definitions in the catalog's order, with what entries of the log have set."""
    return {
        "position": catalog.position,
        "streams": [to_json(stream) for stream in catalog.streams.values()],
        "relations": [_relation(relation) for relation in catalog.relations.values()],
        "queries": [_query(query) for query in catalog.queries.values()],
        "functions": [to_json(function) for function in catalog.functions.values()],
        "windows": [to_json(window) for window in catalog.windows.values()],
        "sample_rates": dict(catalog.sample_rates),
    }


def catalog_from_json(value: Mapping[str, Any]) -> Catalog:
    """The inverse; entries without effect are those of the log, not of what it amounts to."""
    streams = [from_json(StreamDefinition, stream) for stream in value["streams"]]
    relations = [_relation_of(relation) for relation in value["relations"]]
    queries = [_query_of(query) for query in value["queries"]]
    functions = [from_json(FunctionDefinition, function) for function in value["functions"]]
    windows = [from_json(WindowDefinition, window) for window in value["windows"]]
    return Catalog(
        streams={stream.name.lower(): stream for stream in streams},
        relations={relation.definition.name.lower(): relation for relation in relations},
        queries=ImmutableMapping({query.definition.name.lower(): query for query in queries}),
        functions={function.name.lower(): function for function in functions},
        windows={window.name.lower(): window for window in windows},
        position=value["position"],
        sample_rates=value["sample_rates"],
    )


def _relation(relation: StoredRelation) -> dict[str, Any]:
    return {
        "relation": to_json(relation.definition),
        "file": relation.file,
        "version": relation.version,
    }


def _relation_of(value: Mapping[str, Any]) -> StoredRelation:
    definition = from_json(RelationDefinition, value["relation"])
    return StoredRelation(definition, value["file"], value["version"])


def _query(query: CatalogQuery) -> dict[str, Any]:
    stored = {
        "query": to_json(query.definition),
        "generation": query.generation,
        "layout": query.layout,
    }
    failure = query.definition.failure
    return stored if failure is None else {**stored, "failure": failure}


def _query_of(value: Mapping[str, Any]) -> CatalogQuery:
    definition = from_json(QueryDefinition, value["query"])
    failed = replace(definition, failure=value.get("failure"))
    return CatalogQuery(failed, value["generation"], value["layout"])
