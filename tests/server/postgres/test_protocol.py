"""The protocol byte by byte: startup, statements, prepared statements, cancelling, and what no client should send."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.server.security.tokens import Tokens
from headrace.store.files.filesystem import LocalStore
from tests.examples import examples
from tests.server.postgres.wire import Raw, connected, error, prove, rows, startup, until, with_rows
from tests.server.serving import Served


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with with_rows(tmp_path_factory.mktemp("served") / "home") as running:
        yield running


def test_encryption_is_declined_and_the_startup_goes_on(hub: Served) -> None:
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        for request in (80877103, 80877104):
            connection.sendall(struct.pack("!ii", 8, request))
            assert connection.recv(1) == b"N"
        connection.sendall(startup(user="anyone"))
        assert Raw(connection).until_ready()[0] == (b"R", struct.pack("!i", 0))


def test_another_version_of_the_protocol_is_refused(hub: Served) -> None:
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        connection.sendall(struct.pack("!ii", 8, 2 << 16))
        kind, body = Raw(connection).receive()
        assert (kind, error([(kind, body)])["C"]) == (b"E", "0A000")
        assert connection.recv(1) == b""


def test_a_newer_minor_version_is_negotiated(hub: Served) -> None:
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        connection.sendall(struct.pack("!ii", 8 + 1, (3 << 16) + 2) + b"\0")
        assert Raw(connection).until_ready()[0] == (b"v", struct.pack("!ii", 0, 0))


def test_a_message_of_several_statements_answers_each_and_stops_at_an_error(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        found = raw.query("SELECT 1; SHOW server_version; SELECT nope FROM q; SELECT 2")
        assert [kind for kind, _ in found] == [b"T", b"D", b"C", b"T", b"D", b"C", b"E", b"Z"]
        assert rows(found)[0] == [b"1"]
        assert (error(found)["C"], error(found)["P"]) == ("42703", "39")
        assert raw.query("")[0][0] == b"I"
        assert raw.query(" ;; -- nothing")[0][0] == b"I"


def test_definitions_of_one_message_are_made_together_or_not_at_all(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        text = "CREATE STREAM t1 (v BIGINT) USING push; CREATE QUERY t2 AS SELECT nope FROM t1"
        found = raw.query(text)
        assert (error(found)["C"], error(found)["P"]) == ("42000", str(text.index("nope") + 1))
        assert rows(raw.query("SHOW STREAMS LIKE 't1'")) == []


def test_a_mistake_of_the_hub_has_its_sqlstate_place_and_remedy(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        found = error(raw.query("SELECT 1; INVOKE totl"))
        assert (found["S"], found["C"], found["H"]) == ("ERROR", "42P01", "Did you mean 'total'?")
        assert error(raw.query("CREATE STREAM s (v INT) USING push"))["C"] == "42P07"
        assert error(raw.query("SELECT * FROM nothing"))["C"] == "42P01"
        assert error(raw.query("SELECT nothing(1)"))["C"] == "42883"
        assert error(raw.query("SELEC 1"))["C"] == "42000"
        assert error(raw.query("SELECT 'a'::int"))["C"] == "22P02"


def test_the_reader_of_tables_opens_nothing_outside(hub: Served, tmp_path: Path) -> None:
    there = tmp_path / "secret.csv"
    there.write_text("a\n1\n")
    with connected(hub.postgres) as raw:
        for text in (
            f"SELECT * FROM read_csv('{there}')",
            f"SELECT * FROM '{there}'",
            f"SELECT * FROM glob('{tmp_path}/*')",
            f"SELECT * FROM read_text('{there}')",
        ):
            assert error(raw.query(text))["C"] in ("42501", "42P01"), text
        for text in (
            f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
            f"ATTACH '{tmp_path}/out.db'",
            "INSTALL httpfs",
        ):
            assert [kind for kind, _ in raw.query(text)] == [b"E", b"Z"], text
        assert error(raw.query("SELECT 1 FROM (SELECT 2; DROP VIEW x"))["S"] == "ERROR"
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_a_transaction_that_failed_refuses_statements_until_it_ends(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        assert raw.query("BEGIN")[-1] == (b"Z", b"T")
        assert raw.query("SELECT nope")[-1] == (b"Z", b"E")
        assert error(raw.query("SELECT 1"))["C"] == "25P02"
        assert raw.query("COMMIT")[-2:] == [(b"C", b"ROLLBACK\0"), (b"Z", b"I")]
        raw.query("BEGIN; CREATE STREAM stays (v BIGINT) USING push")
        notices = [body for kind, body in raw.query("ROLLBACK") if kind == b"N"]
        assert b"have taken effect" in notices[0]
        assert len(rows(raw.query("SHOW STREAMS LIKE 'stays'"))) == 1
        raw.query("DROP STREAM stays")


# -- prepared statements ---------------------------------------------------------------------------------------------


def prepare(raw: Raw, text: str, *types: int, name: str = "") -> None:
    oids = b"".join(struct.pack("!I", oid) for oid in types)
    raw.send(b"P", f"{name}\0{text}\0".encode() + struct.pack("!h", len(types)) + oids)


def test_the_number_of_a_parameter_is_limited(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        prepare(raw, "SELECT $2000000000")
        raw.send(b"S")
        assert error(raw.until_ready())["C"] == "54023"
        assert rows(raw.query("SELECT 1")) == [[b"1"]]


def bind(raw: Raw, *values: bytes | None, forms: tuple[int, ...] = (), formats: tuple[int, ...] = ()) -> None:
    given = b"".join(
        struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in values
    )
    raw.send(
        b"B",
        b"\0\0"
        + struct.pack(f"!h{len(forms)}h", len(forms), *forms)
        + struct.pack("!h", len(values))
        + given
        + struct.pack(f"!h{len(formats)}h", len(formats), *formats),
    )


def execute(raw: Raw, most: int = 0) -> None:
    raw.send(b"E", b"\0" + struct.pack("!i", most))


def test_parameters_are_text_or_binary_and_so_are_results(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        prepare(raw, "SELECT k, n, $1::bigint + n AS more, $2 AS text FROM q WHERE n < $3", 20, 25, 701)
        bind(raw, struct.pack("!q", 41), b"it's", struct.pack("!d", 1.5), forms=(1, 0, 1), formats=(1,))
        raw.send(b"D", b"P\0")
        execute(raw)
        raw.send(b"S")
        found = raw.until_ready()
        assert [kind for kind, _ in found] == [b"1", b"2", b"T", b"D", b"C", b"Z"]
        assert rows(found) == [[b"a", struct.pack("!q", 1), struct.pack("!q", 42), b"it's"]]


def test_a_parameter_cannot_end_its_constant(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        for hostile in ("'; DROP QUERY q; --", "\\'; SELECT 1", "$1", "a\nb", "''"):
            prepare(raw, "SELECT $1 AS x")
            bind(raw, hostile.encode())
            execute(raw)
            raw.send(b"S")
            assert rows(raw.until_ready()) == [[hostile.encode()]]
        prepare(raw, "DECLARE c CURSOR FOR FOLLOW q CLIENT $1")
        bind(raw, b"it's")
        execute(raw)
        raw.send(b"S")
        assert (b"C", b"DECLARE CURSOR\0") in raw.until_ready()


def test_a_parameter_of_a_statement_of_the_hub_cannot_end_its_constant_either(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        for hostile in (b"\\'; DROP QUERY q; --", b"\\", b"'; DROP QUERY q; --"):
            prepare(raw, "SHOW QUERIES LIKE $1")
            bind(raw, hostile)
            execute(raw)
            raw.send(b"S")
            found = raw.until_ready()
            assert [kind for kind, _ in found] == [b"1", b"2", b"C", b"Z"], found
        prepare(raw, "SHOW QUERIES LIKE $1")
        bind(raw, b"q")
        execute(raw)
        raw.send(b"S")
        assert rows(raw.until_ready())[0][0] == b"q"


def test_a_table_is_what_the_catalog_has_now(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        for columns in ("k", "v, k"):
            raw.query(f"CREATE QUERY changing AS SELECT {columns} FROM s")
            described = raw.query("SELECT * FROM changing")[0][1]
            assert struct.unpack_from("!h", described)[0] == len(columns.split(","))
            listed = raw.query("SELECT attname FROM pg_attribute WHERE attrelid = 'changing'::regclass")
            assert len(rows(listed)) == len(columns.split(","))
            raw.query("DROP QUERY changing")
            missing = error(raw.query("SELECT * FROM changing"))
            assert (missing["C"], missing["M"]) == ("42P01", "Table with name changing does not exist!")


def test_a_statement_reads_a_table_as_often_as_it_names_it(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        both = (
            "SELECT a.k, b.k, c.k FROM s a JOIN s b USING (v), answers.q c WHERE a.v = (SELECT min(v) FROM s)"
        )
        assert rows(raw.query(both)) == [[b"a", b"a", b"a"]]
        assert rows(raw.query('SELECT "K" FROM public."Q" LIMIT 1')) == [[b"a"]]
        assert rows(raw.query("SELECT NULL > 1, 5 / 2, v FROM s ORDER BY v DESC LIMIT 1")) == [
            [None, b"2", b"2"]
        ]


def test_a_statement_is_described_before_its_values_are_known(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        for text, types, columns in (
            ("SELECT k, n FROM q WHERE n > $1::bigint AND k <> $2", [20, 25], 2),
            ("INVOKE total", [], 1),
            ("SHOW QUERIES", [], 7),
            ("DROP QUERY nothing", [], None),
            ("", [], None),
        ):
            prepare(raw, text)
            raw.send(b"D", b"S\0")
            raw.send(b"S")
            found = raw.until_ready()
            assert found[1] == (b"t", struct.pack(f"!h{len(types)}I", len(types), *types))
            assert found[2][0] == (b"n" if columns is None else b"T")
            if columns is not None:
                assert struct.unpack_from("!h", found[2][1])[0] == columns


def test_a_portal_gives_its_rows_in_parts(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        prepare(raw, "SELECT * FROM generate_series(1, 25000) t(i)")
        bind(raw)
        for most in (10, 20_000, 0):
            execute(raw, most)
        raw.send(b"S")
        found = raw.until_ready()
        assert [int(cell) for (cell,) in rows(found)] == list(range(1, 25_001))
        assert [kind for kind, _ in found if kind in (b"s", b"C")] == [b"s", b"s", b"C"]
        assert found[-2] == (b"C", b"SELECT 25000\0")


def test_after_an_error_messages_are_skipped_until_sync(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        prepare(raw, "SELECT nope")
        bind(raw)
        execute(raw)
        execute(raw)
        raw.send(b"S")
        assert [kind for kind, _ in raw.until_ready()] == [b"1", b"2", b"E", b"Z"]
        bind(raw, b"too many")
        raw.send(b"S")
        assert error(raw.until_ready())["C"] == "08P01"
        raw.send(b"E", b"unknown\0\0\0\0\0")
        raw.send(b"S")
        assert error(raw.until_ready())["C"] == "34000"


# -- cancelling and limits -------------------------------------------------------------------------------------------

LONG = "SELECT sum(a.i * b.i) FROM generate_series(1, 1000000) a(i), generate_series(1, 1000000) b(i)"


def cancel(hub: Served, key: tuple[int, int]) -> None:
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        connection.sendall(struct.pack("!iiiI", 16, 80877102, *key))
        assert connection.recv(1) == b""


@pytest.mark.parametrize("text", [LONG, "DECLARE c CURSOR FOR FOLLOW q; SET follow_timeout = '1h'; FETCH c"])
def test_a_statement_is_cancelled_by_who_has_its_key_and_by_nobody_else(hub: Served, text: str) -> None:
    with connected(hub.postgres) as raw:
        raw.send(b"Q", text.encode() + b"\0")
        answered = threading.Event()
        found: list[tuple[bytes, bytes]] = []

        def wait() -> None:
            found.extend(raw.until_ready())
            answered.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        cancel(hub, (raw.key[0], raw.key[1] ^ 1))
        assert not answered.wait(0.3)
        while not answered.wait(0.05):
            cancel(hub, raw.key)
        waiting.join()
        assert error(found)["C"] == "57014"
        assert error(found)["M"] == "canceling statement due to user request"
        assert rows(raw.query("SELECT 1")) == [[b"1"]]


def test_a_statement_ends_after_its_time(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        raw.query("SET statement_timeout = '50ms'")
        found = error(raw.query(LONG))
        assert (found["C"], found["M"]) == ("57014", "canceling statement due to statement timeout")


def test_a_message_that_is_too_large_ends_its_connection_alone(hub: Served) -> None:
    with connected(hub.postgres) as other, connected(hub.postgres) as raw:
        raw.socket.sendall(b"Q" + struct.pack("!i", 2_000_000_000))
        kind, body = raw.receive()
        assert (kind, error([(kind, body)])["S"], error([(kind, body)])["C"]) == (b"E", "FATAL", "08P01")
        with pytest.raises(EOFError):
            raw.receive()
        assert rows(other.query("SELECT 1")) == [[b"1"]]


def test_the_hundred_and_first_connection_is_refused(hub: Served) -> None:
    open_ = [socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) for _ in range(130)]
    try:
        refused = []
        for connection in open_:
            connection.sendall(startup(user="anyone"))
            kind, body = Raw(connection).receive()
            if kind == b"E":
                refused.append(error([(kind, body)])["C"])
        assert set(refused) == {"53300"}
        assert 30 <= len(refused) < 130
    finally:
        for connection in open_:
            connection.close()
    until(lambda: _is_admitted(hub))


def _is_admitted(hub: Served) -> bool:
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        connection.sendall(startup(user="anyone"))
        return Raw(connection).receive()[0] == b"R"


@pytest.fixture(scope="module")
def steady(hub: Served) -> Iterator[Raw]:
    """A connection that others do not disturb."""
    with connected(hub.postgres) as raw:
        yield raw


# -- what no client should send --------------------------------------------------------------------------------------

KINDS = st.sampled_from([bytes([kind]) for kind in b"QPBDECSHFXdcfp"] + [b"\0", b"?", b"\xff"])
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"SELECT 1\0",
            b"INVOKE q\0",
            b"\0SELECT $1\0\0\0",
            b"\0\0\0\0\0\x01\xff\xff\xff\xff\0\0",
            b"\0\0\x00\x01\x00\x09\0\x01\0\0\0\x01x\0\0",
            b"P\0",
            b"S\0",
            b"\0\0\0\0\0",
            b"COPY tail FROM STDIN\0",
            b"\xff\xfe\0",
        ]
    ),
)


@examples(60, shares_fixtures=True)
@given(
    messages=st.lists(st.tuples(KINDS, BODIES), max_size=6),
    tail=st.binary(max_size=12),
    lies=st.integers(-2, 9),
)
def test_malformed_messages_end_at_most_their_own_connection(
    hub: Served, steady: Raw, messages: list[tuple[bytes, bytes]], tail: bytes, lies: int
) -> None:
    with connected(hub.postgres) as raw:
        sent = b""
        for index, (kind, body) in enumerate(messages):
            length = len(body) + 4 + (lies if index == len(messages) - 1 and lies != 9 else 0)
            sent += kind + struct.pack("!i", length) + body
        try:
            raw.socket.sendall(sent + tail)
            raw.socket.shutdown(socket.SHUT_WR)
            while True:
                kind, body = raw.receive()
                assert kind in b"RSKZTDCEN123nstIGHcvd", kind
                if kind == b"E":
                    assert "Traceback" not in body.decode()
                    assert error([(kind, body)])["C"] != "XX000", body
        except (EOFError, OSError):
            pass
    assert rows(steady.query("SELECT 1")) == [[b"1"]]
    with connected(hub.postgres):
        pass


@examples(60, shares_fixtures=True)
@given(first=st.binary(max_size=64))
def test_a_startup_of_any_bytes_ends_at_most_its_own_connection(
    hub: Served, steady: Raw, first: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        try:
            connection.sendall(first)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
        except OSError:
            pass
    assert rows(steady.query("SELECT 1")) == [[b"1"]]
    with connected(hub.postgres):
        pass


def test_a_connection_that_says_nothing_costs_nothing_to_the_others(hub: Served) -> None:
    with socket.create_connection(("127.0.0.1", hub.postgres)), connected(hub.postgres) as raw:
        assert rows(raw.query("SELECT 1")) == [[b"1"]]


# -- access ----------------------------------------------------------------------------------------------------------


def test_statements_of_tools_use_no_paths_outside_of_the_roots(tmp_path: Path) -> None:
    with with_rows(tmp_path / "home") as hub, connected(hub.postgres) as raw:
        answers = raw.query("CREATE STREAM f (k STRING) USING csv OPTIONS (path '/etc/passwd')")
        assert error(answers)["C"] == "42501"
        assert "may not use the path '/etc/passwd'" in error(answers)["M"]


def test_changes_and_refusals_of_tools_are_in_the_audit_log(tmp_path: Path) -> None:
    with with_rows(tmp_path / "home", auth=True) as hub:
        assert hub.token is not None
        with connected(hub.postgres, hub.token) as raw:
            raw.query("SELECT 1; SHOW QUERIES")
            raw.query("CREATE STREAM t (v BIGINT) USING push")
            raw.query("SHOW STREAMS; DROP STREAM t")
            raw.query("CREATE STREAM f (k STRING) USING csv OPTIONS (path '/etc/passwd')")
        with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
            raw = Raw(connection)
            connection.sendall(startup(user="anyone"))
            prove(raw, "wrong")
            raw.receive()
        ana = Tokens(LocalStore(tmp_path / "home")).make("ana", "read")
        with connected(hub.postgres, ana) as raw:
            raw.query("CREATE QUERY q AS SELECT 1 AS x FROM t")
    text = (tmp_path / "home" / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["method"], line["status"], line["owner"], line["role"]) for line in lines] == [
        ("SQL", "00000", None, "administer"),
        ("SQL", "00000", None, "administer"),
        ("SQL", "42501", None, "administer"),
        ("SQL", "28P01", None, None),
        ("SQL", "42501", "ana", "read"),
    ]
    assert lines[0]["statement"] == "CREATE STREAM t (v BIGINT) USING push"
    assert {line["address"] for line in lines} == {"127.0.0.1"}
    assert lines[0]["token"] == hashlib.sha256(hub.token.encode()).hexdigest()[:12]
    assert "/etc/passwd" in lines[2]["message"]
    assert hub.token not in text
    assert ana not in text
