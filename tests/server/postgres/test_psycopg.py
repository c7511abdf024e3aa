"""Python programs over psycopg, and libraries on top of it: SQLAlchemy and pandas."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.server.postgres.wire import until, with_rows
from tests.server.serving import Served

psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the dev dependencies")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with with_rows(tmp_path_factory.mktemp("served") / "home") as running:
        yield running


def connect(hub: Served, **options: Any) -> Any:
    return psycopg.connect(f"postgresql://anyone@127.0.0.1:{hub.postgres}/headrace", **options)


@pytest.mark.parametrize("binary", [False, True])
def test_values_arrive_in_their_types(hub: Served, binary: bool) -> None:
    with connect(hub) as connection:
        found = connection.cursor(binary=binary).execute(
            "SELECT k, v, at, v / 2.0, v::double, true, NULL, DATE '2024-02-29', 12345.678::DECIMAL(12,3), "
            "INTERVAL '1 day 2 seconds', [1, NULL], TIME '10:11:12', '\\xAB'::BLOB, {'a': 1} FROM s WHERE v = %s",
            [2],
        )
        row = found.fetchone()
        assert row[:3] == ("b", 2, datetime(2024, 1, 1, 0, 0, 12, 500_000, tzinfo=UTC))
        assert [str(value) for value in row[3:]] == [
            *("1.0", "2.0", "True", "None", "2024-02-29", "12345.678", "1 day, 0:00:02", "[1, None]"),
            *("10:11:12", "b'\\xab'", "{'a': 1}"),
        ]


@pytest.mark.parametrize(
    "value",
    [
        7,
        -7,
        2**40,
        1.5,
        float("inf"),
        "it's",
        "a\\b",
        None,
        True,
        datetime(2024, 1, 1, tzinfo=UTC),
        b"\x00\xff",
        timedelta(days=-2, seconds=3, microseconds=4),
        time(1, 2, 3, 4),
    ],
)
def test_parameters_come_back_as_they_were_sent(hub: Served, value: object) -> None:
    with connect(hub) as connection:
        for placeholder in ("%s", "%t", "%b"):
            try:
                (back,) = connection.execute(f"SELECT {placeholder}", [value], binary=True).fetchone()
            except psycopg.ProgrammingError:
                assert placeholder == "%b"
                continue
            assert back == value, placeholder


def test_a_parameter_is_compared_in_the_type_of_its_column(hub: Served) -> None:
    with connect(hub) as connection:
        for parameter in (2, "2", 2.0):
            assert connection.execute("SELECT k FROM s WHERE v = %s", [parameter]).fetchall() == [("b",)]
        assert connection.execute("SELECT k FROM s WHERE k = ANY(%s)", [["b", "c"]]).fetchall() == [("b",)]
        late = connection.execute(
            "SELECT k FROM s WHERE at > %s", [datetime(2024, 1, 1, 0, 0, 2, tzinfo=UTC)]
        )
        assert late.fetchall() == [("b",)]


def test_a_repeated_statement_is_prepared_once(hub: Served) -> None:
    with connect(hub, autocommit=True, prepare_threshold=0) as connection:
        for n in range(5):
            assert connection.execute("SELECT %s + 1", [n]).fetchall() == [(n + 1,)]
        for _ in range(2):
            assert connection.execute("INVOKE total").fetchall() == [(2,)]


@pytest.mark.parametrize("user", ["anyone", "O'Brien {x}"])
def test_the_current_user_is_the_one_that_connected(hub: Served, user: str) -> None:
    with connect(hub, user=user) as connection:
        found = connection.execute("SELECT current_user, session_user, user, current_role, CURRENT_USER")
        assert found.fetchone() == (user,) * 5
        assert connection.execute("SHOW session_authorization").fetchone() == (user,)
        assert connection.execute("SELECT user FROM (SELECT 1 AS user) s").fetchone() == (1,)


def test_errors_are_of_their_classes(hub: Served) -> None:
    with connect(hub, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable) as failed:
            connection.execute("INVOKE totl")
        assert failed.value.diag.message_hint == "Did you mean 'total'?"
        with pytest.raises(psycopg.errors.DuplicateTable):
            connection.execute("CREATE STREAM s (v INT) USING push")
        with pytest.raises(psycopg.errors.UndefinedColumn):
            connection.execute("SELECT nope FROM s")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_cursor_of_the_server_reads_in_parts(hub: Served) -> None:
    with connect(hub) as connection, connection.cursor("parts") as cursor:
        cursor.itersize = 1000
        cursor.execute("SELECT i FROM generate_series(1, 5000) t(i)")
        assert [i for (i,) in cursor] == list(range(1, 5001))


def test_rows_are_copied_into_a_stream(hub: Served) -> None:
    with connect(hub, autocommit=True) as connection:
        connection.execute("CREATE STREAM copied (v BIGINT, t STRING) USING push")
        connection.execute("CREATE QUERY of_copied AS SELECT v, t FROM copied")
        rows = [(1, "plain"), (2, "tab\tand\nline\\"), (None, None), (4, '"quoted", and more'), (5, "")]
        with connection.cursor().copy("COPY copied (v, t) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        connection.cursor().executemany("INSERT INTO copied (v, t) VALUES (%s, %s)", [(6, "six"), (7, None)])
        wanted = sorted([*rows, (6, "six"), (7, None)], key=str)
        until(lambda: sorted(connection.execute("SELECT * FROM of_copied").fetchall(), key=str) == wanted)
        with pytest.raises(RuntimeError):
            _give_up_copying(connection)
        assert connection.execute("SELECT count(*) FROM of_copied").fetchone() == (7,)


@pytest.mark.parametrize(
    ("at", "reason"),
    [(None, "event time at is null"), ("2999-01-01T00:00:00Z", "more than 1 HOUR after its arrival")],
)
@pytest.mark.parametrize("how", ["INSERT", "text", "csv"])
def test_a_row_that_the_stream_would_reject_refuses_its_statement(
    hub: Served, how: str, at: str | None, reason: str
) -> None:
    stream = f"judged_{how}_{at is None}".lower()
    with connect(hub, autocommit=True) as connection:
        connection.execute(
            f"CREATE STREAM {stream} (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at OPTIONS (maxAhead '1 HOUR')"
        )
        connection.execute(f"CREATE QUERY of_{stream} AS SELECT v FROM {stream}")
        before = connection.execute(f"SHOW STREAMS LIKE '{stream}'").fetchall()
        with pytest.raises(psycopg.errors.InvalidTextRepresentation) as failed:
            _push(connection, stream, how, [(1, "2024-01-01T00:00:01Z"), (2, at)])
        assert f"row 2 does not fit {stream}: " in str(failed.value)
        assert reason in str(failed.value)
        assert connection.execute(f"SHOW STREAMS LIKE '{stream}'").fetchall() == before


def _push(connection: Any, stream: str, how: str, rows: list[tuple[int, str | None]]) -> None:
    if how == "INSERT":
        places = ", ".join(["(%s, %s)"] * len(rows))
        connection.execute(f"INSERT INTO {stream} VALUES {places}", [cell for row in rows for cell in row])
        return
    with connection.cursor().copy(f"COPY {stream} FROM STDIN (FORMAT {how})") as copy:
        for v, at in rows:
            copy.write(f"{v},{at or ''}\n") if how == "csv" else copy.write_row((v, at))


def _give_up_copying(connection: Any) -> None:
    with connection.cursor().copy("COPY copied FROM STDIN") as copy:
        copy.write_row((8, "not pushed"))
        raise RuntimeError


# -- following -------------------------------------------------------------------------------------------------------


def fetch(connection: Any, count: int, cursor: str = "c") -> list[int]:
    return [v for (v,) in connection.execute(f"FETCH {count} FROM {cursor}").fetchall()]


def push(connection: Any, *values: int) -> None:
    rows = ", ".join(f"({value}, now())" for value in values)
    connection.execute(f"INSERT INTO followed VALUES {rows}")


@pytest.fixture
def followed(hub: Served) -> Iterator[Any]:
    with connect(hub, autocommit=True) as connection:
        connection.execute("CREATE STREAM followed (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        connection.execute("CREATE QUERY numbers AS SELECT v FROM followed")
        yield connection
        connection.execute("DROP QUERY numbers")
        connection.execute("DROP STREAM followed")


def test_fetch_waits_for_rows_and_gives_each_once(hub: Served, followed: Any) -> None:
    followed.execute("DECLARE c CURSOR FOR FOLLOW numbers")
    with connect(hub, autocommit=True) as other:
        later = threading.Timer(0.2, push, [other, 1, 2, 3])
        later.start()
        followed.execute("SET follow_timeout = '60s'")
        assert fetch(followed, 2) == [1, 2]
        later.join()
        assert fetch(followed, 100) == [3]
        followed.execute("SET follow_timeout = '50ms'")
        assert fetch(followed, 100) == []
        push(other, 4)
        followed.execute("SET follow_timeout = '60s'")
        assert fetch(followed, 100) == [4]
    followed.execute("CLOSE c")


def test_a_client_resumes_after_what_it_has_acknowledged(hub: Served, followed: Any) -> None:
    for value in (1, 2, 3, 4):
        push(followed, value)
        until(lambda: followed.execute("SELECT count(*) FROM numbers").fetchone() == (value,))  # noqa: B023

    def begin(connection: Any) -> None:
        connection.execute("SET follow_timeout = 0")
        connection.execute("DECLARE c CURSOR FOR FOLLOW numbers CLIENT 'me'")

    with connect(hub, autocommit=True) as first:
        begin(first)
        assert fetch(first, 1) == [1]
        assert fetch(first, 2) == [2, 3]  # acknowledges 1
    with connect(hub, autocommit=True) as second:  # the connection was lost: 2 and 3 are due again
        begin(second)
        assert fetch(second, 1) == [2]
        second.execute("CLOSE c")  # acknowledges 2
    with connect(hub) as third:  # in a transaction
        begin(third)
        assert fetch(third, 1) == [3]
        third.rollback()
        begin(third)
        assert fetch(third, 1) == [3]
        third.commit()  # acknowledges 3
        begin(third)
        assert fetch(third, 10) == [4]


def test_part_of_an_epoch_is_not_acknowledged(hub: Served, followed: Any) -> None:
    push(followed, 1, 2, 3)
    until(lambda: followed.execute("SELECT count(*) FROM numbers").fetchone() == (3,))
    for _ in range(2):
        followed.execute("DECLARE c CURSOR FOR FOLLOW numbers CLIENT 'parts'")
        assert fetch(followed, 2) == [1, 2]
        followed.execute("CLOSE c")


def test_a_cursor_of_a_query_that_is_dropped_says_so(hub: Served) -> None:
    with connect(hub, autocommit=True) as connection:
        connection.execute("CREATE QUERY short_lived AS SELECT v FROM s")
        connection.execute("DECLARE c CURSOR FOR FOLLOW short_lived")
        connection.execute("DROP QUERY short_lived")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("FETCH c")


# -- libraries on top ------------------------------------------------------------------------------------------------


def test_sqlalchemy_lists_tables_and_columns_and_pandas_reads_them(hub: Served) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="of the optional dependencies dev")
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://anyone@127.0.0.1:{hub.postgres}/headrace")
    inspector = sqlalchemy.inspect(engine)
    assert {"q", "s", "total"} <= set(inspector.get_table_names())
    assert "q" in inspector.get_view_names(schema="answers")
    assert [(column["name"], str(column["type"])) for column in inspector.get_columns("s")] == [
        ("k", "TEXT"),
        ("v", "BIGINT"),
        ("at", "TIMESTAMP"),
    ]
    assert inspector.has_table("q")
    assert not inspector.has_table("nothing")
    assert inspector.get_pk_constraint("q")["constrained_columns"] == []
    assert inspector.get_foreign_keys("q") == []
    assert inspector.get_indexes("q") == []
    table = sqlalchemy.Table("s", sqlalchemy.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        chosen = sqlalchemy.select(table.c.k).where(table.c.v > 1).order_by(table.c.at).limit(5)
        assert connection.execute(chosen).fetchall() == [("b",)]
        frame = pd.read_sql(sqlalchemy.text("SELECT k, v, at FROM s ORDER BY v"), connection)
        assert frame["v"].tolist() == [1, 2]
        assert str(frame["at"].dtype).startswith("datetime64")
    engine.dispose()


LONG = "SELECT sum(a.i * b.i) FROM generate_series(1, 1000000) a(i), generate_series(1, 1000000) b(i)"


@pytest.mark.parametrize(
    "text", [LONG, "SET follow_timeout = '1h'; DECLARE c CURSOR FOR FOLLOW q; FETCH c; FETCH c"]
)
def test_a_hub_that_ends_does_not_wait_for_its_connections(tmp_path: Path, text: str) -> None:
    """A statement that runs is cancelled; a FETCH that waits may also be answered, without rows."""
    with with_rows(tmp_path / "home") as hub:
        connection = connect(hub, autocommit=True)
        outcomes: list[BaseException | int] = []

        def wait() -> None:
            try:
                outcomes.append(connection.execute(text).rowcount)
            except psycopg.Error as error:
                outcomes.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE)
    waiting.join(30)
    connection.close()
    assert not waiting.is_alive()
    (outcome,) = outcomes
    assert isinstance(outcome, psycopg.Error) or (text != LONG and outcome == 0)


AT = datetime(2024, 1, 1, tzinfo=UTC)
KINDS = "i INT, b BOOLEAN, t STRING, y BINARY, v INTERVAL, d DECIMAL(10,2), f DOUBLE, day DATE, n TIMESTAMP_NTZ, at TIMESTAMP"
LOCAL = datetime(2024, 1, 1, 1)  # noqa: DTZ001 - without a zone
VALUES = [
    (
        *(1, True, "\b\f\v\t\n\\", b"\x00\xff\\", timedelta(days=1, seconds=5, microseconds=7)),
        *(Decimal("1.25"), float("nan"), date(2024, 2, 29), LOCAL, AT),
    ),
    (
        *(2, False, "x" * 2_000_000, b"", timedelta(days=-1, seconds=5)),
        *(Decimal("-0.01"), float("-inf"), date(1, 1, 1), LOCAL, AT),
    ),
    (3, *[None] * 8, AT),
]


@pytest.mark.parametrize("how", ["rows", "text", "csv", "INSERT"])
def test_values_of_every_type_are_pushed(hub: Served, how: str) -> None:
    """As psycopg writes them, and as COPY TO STDOUT does."""
    stream, query = f"kinds_{how}".lower(), f"of_kinds_{how}".lower()
    with connect(hub, autocommit=True) as connection:
        connection.execute(f"CREATE STREAM {stream} ({KINDS}) USING push TIMESTAMP BY at")
        connection.execute(f"CREATE QUERY {query} AS SELECT * FROM {stream}")
        for row in VALUES if how != "rows" else []:
            connection.execute(f"INSERT INTO {stream} VALUES ({', '.join(['%s'] * len(row))})", row)
        if how == "rows":
            with connection.cursor().copy(f"COPY {stream} FROM STDIN") as copy:
                for row in VALUES:
                    copy.write_row(row)

        def found(query: str) -> list[Any]:
            return connection.execute(f"SELECT * FROM {query} ORDER BY i, t").fetchall()

        until(lambda: len(found(query)) == len(VALUES))
        assert not [pair for pair in zip(found(query), VALUES, strict=True) if repr(pair[0]) != repr(pair[1])]
        if how in ("text", "csv"):
            with connection.cursor().copy(f"COPY {query} TO STDOUT (FORMAT {how})") as copy:
                written = b"".join(map(bytes, copy))
            with connection.cursor().copy(f"COPY {stream} FROM STDIN (FORMAT {how})") as copy:
                copy.write(written)
            until(lambda: len(found(query)) == 2 * len(VALUES))
            twice = zip(found(query), (row for row in VALUES for _ in range(2)), strict=True)
            assert not [pair for pair in twice if repr(pair[0]) != repr(pair[1])]
