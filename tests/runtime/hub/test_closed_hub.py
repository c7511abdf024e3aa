"""A hub that is closed writes nothing: another program may have the home by then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub

WRITES: dict[str, Callable[[Hub], object]] = {
    "push": lambda hub: hub.push("s", [{"a": 2}]),
    "catch_up": lambda hub: hub.catch_up(),
    "run_once": lambda hub: hub.run_once(),
    "finish": lambda hub: hub.finish(),
    "start": lambda hub: hub.start(),
    "execute": lambda hub: hub.execute("DROP QUERY q"),
    "register": lambda hub: hub.register("SELECT a FROM s", "r"),
    "register_many": lambda hub: hub.register_many({"r": "SELECT a FROM s"}),
    "drop": lambda hub: hub.query("q").drop(),
    "drop_query": lambda hub: hub.drop_query("q"),
    "punctuate": lambda hub: hub.punctuate("s", 5),
    "sink": lambda hub: hub.sink("q", lambda epoch, table: None),
    "function": lambda hub: hub.register_function("f", abs, ["INT"], "INT"),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_closed_hub_refuses_what_would_write(tmp_path: Path, name: str) -> None:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (a INT) USING push; CREATE QUERY q AS SELECT a FROM s")
        hub.push("s", [{"a": 1}])
        hub.catch_up()
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "home").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="is closed") as refused:
        WRITES[name](hub)
    assert "Open it again" in str(refused.value)
    assert files == {
        path: path.stat().st_mtime_ns for path in (tmp_path / "home").rglob("*") if path.is_file()
    }
    assert hub.query("q").history().column("a").to_pylist() == [1]
    hub.close()
