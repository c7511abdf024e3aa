"""A stream that rows are pushed to one by one, under a clock moved by hand: the base of tests of punctuation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.results import result_log
from headrace.store.logs.committed import CommittedStream
from headrace.time import SECOND

T0 = 1_700_000_000 * SECOND
COUNT = "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k"
SLIDING = "SELECT k, COUNT(*) AS n, MAX(x) AS top FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS] GROUP BY k"
PushedRow = tuple[str | None, int, int, bool]
"""k, x, seconds after T0, whether the row punctuates."""


class Watch:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> int:
        return self.now


@contextmanager
def stream(
    folder: Path, clauses: str, queries: Sequence[str] = (COUNT,), clock: Watch | None = None, tasks: int = 2
) -> Iterator[Hub]:
    with Hub(folder / "home", LocalExecutor(), clock=clock or Watch(), tasks=tasks) as hub:
        hub.execute(
            "CREATE STREAM s (k STRING, x BIGINT, done BOOLEAN, at TIMESTAMP) USING push"
            f" TIMESTAMP BY at {clauses};"
        )
        for number, text in enumerate(queries):
            if hub.catalog.query(f"q{number}") is None:
                hub.register(text, f"q{number}")
        yield hub


def push(hub: Hub, *rows: PushedRow) -> None:
    """One segment, read at once."""
    table = pa.table(
        {
            "k": pa.array([row[0] for row in rows], pa.string()),
            "x": pa.array([row[1] for row in rows], pa.int64()),
            "done": pa.array([row[3] for row in rows], pa.bool_()),
            "at": pa.array([T0 + row[2] * SECOND for row in rows], pa.int64()).cast(
                pa.timestamp("us", "UTC")
            ),
        }
    )
    hub.push("s", table)
    hub.loop.drain()


def reached(hub: Hub) -> int:
    """The stream's punctuation, in seconds after T0."""
    return (known(hub).punctuation - T0) // SECOND


def known(hub: Hub) -> CommittedStream:
    return hub.home.latest().streams["s"]


def emitted(hub: Hub, name: str = "q0", closing: bool = False) -> list[tuple[Any, ...]]:
    """All rows a query has answered, with their instants in seconds after T0, in order of value."""
    operator, query = hub.operator_and_query(name)
    tables = [part.table for part in result_log.epochs_of(hub.home, hub.home.latest(), operator.id)]
    if closing:
        tables += [table for key, table in hub.finish().items() if key == name]
    names = ["__at", *query.schema.names]
    rows = [row for table in tables for row in table.select(names).to_pylist()]
    return sorted((((row.pop("__at") - T0) // SECOND, *row.values()) for row in rows), key=in_order)


def in_order(row: tuple[Any, ...]) -> tuple[int, str]:
    return row[0], repr(row)


def described(hub: Hub) -> dict[str, str | None]:
    table = hub.execute("DESCRIBE EXTENDED s;")[0].table
    assert table is not None
    return {row["property"]: row["value"] for row in table.to_pylist()}
