"""Columns without alias of a query that an earlier version registered keep their names; others have those of Spark."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.language.binder.expressions.column_names import output_name
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.hub.hub import Hub

FORMER = ["percentile(x, 0.5)", "first(x, true)", "substring(max(k), 1)", "locate(b, max(k), 1)", "n"]
CURRENT = [
    "percentile(x, 0.5, 1)",
    "first(x)",
    "substring(max(k), 1, 2147483647)",
    "position(b, max(k), 1)",
    "n",
]
TEXT = "SELECT percentile(x, 0.5), first(x, true), substring(max(k), 1), position('b', max(k)), COUNT(*) AS n FROM s [RANGE {0} SECONDS SLIDE {0} SECONDS]"


@contextmanager
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Queries are bound and registered as by the version before `OF_NAMES`."""
    with monkeypatch.context() as earlier:
        earlier.setattr("headrace.catalog.catalog.LAYOUT", 4)
        earlier.setattr(
            "headrace.language.binder.query_binder.output_name",
            lambda node, kind, former: output_name(node, kind, former=True),
        )
        earlier.setattr("headrace.runtime.plan.bound_queries._bound", Recent(100))
        yield


def _push(hub: Hub, first: int) -> None:
    seconds = range(first, first + 20)
    at = pa.array([1_000_000 * second for second in seconds], pa.timestamp("us", tz="UTC"))
    hub.push("s", pa.table({"k": ["ab"] * 20, "x": list(seconds), "at": at}))
    hub.catch_up()


def test_a_home_of_the_version_before_keeps_its_names_of_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = functools.partial(Hub, tmp_path / "home", LocalExecutor(), tasks=2)
    with _as_before(monkeypatch), opened() as hub:
        hub.execute("CREATE STREAM s (k STRING, x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register(TEXT.format(4), "q")
        hub.register("SELECT `percentile(x, 0.5)` AS p, `first(x, true)` AS f FROM q", "reader")
        hub.register(TEXT.format(4), "moved")
        hub.register(TEXT.format(4), "altered")
        _push(hub, 0)
        before = hub.query("q").history()
        assert before.schema.names == FORMER
    with opened() as hub:
        hub.execute("ALTER QUERY moved SET WINDOW [RANGE 5 SECONDS SLIDE 5 SECONDS]")
        hub.execute(f"ALTER QUERY altered AS {TEXT.format(5)}")
        hub.register(TEXT.format(4), "new")
        _push(hub, 20)
        after = hub.query("q").history()
        assert after.schema.names == list(hub.query("q").schema.names) == FORMER
        assert after.num_rows > before.num_rows
        assert after.slice(0, before.num_rows) == before
        assert hub.query("reader").history().to_pylist() == [
            {"p": row[FORMER[0]], "f": row[FORMER[1]]} for row in after.to_pylist()
        ]
        assert hub.query("moved").history().schema.names == FORMER
        assert hub.query("altered").history().schema.names == CURRENT
        assert hub.query("new").history().rename_columns(FORMER) == after
    with opened() as hub:
        assert {
            name: list(hub.query(name).schema.names) == FORMER for name in ("q", "moved", "altered", "new")
        } == {
            "q": True,
            "moved": True,
            "altered": False,
            "new": False,
        }
