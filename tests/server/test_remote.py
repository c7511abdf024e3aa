"""A hub of another process: `hr.connect` over the socket in its home, and over HTTP."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import NameTaken, UnknownName, UserError
from headrace.remote.owner_methods import OwnerMethods, OwnerQueryMethods
from headrace.remote.remote_hub import RemoteHub
from headrace.remote.remote_query import RemoteQuery
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.query_handle import QueryHandle
from tests.runtime.delivery.actions.receiving import until
from tests.server.serving import STREAM, TOTAL, TUMBLE, served


def at(second: int) -> datetime:
    return datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC)


def rows(*seconds: int) -> pa.Table:
    return pa.table({"k": ["a"] * len(seconds), "v": list(seconds), "at": [at(second) for second in seconds]})


@pytest.fixture(params=["socket", "http"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RemoteHub]:
    with served(tmp_path / "home") as running:
        place = running.home if request.param == "socket" else running.url
        with hr.connect(place) as remote:
            remote.execute(STREAM + TUMBLE + TOTAL)
            yield remote


def test_a_push_that_fits_no_column_is_an_error_with_its_place(hub: RemoteHub) -> None:
    wrong = [{"k": "a", "v": 1, "at": at(1)}, {"k": 5, "v": 2, "at": at(2)}]
    with pytest.raises(UserError, match=r"row 1 of 's': column k has 5 \(int\), and the rows before it"):
        hub.push("s", wrong)


@pytest.mark.parametrize("choice", ["none", "partial"])
def test_what_is_stored_between_two_invokes_is_chosen(
    hub: RemoteHub, choice: Literal["none", "partial"]
) -> None:
    """`materialize` of one query and of many, as in OPTIONS."""
    text = "SELECT k, v FROM s BEGIN NOW - INTERVAL 5 SECONDS END NOW"
    hub.push("s", rows(1, 4, 8))
    one = hub.register(text, "one", materialize=choice)
    for query in (one, *hub.register_many({"two": text, "three": text}, materialize=choice)):
        assert f"materialize {choice} (as the query specifies)" in query.explain()


def test_another_process_registers_pushes_follows_and_reads(hub: RemoteHub) -> None:
    query, followed, first = hub.query("q"), [], threading.Event()

    def follow() -> None:
        for table in query.follow(cursor=0):
            followed.append(table)
            first.set()

    threading.Thread(target=follow, daemon=True).start()
    assert hub.push("s", rows(1, 2, 12)) == 3
    assert first.wait(30)
    assert followed[0].to_pylist() == [{"k": "a", "n": 2}]
    assert query.invoke().to_pylist() == [{"k": "a", "n": 2}]
    assert query.history().to_pylist() == [{"k": "a", "n": 2}]
    assert (query.as_of(at(10)).num_rows, query.as_of(at(9)).num_rows) == (1, 0)
    assert query.history(since=at(30)).num_rows == 0
    late = hub.register("SELECT MAX(v) AS top FROM s", "late", owner="me", tags=["x"])
    while late.invoke().to_pylist() != [{"top": 12}]:
        pass
    assert [
        outcome.table.num_rows for outcome in hub.execute("SHOW QUERIES") if outcome.table is not None
    ] == [3]
    assert "q" in hub.explain("q")
    assert hub.status()["running"] is True
    late.drop()
    with pytest.raises(UnknownName, match="there is no query 'late'"):
        hub.query("late")


def test_errors_are_those_of_the_hub(hub: RemoteHub) -> None:
    with pytest.raises(NameTaken, match="exists and differs"):
        hub.register("SELECT 1 AS one FROM s", "q")
    with pytest.raises(UserError, match=r"line 2, column 9: .*nothing"):
        hub.execute("CREATE QUERY x AS\n SELECT nothing FROM s")
    with pytest.raises(UserError, match="column"):
        hub.push("s", pa.table({"z": [1]}))
    with pytest.raises(UserError, match="runs its epochs by itself"):
        hub.run_once()


def test_a_home_that_nobody_runs_says_how_to_start_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)no hub runs on the home .*headrace serve --home"):
        hr.connect(tmp_path)


def test_a_hub_of_a_program_listens_too_and_only_to_its_user(tmp_path: Path) -> None:
    home = tmp_path / ("deep" * 40) / "home"  # longer than a socket's address may be
    with hr.open(home, local=True) as own:
        own.execute(STREAM + TOTAL)
        assert (home / "hub.sock").stat().st_mode & 0o777 == 0o600
        with hr.connect(home) as remote, own.running():
            remote.push("s", rows(1))
            while own.query("total").invoke().to_pylist() != [{"n": 1}]:
                pass
    assert not (home / "hub.sock").exists()


def test_the_socket_of_a_killed_process_is_in_nobodys_way(tmp_path: Path) -> None:
    with served(tmp_path / "home") as running:
        running.process.kill()
        running.process.wait()
    assert (tmp_path / "home" / "hub.sock").exists()
    with pytest.raises(UserError, match="no hub runs"):
        hr.connect(tmp_path / "home")
    with hr.open(tmp_path / "home", local=True), hr.connect(tmp_path / "home") as remote:
        assert remote.status()["epoch"] >= 0


class Cell:
    """The output of a notebook's cell."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, markup: str, *, display_id: bool) -> Cell:
        assert display_id
        self.shown.append(markup)
        return self

    def update(self, markup: str) -> None:
        self.shown.append(markup)


