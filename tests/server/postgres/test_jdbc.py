"""JDBC: PostgreSQL's driver in the Java that Spark needs, called over py4j."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from headrace.runtime.spark.java import find_java
from headrace.runtime.spark.jvm import spark_jars
from tests.server.postgres.wire import with_rows
from tests.server.serving import Served, served

DRIVER = Path("/usr/share/java/postgresql.jar")
pytestmark = pytest.mark.skipif(
    not DRIVER.exists(), reason="needs PostgreSQL's JDBC driver, which this machine does not have"
)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with with_rows(tmp_path_factory.mktemp("served") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    (py4j,) = [jar for jar in spark_jars() if jar.name.startswith("py4j")]
    port, process = launch_gateway(
        jarpath=str(py4j),
        classpath=str(DRIVER),
        java_path=str(find_java().executable),
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()
    process.stdin.close()
    process.wait(30)


@pytest.fixture
def connection(hub: Served, java: Any) -> Iterator[Any]:
    opened = java.java.sql.DriverManager.getConnection(
        f"jdbc:postgresql://127.0.0.1:{hub.postgres}/headrace?user=anyone"
    )
    yield opened
    opened.close()


def rows(result: Any, *columns: str | int) -> list[tuple[Any, ...]]:
    found = []
    while result.next():
        found.append(tuple(result.getString(column) for column in columns))
    return found


def test_the_driver_lists_schemas_tables_and_columns(connection: Any) -> None:
    facts = connection.getMetaData()
    assert facts.getDatabaseProductName() == "PostgreSQL"
    schemas = rows(facts.getSchemas(), "TABLE_SCHEM")
    assert ("public",) in schemas
    assert ("answers",) in schemas
    tables = rows(facts.getTables(None, "public", "%", None), "TABLE_NAME", "TABLE_TYPE")
    assert {("q", "TABLE"), ("s", "TABLE"), ("total", "TABLE")} <= {*tables}
    assert ("q", "VIEW") in rows(facts.getTables(None, "answers", "%", None), "TABLE_NAME", "TABLE_TYPE")
    columns = rows(facts.getColumns(None, "public", "s", "%"), "COLUMN_NAME", "TYPE_NAME", "ORDINAL_POSITION")
    assert columns == [("k", "text", "1"), ("v", "int8", "2"), ("at", "timestamptz", "3")]
    assert rows(facts.getPrimaryKeys(None, "public", "s"), 4) == []
    assert rows(facts.getIndexInfo(None, "public", "s", False, False), 6) == []
    assert rows(facts.getTypeInfo(), "TYPE_NAME")
    assert rows(facts.getTableTypes(), 1)


def test_rows_are_read_by_prepared_statements_many_times(connection: Any) -> None:
    prepared = connection.prepareStatement("SELECT k, v, at FROM s WHERE v >= ? ORDER BY v")
    for _ in range(8):  # after five times the driver prepares it for good and asks for binary values
        prepared.setLong(1, 2)
        result = prepared.executeQuery()
        assert result.next()
        assert (result.getString(1), result.getLong("v")) == ("b", 2)
        assert result.getTimestamp(3).getTime() == 1_704_067_212_500
        assert not result.next()
    assert prepared.getMetaData().getColumnTypeName(2) == "int8"


def test_results_come_in_parts_of_the_fetch_size(connection: Any) -> None:
    connection.setAutoCommit(False)
    statement = connection.createStatement()
    statement.setFetchSize(100)
    found = rows(statement.executeQuery("SELECT i FROM generate_series(1, 1050) t(i)"), 1)
    assert found == [(str(number),) for number in range(1, 1051)]
    connection.commit()


def test_queries_are_made_invoked_and_dropped(connection: Any) -> None:
    statement = connection.createStatement()
    statement.execute("CREATE QUERY of_jdbc AS SELECT COUNT(*) AS n FROM s")
    assert "query of_jdbc registered" in statement.getWarnings().getMessage()
    result = connection.createStatement().executeQuery("INVOKE total")
    assert rows(result, "n") == [("2",)]
    statement.execute("DROP QUERY of_jdbc")
    insert = connection.prepareStatement("INSERT INTO tail (v, at) VALUES (?, ?)")
    insert.setLong(1, 7)
    insert.setObject(
        2, statement.getClass().forName("java.time.OffsetDateTime").getMethod("now", None).invoke(None, None)
    )
    assert insert.executeUpdate() == 1


@contextmanager
def overheard(port: int) -> Iterator[tuple[int, list[bytes]]]:
    """A port in front of another one, and what clients send to it."""
    sent: list[bytes] = []

    def forward(source: socket.socket, target: socket.socket, heard: list[bytes]) -> None:
        with suppress(OSError):
            while part := source.recv(1 << 16):
                heard.append(part)
                target.sendall(part)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept(accepting: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client = accepting.accept()[0]
                hub = socket.create_connection(("127.0.0.1", port))
                for source, target, heard in ((client, hub, sent), (hub, client, [])):
                    threading.Thread(target=forward, args=(source, target, heard), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as accepting:
        threading.Thread(target=accept, args=(accepting,), daemon=True).start()
        yield accepting.getsockname()[1], sent
        accepting.shutdown(socket.SHUT_RDWR)


def test_the_driver_proves_its_token_and_does_not_send_it(tmp_path: Path, java: Any) -> None:
    with (
        served(tmp_path / "home", "--postgres-port", "0", auth=True) as hub,
        overheard(hub.postgres) as (port, sent),
    ):
        assert hub.token is not None
        url = f"jdbc:postgresql://127.0.0.1:{port}/headrace"
        connection = java.java.sql.DriverManager.getConnection(url, "anyone", hub.token)
        found = connection.createStatement().executeQuery("SELECT i FROM generate_series(1, 2) t(i)")
        assert rows(found, "i") == [("1",), ("2",)]
        connection.close()
        heard = b"".join(sent)
        assert b"SCRAM-SHA-256" in heard
        assert b"SELECT i" in heard
        assert hub.token.encode() not in heard
        for password in (hub.token[:-1], hub.token.swapcase(), " "):
            with pytest.raises(Py4JJavaError, match="no valid token"):
                java.java.sql.DriverManager.getConnection(url, "anyone", password)
