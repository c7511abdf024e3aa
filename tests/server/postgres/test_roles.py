"""What a token of each role may do over PostgreSQL's protocol: its owner's queries are tables, and others are not there."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headrace.server.security.tokens import Tokens
from headrace.store.files.filesystem import LocalStore
from tests.server.postgres.wire import Raw, connected, error, rows, startup, until
from tests.server.serving import STREAM, Served, served

ROWS = '{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}\n'


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A hub with a stream, a query of each of two owners, and one without an owner."""
    home = tmp_path_factory.mktemp("roles") / "home"
    with served(home, "--postgres-port", "0", "--max-rows", "5", auth=True) as hub:
        queries = "".join(
            f"CREATE QUERY of_{name} OPTIONS (owner '{name}') AS SELECT k, v FROM s;"
            for name in ("ana", "ben")
        )
        script = f"{STREAM} {queries} CREATE QUERY of_nobody AS SELECT v FROM s"
        assert hub.curl("/v1/statements", "--data-binary", script, token=hub.token)[0] == 200
        push = ("--data-binary", ROWS, "-H", "Content-Type: application/x-ndjson")
        assert hub.curl("/v1/streams/s/rows", *push, token=hub.token)[0] == 200
        until(lambda: '"v":1' in hub.curl("/v1/queries/of_nobody/results", token=hub.token)[1])
        yield hub


@pytest.fixture(params=["read", "register"])
def ana(request: pytest.FixtureRequest, hub: Served) -> Iterator[Raw]:
    with connected(hub.postgres, made(hub, request.param)) as raw:
        yield raw


def made(hub: Served, role: str) -> str:
    return Tokens(LocalStore(hub.home)).make("ana", role)  # type: ignore[arg-type]


def test_tables_of_an_owner_are_its_queries_and_the_streams(ana: Raw) -> None:
    listed = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ('public', 'answers') ORDER BY 1, 2"
    assert rows(ana.query(listed)) == [[b"answers", b"of_ana"], [b"public", b"of_ana"], [b"public", b"s"]]
    assert rows(ana.query("SELECT v FROM of_ana")) == [[b"1"]]
    assert rows(ana.query("SELECT v FROM s")) == [[b"1"]]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM of_ben",
        "SELECT * FROM answers.of_ben",
        "SELECT * FROM of_nobody",
        "INVOKE of_ben",
        "DESCRIBE of_ben",
        "EXPLAIN QUERY of_ben",
        "DROP QUERY of_ben",
        "DECLARE c CURSOR FOR FOLLOW of_ben",
        "COPY (FOLLOW of_ben) TO STDOUT",
        "COPY of_ben TO STDOUT",
        "INSERT INTO s SELECT k, v, NULL FROM of_ben",
        "CREATE QUERY mine AS SELECT v FROM of_ben",
    ],
)
def test_a_query_of_another_owner_is_not_there(ana: Raw, text: str) -> None:
    answers = ana.query(text)
    assert error(answers)["C"] in ("42P01", "42501"), answers
    assert not rows(answers)


@pytest.mark.parametrize(
    "text",
    ["CREATE QUERY x AS SELECT v FROM s", "DROP QUERY of_ana", "INSERT INTO s VALUES ('x', 9, now())"],
)
def test_who_reads_changes_nothing(hub: Served, text: str) -> None:
    with connected(hub.postgres, made(hub, "read")) as raw:
        assert error(raw.query(text))["C"] == "42501"
        assert error(raw.query("COPY s FROM STDIN"))["C"] == "42501"
        assert rows(raw.query("SELECT v FROM of_ana")) == [[b"1"]]


def test_who_registers_makes_queries_of_its_own_and_pushes_within_its_quota(hub: Served) -> None:
    with connected(hub.postgres, made(hub, "register")) as raw:
        raw.query("CREATE QUERY more AS SELECT v FROM s")
        until(lambda: rows(raw.query("SELECT v FROM more")) == [[b"1"]])
        raw.query("DROP QUERY more")
        assert error(raw.query("CREATE STREAM t (v BIGINT) USING push"))["C"] == "42501"
        pushed = raw.query("INSERT INTO s SELECT 'x', NULL, now() FROM generate_series(1, 1000)")
        assert pushed[-2] == (b"C", b"INSERT 0 1000\0")  # owed for minutes
        refused = error(raw.query("INSERT INTO s VALUES ('y', NULL, now())"))
        assert (refused["C"], "may push 5 rows a second" in refused["M"]) == ("42501", True)


@pytest.mark.parametrize("text", ["COPY (FOLLOW of_ana) TO STDOUT", "FETCH 5 FROM c"])
def test_a_revoked_token_ends_what_waits(hub: Served, text: str) -> None:
    token = made(hub, "read")
    with connected(hub.postgres, token) as raw:
        raw.query("SET statement_timeout = 0; SET follow_timeout = '1h'")
        raw.query("DECLARE c CURSOR FOR FOLLOW of_ana")
        raw.send(b"Q", text.encode() + b"\0")
        Tokens(LocalStore(hub.home)).revoke(hashlib.sha256(token.encode()).hexdigest()[:12])
        found = raw.receive()
        while found[0] in b"HTd":
            found = raw.receive()
        assert (found[0], error([found])["C"]) == (b"E", "28P01")
        assert raw.socket.recv(1) == b""


def test_who_has_not_said_who_it_is_holds_no_place(hub: Served) -> None:
    with ExitStack() as open_:
        silent = [
            open_.enter_context(socket.create_connection(("127.0.0.1", hub.postgres), timeout=30))
            for _ in range(200)
        ]
        for connection in silent[::2]:  # asked for a password, and quiet since then
            connection.sendall(startup(user="anyone"))
        assert hub.token is not None
        with connected(hub.postgres, hub.token) as raw:
            assert rows(raw.query("SELECT 1")) == [[b"1"]]
        for connection in silent:
            found = Raw(connection).receive()
            if found[0] == b"R":
                found = Raw(connection).receive()
            assert (found[0], error([found])["C"]) == (b"E", "57P05")
            assert connection.recv(1) == b""
