"""What networks, clients, disks and clocks do to a served hub: connections that are many, half open or never read, a full disk,
a clock that jumps. No other client is slower, nothing is lost, and nothing counts twice.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.runtime.hub.hub import Hub
from headrace.server import bodies
from headrace.server.connections import follower_groups, http_protocol, peers
from headrace.server.listener import listener_of, network_socket
from headrace.server.open_or_connect import open_hub
from headrace.server.security.tokens import Tokens
from headrace.time import HOUR, now
from tests.server.serving import STREAM, served
from tests.store.faults import FaultyDisk

QUERIES = "CREATE QUERY q AS SELECT k, v FROM s; CREATE QUERY total AS SELECT COUNT(*) AS n FROM s;"
FOLLOW = b"GET /v1/queries/q/follow?since=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass
class Listening:
    """A hub of this process, and clients of its port."""

    hub: Hub
    port: int
    client: httpx.Client

    def connection(self, **options: int) -> socket.socket:
        return connection(self.port, **options)

    def push(self, v: int, k: str = "a", key: str | None = None) -> httpx.Response:
        row = json.dumps({"k": k, "v": v, "at": "2024-01-01T00:00:01Z"})
        headers = {"Content-Type": "application/x-ndjson"} | ({"Idempotency-Key": key} if key else {})
        return self.client.post("/v1/streams/s/rows", content=row, headers=headers)

    def until(self, n: int) -> None:
        """Wait until so many rows are counted."""
        while self.client.get("/v1/queries/total/answer").json()["rows"] != [{"n": n}]:
            pass


def connection(port: int, *, buffer: int = 0) -> socket.socket:
    made = socket.socket()
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(60)
    made.connect(("127.0.0.1", port))
    return made


@contextmanager
def listening(home: Path, *, tokens: bool = False) -> Iterator[Listening]:
    with open_hub(home, local=True) as hub:
        clock = hub.loop.engine.clock
        hub.loop.engine.clock = hub.loop.engine.intake.clock = lambda: clock() + jumped[0]
        hub.execute(STREAM + QUERIES)
        accepting = network_socket("127.0.0.1", 0)
        port = accepting.getsockname()[1]
        listener = listener_of(
            hub, [accepting], tokens=Tokens(hub.home.store) if tokens else None, eager=True
        )
        listener.start()
        hub.on_close(listener.stop)
        with hub.running(), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield Listening(hub, port, client)


jumped = [0]
"""What the clock of a hub is set forward or back by, in microseconds."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Listening]:
    jumped[0] = 0
    with listening(tmp_path / "home") as running:
        yield running


def received(raw: socket.socket, until: bytes | None = None) -> bytes:
    """What a connection gets up to some bytes, or to its end."""
    parts = b""
    while until is None or until not in parts:
        try:
            part = raw.recv(1 << 16)
        except ConnectionResetError:
            part = b""
        if not part:
            break
        parts += part
    return parts


def events(text: str) -> list[dict[str, Any]]:
    """The whole events of a stream."""
    found = []
    for each in text.split("\n\n")[:-1]:
        data = [line.removeprefix("data: ") for line in each.splitlines() if line.startswith("data: ")]
        found += [json.loads(line) for line in data]
    return found


def unchunked(stream: bytes) -> str:
    """The body of a response, of the chunks that are whole."""
    rest, text = stream.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if not size or len(rest) < int(size, 16) + 2:
            break
        assert rest[int(size, 16) :][:2] == b"\r\n"
        text, rest = text + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return text.decode()


# -- connections -----------------------------------------------------------------------------------------------------


