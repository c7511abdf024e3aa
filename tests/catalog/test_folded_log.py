"""Folds of the query log: as JSON they lose nothing, and when one is worth writing."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headrace.algebra.windows.user_code import Code
from headrace.catalog.catalog import LAYOUT, registration
from headrace.catalog.definition_json import settings_to_json, to_json
from headrace.catalog.definitions import (
    FunctionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
from headrace.catalog.folded_log import BORN, FoldedLog
from headrace.schema import BIGINT, STRING, Field, Schema

COLUMNS = Schema((Field("a", BIGINT), Field("b", STRING)))
STREAM = to_json(StreamDefinition("S", COLUMNS, "push", blocks=16))
RELATION = to_json(RelationDefinition("R", COLUMNS, "csv", {"path": "p"}))
WRITTEN_BEFORE = {"do": "put_query", "query": {"name": "Old", "text": "t", "from_now": True}}
ENTRIES: list[dict[str, Any]] = [
    {"do": "create_stream", "stream": STREAM, BORN: 7},
    {"do": "create_stream", "stream": STREAM | {"name": "gone"}, BORN: 8},
    {"do": "drop", "kind": "stream", "name": "gone"},
    {"do": "keep", "name": "s", "keep": 0.25},
    {"do": "put_reducer", "stream": "s", "reducer": {"name": "f", "reduction": {"ages": [[5, 0.5]]}}},
    {"do": "put_relation", "relation": RELATION, "file": "relations/r/0.arrow"},
    {"do": "put_relation", "relation": RELATION, "file": "relations/r/1.arrow"},
    {"do": "put_function", "function": to_json(FunctionDefinition("F", (BIGINT,), STRING, Code(b"\0a")))},
    {"do": "put_window", "window": to_json(WindowDefinition("W", Code(b"x"), "print"))},
    WRITTEN_BEFORE,
    registration(QueryDefinition("B", "SELECT 1")),
    registration(QueryDefinition("A", "SELECT 2", tags=("x", "y"))),
    {"do": "rename", "name": "b", "to": "C"},
    {"do": "pause", "name": "a", "reason": "division by zero"},
    {"do": "set", "name": "C", "settings": settings_to_json({"owner": "ana", "retain": 5})},
    {"do": "drop", "kind": "query", "name": "b"},
]


@dataclass
class Appended:
    records: list[dict[str, Any]]
    append: str | None


def appends(*entries: dict[str, Any]) -> list[Appended]:
    return [Appended([entry], f"id {number}") for number, entry in enumerate(entries)]


def read_again(fold: FoldedLog) -> FoldedLog:
    return FoldedLog.from_json(json.loads(json.dumps(fold.as_json())))


@pytest.mark.parametrize("cut", range(len(ENTRIES) + 1))
def test_a_fold_is_read_as_it_was_written_and_continues_alike(cut: int) -> None:
    made = appends(*ENTRIES)
    fold = FoldedLog().then(made[:cut])
    read = read_again(fold)
    assert replace(fold.catalog, ignored_entries=()) == read.catalog
    assert list(read.catalog.queries.items()) == list(fold.catalog.queries.items())
    ends = [each.then([*made[cut:], made[0], Appended([ENTRIES[0]], None)]) for each in (fold, read)]
    assert read_again(ends[0]).catalog == replace(ends[1].catalog, ignored_entries=())
    assert list(ends[0].appends) == list(ends[1].appends) == [f"id {n}" for n in range(len(ENTRIES))]
    assert ends[0].births["s"] == ends[1].births["s"] == (7, 1)


def test_the_end_has_what_each_entry_set() -> None:
    catalog = read_again(FoldedLog().then(appends(*ENTRIES))).catalog
    assert catalog.position == len(ENTRIES)
    assert catalog.sample_rate_of("S") == 0.25
    assert [reducer.name for reducer in catalog.require_stream("s").reducers] == ["f"]
    assert (catalog.require_relation("r").file, catalog.require_relation("r").version) == (
        "relations/r/1.arrow",
        1,
    )
    assert catalog.functions["f"].body == b"\0a"
    assert catalog.require_query("a").definition.failure == "division by zero"
    assert catalog.require_query("c").generation == 10
    assert [query.layout for query in catalog.queries.values()] == [0, LAYOUT, LAYOUT]


def test_births_of_dropped_streams_are_not_written() -> None:
    fold = FoldedLog().then(appends(*ENTRIES))
    assert fold.births.keys() == {"s", "gone"}
    assert read_again(fold).births == {"s": (7, 1)}


def test_what_is_written_follows_what_was_appended() -> None:
    few = FoldedLog().then(appends(*ENTRIES))
    assert not few.is_worth_writing(1023)
    assert few.is_worth_writing(1024)
    queries = [registration(QueryDefinition(f"q{n}", "t")) for n in range(1000)]
    many = FoldedLog().then([Appended(queries, "all")])
    assert not many.is_worth_writing(1999)
    assert many.is_worth_writing(2000)
