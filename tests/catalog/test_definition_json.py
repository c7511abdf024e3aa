"""Definitions in the query log: every field survives, and a log without the later fields stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.algebra.windows.user_code import Code
from headrace.catalog.definition_json import from_json, to_json
from headrace.catalog.definitions import (
    Deduplication,
    FunctionDefinition,
    Progressing,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    TimeExpression,
    WindowDefinition,
)
from headrace.schema import BIGINT, STRING, Field, Schema, array, decimal, struct

COLUMNS = Schema(
    (Field("a", BIGINT), Field("d", decimal(10, 2)), Field("x", array(struct(Field("q", STRING)))))
)
PROGRESS = Progressing(3, True, ("a",), False, 2, 5, (1, 2), "g", ("a", "b"), True, "c")


@pytest.mark.parametrize(
    "definition",
    [
        StreamDefinition("s", COLUMNS, "csv"),
        StreamDefinition(
            *("s", COLUMNS, "csv", {"path": "p"}, "a", 5, "x", 7, 9, "none", 3, PROGRESS),
            *(Deduplication(("a",), 4), 8, 0.25, TimeExpression("t", "Europe/Berlin")),
        ),
        RelationDefinition("r", COLUMNS, "csv", {"a": "b"}),
        QueryDefinition("q", "SELECT 1"),
        QueryDefinition("q", "t", True, True, 5, "ana", ("a", "b"), True, "partial", "PST", False, 7),
        FunctionDefinition("f", (BIGINT, decimal(3, 1)), STRING, Code(b"\0abc"), False, False, "print"),
        WindowDefinition("w", Code(b"x"), "print"),
    ],
    ids=lambda definition: f"{type(definition).__name__} {definition.name}",
)
def test_a_definition_is_read_as_it_was_written(definition: Any) -> None:
    assert from_json(type(definition), json.loads(json.dumps(to_json(definition)))) == definition


def test_fields_that_came_later_are_written_only_where_they_have_a_value() -> None:
    assert set(to_json(QueryDefinition("q", "t"))) == {
        *("name", "text", "from_now", "paused", "retain", "continues")
    }
    assert not {"keep", "time_expression"} & set(to_json(StreamDefinition("s", COLUMNS, "csv")))
    assert "fingerprint" not in to_json(FunctionDefinition("f", (), STRING, Code(b"")))


def test_the_reason_of_a_failure_is_of_another_entry() -> None:
    written = to_json(QueryDefinition("q", "t", failure="division by zero"))
    assert from_json(QueryDefinition, written).failure is None


def test_types_have_the_form_of_earlier_logs() -> None:
    assert json.loads(json.dumps(to_json(RelationDefinition("r", COLUMNS, "csv"))["schema"])) == [
        ["a", "BIGINT"],
        ["d", ["DECIMAL", 10, 2]],
        ["x", ["ARRAY", ["STRUCT", ["q", "STRING"]]]],
    ]