def test_a_head_that_does_not_end_ends_its_connection(
    hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    for begun in (b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: "):
        for before in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"):
            monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 60.0 if before else 0.2)
            with hub.connection() as raw:
                raw.sendall(before)
                if before:
                    assert received(raw, b"}").startswith(b"HTTP/1.1 200")
                    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
                with suppress(ConnectionError):  # a slow machine has ended it by then
                    raw.sendall(begun or (b"G" if before else b""))
                assert received(raw) == b""


def test_a_request_that_takes_longer_than_its_head_may_is_answered(
    hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.5)
    with hub.connection() as raw:
        raw.sendall(FOLLOW)
        received(raw, b": following\n\n\r\n")
        raw.settimeout(0.7)  # longer than a head may take
        with pytest.raises(TimeoutError):
            raw.recv(1)
        raw.settimeout(60)
        hub.push(1)
        assert b'"v":1' in received(raw, b'"v":1')


def test_a_body_that_stops_is_refused_and_nothing_of_it_is_taken(
    hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "PART_SECONDS", 0.2)
    row = b'{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}\n'
    for path in (b"/v1/streams/s/rows", b"/v1/statements", b"/v1/queries", b"/v1/check"):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
        with hub.connection() as raw:
            raw.sendall(head + row)
            assert received(raw, b"}}").startswith(b"HTTP/1.1 408"), path
    assert hub.push(2).status_code == 200
    hub.until(1)


def test_a_client_that_leaves_within_a_body_is_no_fault(
    hub: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (b"/v1/streams/s/rows", b"/v1/queries"):
        with hub.connection() as raw:
            raw.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    assert hub.push(1).status_code == 200
    hub.until(1)
    assert "failed" not in caplog.text


def test_a_body_is_not_read_before_its_token(tmp_path: Path) -> None:
    with listening(tmp_path / "home", tokens=True) as hub:
        for path in (b"/v1/queries", b"/v1/statements", b"/v1/streams/s/rows"):
            head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
            with hub.connection() as raw:
                raw.sendall(head)
                assert received(raw, b"}}").startswith(b"HTTP/1.1 401"), path
            token = Tokens(hub.hub.home.store).make()
            with hub.connection() as raw:
                raw.sendall(head.replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {token}\r\n\r\n".encode()))
                assert received(raw, b"}}").startswith(b"HTTP/1.1 413"), path


def test_more_connections_than_leave_files_for_epochs_are_refused(
    hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "most_connections", lambda: 8)
    assert hub.push(1).status_code == 200  # this client's connection is one of them
    with ExitStack() as opened:
        for _ in range(7):
            raw = opened.enter_context(hub.connection())
            raw.sendall(FOLLOW)
            received(raw, b": following")
        refused = opened.enter_context(hub.connection())
        refused.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert received(refused).startswith(b"HTTP/1.1 503")
        hub.push(2)
        assert b'"v":2' in received(raw, b'"v":2')


@pytest.mark.parametrize(("files", "connections"), [(64, 32), (1024, 512), (20_000, 19_488)])
def test_connections_leave_files_to_the_epochs(
    monkeypatch: pytest.MonkeyPatch, files: int, connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert peers.most_connections() == connections


def test_tcp_searches_for_a_client_that_is_gone(hub: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    ]
    seen = list[list[int]]()

    def watched(accepted: socket.socket) -> None:
        peers.find_lost_peer(accepted)
        seen.append([accepted.getsockopt(*option) for option in options])

    monkeypatch.setattr(http_protocol, "find_lost_peer", watched)
    with hub.connection() as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        received(raw, b"}")
    assert seen == [[1, 60, 120_000]]


def test_a_connection_sends_at_once() -> None:
    with (
        network_socket("127.0.0.1", 0) as listening,
        connection(listening.getsockname()[1]),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_five_thousand_connections_that_say_nothing_are_in_nobodys_way(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 6_000:
        pytest.skip("needs 6,000 open files, which this machine does not allow")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with served(tmp_path / "home") as hub, ExitStack() as opened:
            port = int(hub.url.rpartition(":")[2])
            hub.post("/v1/statements", STREAM + QUERIES)
            silent = [opened.enter_context(connection(port)) for _ in range(5_000)]
            status, answer = hub.post("/v1/streams/s/rows", '{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}')
            assert (status, answer["accepted"]) == (200, 1)
            while hub.get("/v1/queries/total/answer")["rows"] != [{"n": 1}]:
                pass
            assert {received(raw) for raw in silent} == {b""}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- readers ---------------------------------------------------------------------------------------------------------


def test_many_followers_get_each_row_once_and_leave_without_a_trace(hub: Listening) -> None:
    with ExitStack() as opened:
        followers = [opened.enter_context(hub.connection()) for _ in range(200)]
        for raw in followers:
            raw.sendall(FOLLOW)
        parts = {raw: received(raw, b": following\n\n") for raw in followers}
        for v in range(3):
            assert hub.push(v).status_code == 200
            for raw in followers:
                parts[raw] += received(raw, f'"v":{v}'.encode() + b"}]}\n\n")
            for raw in followers[: 50 * (v + 1) : 7]:
                raw.close()
                parts.pop(raw, None)
            followers = [*parts]
        assert len(parts) > 100
        for stream in parts.values():
            assert [row["v"] for event in events(unchunked(stream)) for row in event["rows"]] == [
                0,
                1,
                2,
            ]


def test_a_reader_that_never_reads_is_cut_off_and_resumes_while_others_read_on(
    hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_groups, "STALLED_SECONDS", 0.5)
    cut_off, leave = threading.Event(), follower_groups.FollowerGroups.leave

    def leave_and_report(groups: follower_groups.FollowerGroups, follower: follower_groups.Follower) -> None:
        leave(groups, follower)
        cut_off.set()

    monkeypatch.setattr(follower_groups.FollowerGroups, "leave", leave_and_report)
    wide = "x" * 400_000
    with hub.connection(buffer=4096) as stuck, hub.connection() as reading:
        for raw in (stuck, reading):
            raw.sendall(FOLLOW)
        first = received(stuck, b": following\n\n")
        received(reading, b": following")
        taken = b""
        for v in range(40):
            assert hub.push(v, wide).status_code == 200
            taken += received(reading, f'"v":{v}}}'.encode())
        assert cut_off.wait(60)  # a fast machine has pushed everything before half a second is over
        late = first + received(stuck)
    got = events(unchunked(late))
    assert [row["v"] for event in got for row in event["rows"]] == [*range(len(got))]
    assert len(got) < 40
    headers = {"Last-Event-ID": str(got[-1]["cursor"])} if got else {}
    text = ""
    with hub.client.stream("GET", "/v1/queries/q/follow?since=0", headers=headers) as resumed:
        for part in resumed.iter_text():
            text += part
            if '"v":39}]}\n\n' in text:
                break
    assert [row["v"] for event in events(text) for row in event["rows"]] == [*range(len(got), 40)]


def test_a_slow_reader_gets_each_row_once_at_its_own_pace(hub: Listening) -> None:
    """It leaves those that are written to together, reads by itself, and comes back to them."""
    wide = "x" * 300_000
    with hub.connection(buffer=4096) as slow:
        slow.sendall(FOLLOW)
        stream = received(slow, b": following\n\n")
        for v in range(30):
            assert hub.push(v, wide).status_code == 200
            if v % 10 == 9:
                hub.until(v + 1)
                stream += received(slow, f'"v":{v}}}]}}\n\n'.encode())
        hub.push(30)
        stream += received(slow, b'"v":30}]}\n\n\r\n')
    assert [row["v"] for event in events(unchunked(stream)) for row in event["rows"]] == [*range(31)]


def test_an_old_client_follows_without_chunks(hub: Listening) -> None:
    with hub.connection() as raw:
        raw.sendall(FOLLOW.replace(b"HTTP/1.1", b"HTTP/1.0"))
        stream = received(raw, b": following\n\n")
        for v in range(2):
            hub.push(v)
            stream += received(raw, f'"v":{v}}}]}}\n\n'.encode())
    body = stream.decode().partition("\r\n\r\n")[2]
    assert [row["v"] for event in events(body) for row in event["rows"]] == [0, 1]
    assert "\r" not in body


def test_a_dropped_query_ends_its_followers_with_the_reason(hub: Listening) -> None:
    with ExitStack() as opened:
        followers = [opened.enter_context(hub.connection()) for _ in range(5)]
        for raw in followers:
            raw.sendall(FOLLOW)
        streams = [received(raw, b": following\n\n") for raw in followers]
        hub.push(1)
        streams = [
            stream + received(raw, b'"v":1}]}\n\n') for stream, raw in zip(streams, followers, strict=True)
        ]
        assert hub.client.delete("/v1/queries/q").status_code == 200
        hub.push(2)  # the end is found with the next epoch
        for stream, raw in zip(streams, followers, strict=True):
            body = unchunked(stream + received(raw, b"0\r\n\r\n"))
            assert body.endswith("\n\n")
            assert "event: error\n" in body
            assert "there is no query 'q'" in events(body)[-1]["error"]["message"]


# -- the machine -----------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_what_changes_something_and_costs_nothing_once_there_is_room(
    hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, is_full = FaultyDisk(), [False]

    def look(name: str) -> None:
        if is_full[0] and name in ("create", "write", "mkdir", "link"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.before_call = look
    monkeypatch.setattr(hub.hub.home.store, "_disk", disk)
    with hub.connection() as raw:
        raw.sendall(FOLLOW)
        received(raw, b": following")
        assert hub.push(0, key="zero").status_code == 200
        received(raw, b'"v":0')
        hub.until(1)
        is_full[0] = True
        for _ in range(3):
            refused = hub.push(1, key="one")
            assert refused.status_code == 503, refused.text
            assert "Traceback" not in refused.text
            assert "is full" in refused.json()["error"]["message"]
        refused = hub.client.post("/v1/statements", content="CREATE QUERY other AS SELECT v FROM s")
        assert refused.status_code == 503, refused.text
        refused = hub.client.post("/v1/queries/q/acknowledge?client=a&cursor=1")
        assert refused.status_code == 503, refused.text
        for path in (
            "/v1/queries",
            "/v1/queries/total/answer",
            "/v1/queries/q/results",
            "/v1/status",
            "/metrics",
        ):
            assert hub.client.get(path).status_code == 200, path
        is_full[0] = False
        for key, v in (("one", 1), ("one", 1), ("two", 2), ("zero", 0)):
            assert hub.push(v, key=key).status_code == 200
        assert b'"v":2' in received(raw, b'"v":2')
        hub.until(3)
        assert (
            hub.client.post("/v1/statements", content="CREATE QUERY other AS SELECT v FROM s").status_code
            == 200
        )
        assert hub.client.get("/readyz").status_code == 200


def test_a_clock_that_jumps_loses_nothing_and_repeats_nothing(hub: Listening) -> None:
    script = "CREATE QUERY later AS SELECT v FROM s"
    with hub.connection() as raw:
        raw.sendall(FOLLOW)
        received(raw, b": following")
        made = hub.client.post("/v1/statements", content=script, headers={"Idempotency-Key": "made"})
        for n, jump in enumerate((0, HOUR, -HOUR, 24 * HOUR, -24 * HOUR, 0)):
            jumped[0] = jump
            assert abs(hub.hub.loop.engine.clock() - now() - jump) < HOUR // 2
            for _ in range(2):
                assert hub.push(n, key=f"row {n}").json()["accepted"] == 1
            received(raw, f'"v":{n}'.encode())
            hub.until(n + 1)
            again = hub.client.post("/v1/statements", content=script, headers={"Idempotency-Key": "made"})
            assert again.json() == made.json()
    epochs = hub.client.get("/v1/epochs").json()["epochs"]
    assert [each["epoch"] for each in epochs] == sorted({each["epoch"] for each in epochs})
    rows = hub.client.get("/v1/queries/q/results").json()["rows"]
    assert [row["v"] for row in rows] == [*range(6)]
