"""The rate source: a function of its record alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.sources import rate_source
from headrace.connectors.sources.rate_source import SCHEMA, due
from headrace.errors import UserError
from headrace.time import SECOND
from tests.connectors.building import everything

RATE = StreamDefinition("r", SCHEMA, "rate", {"rowsPerSecond": "3"}, time="timestamp")


def test_rows_are_due_as_time_passes_and_evenly_spread() -> None:
    start = 10 * SECOND
    assert due(RATE, start, 0, start - 1) is None
    first = due(RATE, start, 0, start + SECOND)
    assert first is not None
    assert (first.start, first.end) == (0, 4)
    assert due(RATE, start, 4, start + SECOND) is None
    rows, _ = everything(RATE, [first])
    assert [(int(row["timestamp"].timestamp() * SECOND) - start, row["value"]) for row in rows] == [
        (0, 0), (333_333, 1), (666_666, 2), (SECOND, 3),
    ]  # fmt: skip


def test_any_cut_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_source, "BATCH", 100)
    whole = due(RATE, 0, 0, 1000 * SECOND)
    assert whole is not None
    parts = [replace(whole, end=7), replace(whole, start=7)]
    assert everything(RATE, parts) == everything(RATE, [whole])


def test_another_schema_is_refused() -> None:
    schema = replace(SCHEMA, fields=SCHEMA.fields[:1])
    stream = replace(RATE, schema=schema)
    record = due(stream, 0, 0, SECOND)
    assert record is not None
    with pytest.raises(
        UserError, match=r"a rate source has a TIMESTAMP and a BIGINT column\n  Write CREATE STREAM r \("
    ):
        everything(stream, [record])
