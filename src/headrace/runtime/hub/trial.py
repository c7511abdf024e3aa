"""`hr.test`: a query's answer over given rows. The real operators, without Spark, on a temporary home."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.catalog.definition_json import to_json
from headrace.catalog.definitions import RelationDefinition, StreamDefinition
from headrace.connectors.formats.rendering import python_rows
from headrace.connectors.records.given_rows import given_rows
from headrace.errors import QueryFailed, UserError
from headrace.runtime.delivery.output_files import emitted_rows
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.run_cache import save_relation
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.status import failed
from headrace.schema import Schema
from headrace.store.files.disk import UnsyncedDisk
from headrace.time import FOREVER

_QUERY: Final = "the tested query"


def test(query: str, /, **sources: Any) -> list[dict[str, Any]]:
    """The rows of a query when its streams hold these rows and end, in the order of `headrace run --once`.

    Each source is a list of dicts, an Arrow table or a pandas frame, named as in the query. One with a column of
    timestamps is a stream, its event time the first such column; one without is a relation. A class is a kind of window.

        assert hr.test("SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k", s=rows) == expected

    Raises `QueryFailed` if the query fails on more than single rows, and `UserError` as registering the query would, for
    two sources of one name but for case, and for rows whose columns have no one type.
    """
    if len({name.lower() for name in sources}) < len(sources):
        raise UserError(
            f"two of the sources {', '.join(sources)} have the same name",
            remedy="Names are compared without case.",
        )
    with (
        tempfile.TemporaryDirectory(prefix="headrace-test-") as folder,
        Hub(Path(folder), LocalExecutor(), tasks=1, disk=UnsyncedDisk()) as hub,
    ):
        kinds = {name: kind for name, kind in sources.items() if isinstance(kind, type)}
        for name, kind in kinds.items():
            hub.register_window(name, kind)
        tables = {name: _table(name, rows) for name, rows in sources.items() if name not in kinds}
        streams = _define(hub, tables)
        hub.register(query, _QUERY)
        for name, table in streams.items():
            if table.num_rows:
                hub.push(name, table)
        hub.catch_up()
        closing = hub.finish()
        for reason in failed(hub).values():
            raise QueryFailed(f"the query failed: {reason}")
        operator, meaning = hub.operator_and_query(_QUERY)
        rows = emitted_rows(hub.home, hub.home.latest(), operator, meaning, closing.get(_QUERY))
        return python_rows(rows)


def _define(hub: Hub, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Make streams and relations of the tables; the streams."""
    streams = {}
    for name, table in tables.items():
        schema = Schema.of_arrow(table.schema)
        time = next((field.name for field in schema if field.type.name.startswith("TIMESTAMP")), None)
        if time is not None:
            stream = StreamDefinition(name, schema, "push", time=time, max_ahead=FOREVER // 2)
            hub.log({"do": "create_stream", "stream": to_json(stream)})
            streams[name] = table
            continue
        relation = RelationDefinition(name, schema, "push")
        file = save_relation(hub.home.store, name, 0, table.cast(schema.arrow()))
        hub.log({"do": "put_relation", "relation": to_json(relation), "file": file})
    return streams


def _table(name: str, rows: Any) -> pa.Table:
    if isinstance(rows, list | tuple) and not rows:
        raise UserError(
            f"'{name}' has no rows, so its columns are unknown", remedy="Pass an empty Arrow table."
        )
    return given_rows(name, rows)
