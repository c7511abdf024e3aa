"""Tokens as passwords over PostgreSQL's protocol: the proof by SCRAM of a connection in clear, revoking and expiry."""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from headrace.server.security.scram import Exchange, NoScram, Verifier
from headrace.server.security.tokens import Tokens
from headrace.store.files.filesystem import LocalStore
from tests.server.postgres.wire import Raw, connected, error, prove, rows, startup
from tests.server.serving import Served, served

MECHANISM = b"SCRAM-SHA-256\0"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("proved") / "home", "--postgres-port", "0", auth=True) as hub:
        yield hub


@contextmanager
def started(hub: Served) -> Iterator[Raw]:
    """A connection that was asked for its token."""
    with socket.create_connection(("127.0.0.1", hub.postgres), timeout=30) as connection:
        connection.sendall(startup(user="anyone"))
        yield Raw(connection)


def ended(raw: Raw, code: str) -> str:
    """The message of the error that ends a connection."""
    found = error([raw.receive()])
    assert found["C"] == code
    assert raw.socket.recv(1) == b""
    return found["M"]


def short(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:12]


def test_a_client_proves_its_token_and_the_hub_proves_that_it_knows_it(hub: Served) -> None:
    assert hub.token is not None
    with connected(hub.postgres, hub.token) as raw:
        assert rows(raw.query("SELECT 1")) == [[b"1"]]
    for header in ("n,,", "y,,"):
        with started(hub) as raw:
            _, signature = prove(raw, hub.token, header)
            assert raw.receive() == (b"R", struct.pack("!i", 12) + b"v=" + base64.b64encode(signature))
            assert raw.receive() == (b"R", struct.pack("!i", 0))


def test_libpq_demands_a_proof_and_checks_that_of_the_hub(hub: Served) -> None:
    address = f"host=127.0.0.1 port={hub.postgres} user=me dbname=headrace require_auth=scram-sha-256"
    with psycopg.connect(address, password=hub.token) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="no valid token"):
        psycopg.connect(address, password="wrong")


def test_a_token_is_found_among_others_whatever_the_user_is_called(hub: Served) -> None:
    tokens = Tokens(LocalStore(hub.home))
    several = [tokens.make("ana", "read") for _ in range(5)]
    for token in several:
        with connected(hub.postgres, token) as raw:
            assert rows(raw.query("SELECT 1")) == [[b"1"]]
        tokens.revoke(short(token))
        with started(hub) as raw:
            prove(raw, token)
            ended(raw, "28P01")


def test_a_token_of_an_earlier_version_needs_encryption(hub: Served) -> None:
    token = "made before there was a verifier"
    LocalStore(hub.home).put_if_absent(f"tokens/{hashlib.sha256(token.encode()).hexdigest()}", b"{}")
    with started(hub) as raw:
        prove(raw, token)
        assert "no valid token" in ended(raw, "28P01")
    assert hub.curl("/v1/queries", token=token)[0] == 200
    Tokens(LocalStore(hub.home)).revoke(short(token))


@pytest.mark.parametrize("wrong", ["", "wrong", "half"])
def test_another_secret_is_refused(hub: Served, wrong: str) -> None:
    assert hub.token is not None
    with started(hub) as raw:
        prove(raw, hub.token[:-1] if wrong == "half" else wrong)
        ended(raw, "28P01")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"p=tls-server-end-point,,n=,r=abc",
        b"n,,n=,r=",
        b"n,,m=x,n=,r=abc",
        b"\xff,,n=,r=abc",
        b"x" * 9000,
    ],
)
def test_a_first_message_that_is_none_ends_the_connection(hub: Served, first: bytes) -> None:
    with started(hub) as raw:
        raw.receive()
        raw.send(b"p", MECHANISM + struct.pack("!i", len(first)) + first)
        ended(raw, "08P01")


@pytest.mark.parametrize(
    "sent", [(b"Q", b"SELECT 1\0"), (b"p", b"SCRAM-SHA-1\0\xff\xff\xff\xff"), (b"p", b"")]
)
def test_something_else_than_a_first_message_ends_the_connection(
    hub: Served, sent: tuple[bytes, bytes]
) -> None:
    with started(hub) as raw:
        raw.receive()
        raw.send(*sent)
        ended(raw, "08P01")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda last: last.replace("c=biws", "c=eSws"), "not about the first one"),
        (lambda last: last.replace("r=abc", "r=abd"), "nonce"),
        (lambda last: last.partition(",p=")[0] + ",p=%%", "base 64"),
        (lambda last: last.partition(",p=")[0] + ",p=YQ==", "too short"),
        (lambda last: "", "not about"),
    ],
)
def test_a_last_message_that_does_not_fit_is_refused(change, message: str) -> None:
    exchange = Exchange.of(b"n,,n=,r=abc")
    nonce = exchange.server_first.split(",")[0]
    proof = base64.b64encode(bytes(32)).decode()
    last = f"c=biws,{nonce},p={proof}"
    assert exchange.finished(last.encode(), [("ana", Verifier.of("secret"))]) is None
    with pytest.raises(NoScram, match=message):
        exchange.finished(change(last).encode(), [("ana", Verifier.of("secret"))])


def test_the_home_has_nothing_that_a_proof_can_be_made_of(tmp_path: Path) -> None:
    """The key that is stored is a digest of the one that a proof needs (RFC 5802, section 3)."""
    tokens = Tokens(LocalStore(tmp_path))
    token = tokens.make()
    (file,) = (tmp_path / "tokens").iterdir()
    salted = hashlib.pbkdf2_hmac("sha256", token.encode(), b"headrace access token", 4096)
    for secret in (token.encode(), salted, hashlib.pbkdf2_hmac("sha256", token.encode(), b"", 1)):
        assert base64.b64encode(secret) not in file.read_bytes()
    ((principal, verifier),) = tokens.verifiers()
    assert principal.token == short(token)
    assert Verifier.of_text(verifier.text) == verifier == Verifier.of(token)


def test_a_revoked_token_ends_its_connection_with_the_next_statement(hub: Served) -> None:
    tokens = Tokens(LocalStore(hub.home))
    token = tokens.make()
    with connected(hub.postgres, token) as raw:
        assert rows(raw.query("SELECT 1")) == [[b"1"]]
        tokens.revoke(short(token))
        raw.send(b"Q", b"SELECT 1\0")
        ended(raw, "28P01")


def test_an_expired_token_ends_its_connection_and_admits_no_other(hub: Served) -> None:
    token = Tokens(LocalStore(hub.home)).make("ana", "read", lasts=2_000_000)
    with connected(hub.postgres, token) as raw:
        found = (b"Z", b"")
        while found[0] != b"E":
            if found[0] == b"Z":
                raw.send(b"Q", b"SELECT 1\0")
            found = raw.receive()
        assert error([found])["C"] == "28P01"
    with started(hub) as raw:
        prove(raw, token)
        ended(raw, "28P01")