def test_a_notebook_shows_the_answer_and_renews_it_with_each_epoch(
    hub: RemoteHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.execute("CREATE QUERY marked AS SELECT k, COUNT(*) AS `<n>` FROM s GROUP BY k")
    hub.push("s", pa.table({"k": ["<b>&"], "v": [1], "at": [at(1)]}))
    query = hub.query("marked")
    while "1 row)" not in query._repr_html_():
        pass
    assert query._repr_html_() == (
        "<table><caption>marked (1 row)</caption><thead><tr><th>k</th><th>&lt;n&gt;</th></tr></thead>"
        "<tbody><tr><td>&lt;b&gt;&amp;</td><td>1</td></tr></tbody></table>"
    )
    cell = Cell()
    shell = ModuleType("IPython.display")
    shell.HTML, shell.display = str, cell.display  # type: ignore[attr-defined]
    for name in ("IPython", "IPython.display"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match="need a notebook"):
        query.live()
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", shell)
    monkeypatch.setattr(query, "follow", lambda: interrupted(hub, cell))
    query.live()
    assert len(cell.shown) == 2
    assert "<td>2</td>" in cell.shown[-1]


def interrupted(hub: RemoteHub, cell: Cell) -> Iterator[pa.Table]:
    """A row, then Ctrl-C."""
    assert len(cell.shown) == 1
    hub.push("s", pa.table({"k": ["<b>&"], "v": [2], "at": [at(2)]}))
    while "<td>2</td>" not in hub.query("marked")._repr_html_():
        pass
    yield rows(2)
    raise KeyboardInterrupt


@pytest.mark.spark
def test_results_of_a_hub_of_another_process_are_a_dataframe(tmp_path: Path, spark: Any) -> None:
    with served(tmp_path / "home") as running, hr.connect(running.url) as hub:
        hub.execute(STREAM + TUMBLE)
        hub.push("s", rows(1, 2, 12))
        query = hub.query("q")
        while not query.history().num_rows:
            pass
        frame = query.dataframe(spark)
        assert [tuple(row) for row in frame.filter("n > 1").collect()] == [("a", 2)]


INTERNAL = {
    *("log", "carry_out", "execute_each", "execute_or_refuse", "follow_epochs", "give_up_start", "on_close"),
    *("operator_and_query", "require_open", "session", "source_warnings", "catalog", "plan", "schema"),
}
"""What a hub has for the package's own modules, and what are values of its process."""


def methods_of(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - INTERNAL


def test_a_client_has_every_method_and_refuses_those_of_the_owner(hub: RemoteHub) -> None:
    query = hub.query("q")
    assert methods_of(Hub) - methods_of(RemoteHub) == set()
    assert methods_of(QueryHandle) - methods_of(RemoteQuery) == set()
    refused = {
        **dict.fromkeys(methods_of(OwnerMethods), hub),
        **dict.fromkeys(methods_of(OwnerQueryMethods), query),
    }
    assert {"archive", "create_stream", "register_function", "sink", "finish", "client"} <= set(refused)
    for name, owner in refused.items():
        with pytest.raises(UserError, match=f"has no '{name}'") as problem:
            getattr(owner, name)("s", object(), format="csv")
        assert problem.value.remedy


def test_a_client_declares_punctuation(hub: RemoteHub) -> None:
    hub.push("s", rows(1, 2))
    hub.punctuate("s", at(10))
    query = hub.query("q")
    until(lambda: query.history().to_pylist() == [{"k": "a", "n": 2}])
    hub.push("s", rows(11))
    hub.punctuate("s", 1_704_067_220_000_000)
    until(lambda: query.history().num_rows == 2)
    counts = query.timeline(2)
    assert counts is not None
    assert (counts.last - counts.first, sum(counts.rows)) == (10_000_000, 2)
    assert hub.query("total").timeline() is not None
    assert query.history_schema == query.history().schema

    hub.execute(
        "CREATE STREAM `p/1` (k STRING, at TIMESTAMP) USING push TIMESTAMP BY at PUNCTUATED BY PATTERNS OF (k)"
    )
    hub.punctuate("p/1", where="k = 'a' AND at < TIMESTAMP '2024-01-01 09:00:00'", zone="Asia/Tokyo")
    with pytest.raises(UserError, match="has no zone"):
        hub.punctuate("s", datetime(2024, 1, 1))  # noqa: DTZ001 - without one
    for where in ("k = 'a'; DROP QUERY q", "k ="):
        with pytest.raises(UserError, match="expected"):
            hub.punctuate("p/1", where=where)
    with pytest.raises(UserError, match="takes no patterns"):
        hub.punctuate("s", where="k = 'a'")
    with pytest.raises(UserError, match="expected AT"):
        hub.punctuate("s")
    assert hub.query("q").name == "q"
