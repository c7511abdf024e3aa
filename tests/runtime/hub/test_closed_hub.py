"""A hub that is closed writes nothing: another program may have the home by then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError, UserError
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


def test_a_sink_that_fails_at_a_close_leaves_nothing_unwritten_and_nothing_open(tmp_path: Path) -> None:
    called: list[str] = []

    def refuse(epoch: int, table: pa.Table) -> None:
        raise ValueError("the receiver is down")

    hub = Hub(tmp_path / "home", LocalExecutor(), tasks=1)
    hub.on_close(lambda: called.append("closed"))
    hub.execute("CREATE STREAM s (a INT) USING push; CREATE QUERY q AS SELECT a FROM s")
    hub.execute("CREATE STREAM late (a INT) USING push OPTIONS (durability '1 HOUR')")
    hub.sink("q", refuse)
    hub.push("s", [{"a": 1}])
    hub.catch_up()
    hub.push("late", [{"a": 7}], producer="p", sequence=3)
    timer = hub._pushing.unlogged._timer
    assert timer is not None
    assert timer.is_alive()
    with pytest.raises(HeadraceError, match="the receiver is down"):
        hub.close()
    assert called == ["closed"]
    assert not timer.is_alive()
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as again:
        assert again.pushed("late", "p") == 3
        assert again.status()["amnesia"] == []


def test_a_close_raises_the_first_of_two_errors(tmp_path: Path) -> None:
    def fail(word: str) -> None:
        raise ValueError(word)

    hub = Hub(tmp_path / "home", LocalExecutor(), tasks=1)
    hub.on_close(lambda: fail("second"))
    hub.actions.close = lambda: fail("first")  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="first"):
        hub.close()
    Hub(tmp_path / "home", LocalExecutor(), tasks=1).close()
