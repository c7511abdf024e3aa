"""Encryption of PostgreSQL's protocol with the hub's certificate, by real clients and byte by byte."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.server.postgres.wire import PSQL, Raw, error, needs_psql, rows, startup
from tests.server.serving import Served, certificate, served

SSL_REQUEST = struct.pack("!ii", 8, 80877103)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, files: tuple[Path, Path]) -> Iterator[Served]:
    options = ("--postgres-port", "0", "--tls-cert", str(files[0]), "--tls-key", str(files[1]))
    with served(tmp_path_factory.mktemp("encrypted") / "home", *options, auth=True) as running:
        yield running


def address(hub: Served, **options: str) -> str:
    said = "".join(f" {name}={value}" for name, value in options.items())
    return f"host=localhost port={hub.postgres} user=me dbname=headrace password={hub.token}{said}"


def test_a_client_checks_the_certificate_and_reads(hub: Served, files: tuple[Path, Path]) -> None:
    with psycopg.connect(address(hub, sslmode="verify-full", sslrootcert=str(files[0]))) as connection:
        assert connection.pgconn.ssl_in_use
        many = connection.execute("SELECT repeat('x', 1000) FROM generate_series(1, 20000)").fetchall()
        assert len(many) == 20_000


@needs_psql
def test_psql_encrypts_without_being_asked(hub: Served) -> None:
    assert PSQL is not None
    done = subprocess.run([PSQL, address(hub), "-c", "\\conninfo"], capture_output=True, text=True)
    assert "SSL connection" in done.stdout, done


def test_a_handshake_that_comes_at_once_is_read_as_one(hub: Served, files: tuple[Path, Path]) -> None:
    for _ in range(50):
        with psycopg.connect(address(hub, sslmode="require")) as connection:
            assert connection.pgconn.ssl_in_use


def test_without_encryption_no_password_is_asked_for(hub: Served) -> None:
    with pytest.raises(psycopg.OperationalError, match="reached with encryption only"):
        psycopg.connect(address(hub, sslmode="disable"))
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        connection.sendall(startup(user="me"))
        found = Raw(connection).receive()
        assert (found[0], error([found])["C"]) == (b"E", "28000")
        assert connection.recv(1) == b""


def test_what_comes_in_clear_before_the_encryption_is_not_taken_for_what_the_client_says(hub: Served) -> None:
    """A program between the two could send statements ahead of the client's (CVE-2021-23214)."""
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        connection.sendall(SSL_REQUEST + startup(user="me"))
        found = Raw(connection).receive()
        assert (found[0], error([found])["M"]) == (b"E", "received unencrypted data after SSL request")


@pytest.mark.parametrize("sent", [b"", b"nonsense that is no handshake", SSL_REQUEST])
def test_a_handshake_that_fails_ends_its_connection_alone(
    hub: Served, files: tuple[Path, Path], sent: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        connection.sendall(SSL_REQUEST)
        assert connection.recv(1) == b"S"
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1000):
            pass
    context = ssl.create_default_context(cafile=str(files[0]))
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        connection.sendall(struct.pack("!ii", 8, 80877104) + b"")
        assert connection.recv(1) == b"N"
        connection.sendall(SSL_REQUEST)
        assert connection.recv(1) == b"S"
        with context.wrap_socket(connection, server_hostname="localhost") as encrypted:
            encrypted.sendall(SSL_REQUEST)
            assert encrypted.recv(1) == b"N"
            encrypted.sendall(startup(user="me"))
            raw = Raw(encrypted)
            assert raw.receive() == (b"R", struct.pack("!i", 3))
            assert hub.token is not None
            raw.send(b"p", hub.token.encode() + b"\0")
            raw.until_ready()
            assert rows(raw.query("SELECT 1")) == [[b"1"]]
