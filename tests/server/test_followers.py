"""Followers over HTTP: what they read together, how they wait, and what cuts them off."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from headrace.errors import UnknownName
from headrace.runtime.delivery.cursor import Due
from headrace.runtime.home.lru_cache import Recent
from headrace.server import access, following
from headrace.server.access import Access
from headrace.server.connections.follower_groups import Follower, FollowerGroups
from headrace.server.connections.web_sockets import FRAMES
from headrace.server.following import Batch, Event, Feed, Publications
from headrace.server.open_or_connect import open_hub
from headrace.server.problems import Refused
from headrace.server.security.permissions import Limits
from headrace.server.security.principal import LOCAL
from headrace.server.security.roots import Roots
from headrace.server.security.tokens import Tokens
from headrace.store.files.filesystem import LocalStore
from tests.server.serving import STREAM, Served, served

ROWS = '{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}\n'


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("followed") / "home", auth=True) as hub:
        script = f"{STREAM} CREATE QUERY q OPTIONS (owner 'ana') AS SELECT k FROM s"
        assert hub.curl("/v1/statements", "--data-binary", script, token=hub.token)[0] == 200
        yield hub


def made(hub: Served) -> tuple[str, str]:
    """A token, and its short name."""
    token = Tokens(LocalStore(hub.home)).make("ana", "read")
    return token, hashlib.sha256(token.encode()).hexdigest()[:12]


def revoke(hub: Served, name: str) -> None:
    Tokens(LocalStore(hub.home)).revoke(name)


def audited(hub: Served) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in (hub.home / "audit.jsonl").read_text().splitlines())
    return [line for line in lines if line["method"] == "WEBSOCKET"]


def socket_of(hub: Served) -> str:
    return f"{hub.url.replace('http', 'ws')}/v1/queries/q/follow"


# -- cut off ---------------------------------------------------------------------------------------------------------


def test_a_revoked_token_ends_an_event_stream(hub: Served) -> None:
    token, name = made(hub)
    follow = ["curl", "-sN", "--max-time", "60", f"{hub.url}/v1/queries/q/follow"]
    with subprocess.Popen(
        [*follow, "-H", f"Authorization: Bearer {token}"], stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == ": following\n"
        revoke(hub, name)
        said = follower.stdout.read()
        assert follower.wait(30) == 0
    assert "event: error\n" in said
    assert json.loads(said.partition("data: ")[2])["error"]["message"] == "the token was revoked"


def test_requests_that_last_are_woken_when_their_token_is_revoked_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WATCH_SECONDS", 0.01)
    tokens = Tokens(LocalStore(tmp_path))
    kept, lost = (tokens.admit(tokens.make("ana", "read")) for _ in range(2))
    assert kept is not None
    assert lost is not None
    checked, woken = Access(tokens), asyncio.Event()

    async def watch() -> None:
        with checked.lasting(kept), checked.lasting(lost):
            watching = asyncio.create_task(checked.watch(woken.set))
            checked.require_valid(lost)
            tokens.revoke(lost.token)
            await asyncio.wait_for(woken.wait(), 60)
            watching.cancel()

    asyncio.run(watch())
    with pytest.raises(Refused, match="the token was revoked"):
        checked.require_valid(lost)
    checked.require_valid(kept)


@pytest.mark.parametrize("given", ['{"credits": 100}', '{"credits": 0}'])
def test_a_revoked_token_ends_a_websocket_that_waits_for_rows_or_for_credits(hub: Served, given: str) -> None:
    token, name = made(hub)
    headers = {"Authorization": f"Bearer {token}"}
    with connect(f"{socket_of(hub)}?since=0", additional_headers=headers) as socket:
        socket.send(given)
        push = ("--data-binary", ROWS, "-H", "Content-Type: application/x-ndjson")
        hub.curl("/v1/streams/s/rows", *push, token=hub.token)
        if "100" in given:
            assert json.loads(socket.recv(timeout=30))["rows"] == [{"k": "a"}]
        revoke(hub, name)
        with pytest.raises(ConnectionClosed, match="the token was revoked"):
            list(socket)
    last = audited(hub)[-1]
    assert (last["token"], last["status"], last["message"]) == (name, 1008, "the token was revoked")


def test_a_websocket_has_lines_in_the_audit_log(hub: Served) -> None:
    token, name = made(hub)
    with connect(socket_of(hub), additional_headers={"Authorization": f"Bearer {token}"}) as socket:
        socket.send("nonsense")
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=30)
    with (
        pytest.raises(InvalidStatus),
        connect(socket_of(hub), additional_headers={"Authorization": "Bearer wrong"}),
    ):
        pass
    accepted, closed, refused = audited(hub)[-3:]
    path = "/v1/queries/q/follow"
    assert (accepted["owner"], accepted["token"], accepted["path"], accepted["status"]) == (
        "ana",
        name,
        path,
        101,
    )
    assert (closed["status"], "expected" in closed["message"]) == (1008, True)
    assert (refused["owner"], refused["status"], refused["message"]) == (None, 403, "the token is not valid")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/queries/none/follow", 404),
        ("/v1/queries/q/follow?since=zz", 400),
        ("/v1/queries/q/follow?since=-1", 400),
        ("/v1/queries/q/follow?since=999999", 400),
        ("/v1/queries/q/follow?tables=xml", 400),
    ],
)
def test_a_websocket_is_refused_with_the_response_of_an_event_stream(
    hub: Served, path: str, status: int
) -> None:
    headers = {"Authorization": f"Bearer {hub.token}"}
    url = f"{hub.url.replace('http', 'ws')}{path}"
    with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers):
        pass
    response = refused.value.response
    assert response.headers["Content-Type"] == "application/json"
    assert (response.status_code, response.body.decode()) == hub.curl(path, token=hub.token)
    last = audited(hub)[-1]
    assert response.status_code == status
    assert (last["role"], last["status"]) == ("administer", status)
    assert last["message"] == json.loads(response.body)["error"]["message"]


def test_a_websocket_without_a_token_is_refused_whatever_it_asks_for(hub: Served) -> None:
    for asked in ("", "?since=zz"):
        with pytest.raises(InvalidStatus) as refused, connect(f"{socket_of(hub)}{asked}"):
            pass
        assert refused.value.response.status_code == 401
        assert json.loads(refused.value.response.body)["error"]["message"] == "a token is missing"


@pytest.mark.parametrize(
    "message",
    [
        '{"foo": 1}',
        "{}",
        "[]",
        '{"credits": -1}',
        '{"credits": true}',
        '{"credits": 1.5}',
        '{"credits": 1, "acknowlegde": 0}',
        '{"acknowledge": null}',
        "[" * 100_000,
        '{"credits": 1e999}',
        '{"credits": "x"}',
        '"credits"',
        "[1]",
        '{"credits": [1]}',
        "null",
        '{"acknowledge": [0]}',
        b"\xff\xfe",
    ],
)
def test_a_message_that_is_none_closes_the_websocket_with_a_reason(hub: Served, message: str | bytes) -> None:
    headers = {"Authorization": f"Bearer {hub.token}"}
    with connect(f"{socket_of(hub)}?client=x", additional_headers=headers) as socket:
        socket.send(message)
        with pytest.raises(ConnectionClosed, match="expected"):
            socket.recv(timeout=30)
    assert hub.curl("/healthz")[0] == 200


def test_an_acknowledgement_without_a_client_closes_the_websocket_with_a_reason(hub: Served) -> None:
    with connect(socket_of(hub), additional_headers={"Authorization": f"Bearer {hub.token}"}) as socket:
        socket.send('{"acknowledge": 0}')
        with pytest.raises(ConnectionClosed, match="client=NAME") as closed:
            socket.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


@pytest.mark.parametrize("cursor", [-1, 10**30])
def test_a_cursor_that_no_event_had_is_not_acknowledged(hub: Served, cursor: int) -> None:
    headers = {"Authorization": f"Bearer {hub.token}"}
    with connect(f"{socket_of(hub)}?client=y", additional_headers=headers) as socket:
        socket.send(json.dumps({"acknowledge": cursor}))
        assert "beyond what is committed" in json.loads(socket.recv(timeout=30))["error"]["message"]


# -- reading together ------------------------------------------------------------------------------------------------


def test_followers_that_want_the_same_wait_for_one_reading() -> None:
    async def read() -> list[Batch]:
        publications, readings, release = Publications(), list[str](), asyncio.Event()
        loop = asyncio.get_running_loop()

        def reading(name: str) -> Batch:
            readings.append(name)
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
            return Batch([Event(1, name)], 1, is_all=True)

        def wanted(name: str, position: int) -> Any:
            key = (publications.waiter, name, "json", position)
            return asyncio.ensure_future(publications.reading(key, lambda: reading(name)))

        first = [wanted("q", 0) for _ in range(50)]
        given_up = wanted("q", 0)
        other, later = wanted("other", 0), wanted("q", 1)
        await asyncio.sleep(0)
        given_up.cancel()  # the one who leaves does not take the reading with it
        publications.wake()
        after = wanted("q", 0)  # what an earlier epoch's reading has seen may be too little
        await asyncio.sleep(0)
        release.set()
        batches = [await batch for batch in (*first, other, later, after)]
        assert sorted(readings) == ["other", "q", "q", "q"]
        assert not publications._readings
        return batches

    assert {batch.events[0].data for batch in asyncio.run(read())} == {"q", "other"}


def test_an_error_of_a_reading_is_that_of_all_who_wait_for_it() -> None:
    async def read() -> list[Any]:
        publications = Publications()

        def fails() -> Batch:
            raise UnknownName("there is no query 'q'")

        key = (publications.waiter, "q", "json", 0)
        return await asyncio.gather(
            *(publications.reading(key, fails) for _ in range(3)), return_exceptions=True
        )

    assert [type(error) for error in asyncio.run(read())] == [UnknownName] * 3


def test_a_follower_waits_only_when_it_has_read_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs whose rows no follower sees do not make it wait for the next one while there are more."""
    empty, one = pa.table({"k": pa.array([], pa.string())}), pa.table({"k": ["a"]})

    def due(*_: Any) -> Iterator[Due]:
        for number in range(1, 40):
            yield Due(number, number, one if number == 39 else empty)
        yield Due(39, 39, None)

    def from_position(home: Any, manifest: Any, operator: Any, query: Any, start: int) -> Iterator[Due]:
        return (part for part in due() if part.position > start or part.rows is None)

    async def first(feed: Feed) -> int:
        """The position of its first event; its connection is lost then."""
        seen, connection = list[int](), SimpleNamespace(is_closing=lambda: bool(seen))

        async def send(event: Event) -> None:
            seen.append(event.position)
            groups.publications.ended = True

        groups = FollowerGroups(Publications())
        await asyncio.wait_for(Follower(feed, connection, FRAMES, 0).follow(groups, send), 60)  # type: ignore[arg-type]
        return seen[0]

    monkeypatch.setattr(following, "due", from_position)
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(f"{STREAM} CREATE QUERY q AS SELECT k FROM s")
        permissions = Limits(Roots((), hub.path)).of(LOCAL)
        feed = Feed(hub, "q", "json", Recent(1), permissions, Access(None))
        assert feed.read(0).is_all is False
        assert asyncio.run(first(feed)) == 39
        assert feed.read(39).is_all
