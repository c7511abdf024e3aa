"""A served hub that is killed (kill -9) while one client pushes, one registers, and one follows and acknowledges: nothing is lost,
and nothing counts twice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serving import served

SCRIPT = "CREATE STREAM s (v BIGINT) USING push; CREATE QUERY q AS SELECT v FROM s; CREATE QUERY total AS SELECT COUNT(*) AS n, SUM(v) AS sum FROM s"
PATIENCE_SECONDS = 120.0


@dataclass
class Clients:
    """Three clients of one home; each repeats what was not answered, as in the guide."""

    home: Path
    rows: int
    pushed: int = 0
    registered: int = 0
    events: dict[int, list[int]] = field(default_factory=dict)
    """The rows of each event that was received, by its cursor."""
    acknowledged: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)

    def client(self) -> httpx.Client:
        socket = httpx.HTTPTransport(uds=str(self.home / "hub.sock"), verify=False)  # certificates take 30 ms
        return httpx.Client(transport=socket, base_url="http://hub", timeout=PATIENCE_SECONDS)

    def answered(self, method: str, path: str, **request: Any) -> httpx.Response | None:
        """The response to a request, which is repeated while there is none; None at the end."""
        while not self.ended.is_set():
            try:
                with self.client() as client:
                    response = client.request(method, path, **request)
            except httpx.TransportError:
                self.ended.wait(0.01)
                continue
            if response.status_code == 503:
                continue
            if response.status_code != 200:
                self.wrong.append(f"{method} {path}: {response.status_code} {response.text}")
            return response
        return None

    def push(self) -> None:
        for v in range(self.rows):
            content, headers = json.dumps({"v": v}), {"Producer": "loader", "Sequence": str(v)}
            self.answered("POST", "/v1/streams/s/rows", content=content, headers=headers)
            self.pushed = v + 1

    def register(self) -> None:
        for number in range(self.rows // 5):
            queries = {f"above_{number}": f"SELECT v FROM s WHERE v >= {number}"}
            self.answered("POST", "/v1/queries", json={"queries": queries})
            self.registered = number + 1

    def follow(self) -> None:
        while not self.ended.is_set() and sum(map(len, self.events.values())) < self.rows:
            try:
                for cursor, rows in self.received():
                    self.take(cursor, rows)
            except httpx.TransportError:
                self.ended.wait(0.01)

    def received(self) -> Iterator[tuple[int, list[int]]]:
        with self.client() as client, client.stream("GET", "/v1/queries/q/follow?client=me") as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    yield event["cursor"], [row["v"] for row in event["rows"]]
                if sum(map(len, self.events.values())) >= self.rows:
                    return

    def take(self, cursor: int, rows: list[int]) -> None:
        if cursor <= self.acknowledged:
            self.wrong.append(f"{cursor} again, which was acknowledged")
        if self.events.setdefault(cursor, rows) != rows:
            self.wrong.append(f"other rows under the cursor {cursor}")
        if cursor % 3 == 0 and self.answered("POST", f"/v1/queries/q/acknowledge?client=me&cursor={cursor}"):
            self.acknowledged = cursor

    def until(self, is_true: Callable[[], bool]) -> None:
        waited = 0.0
        while not is_true():
            assert not self.wrong, self.wrong
            self.ended.wait(0.005)
            waited += 0.005
            assert waited < PATIENCE_SECONDS, (self.pushed, self.registered, len(self.events))


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.soak)])
def test_kills_of_the_server_lose_nothing_and_repeat_nothing(tmp_path: Path, kills: int) -> None:
    home = tmp_path / "home"
    clients = Clients(home, 40 * (kills + 1))
    with served(home) as hub:
        assert hub.post("/v1/statements", SCRIPT)[0] == 200
    tasks = (clients.push, clients.register, clients.follow)
    threads = [threading.Thread(target=task) for task in tasks]
    try:
        for kill in range(kills):
            with served(home) as hub:
                for thread in threads if not kill else ():
                    thread.start()
                # Not after an answer, but with the next requests under way: at another point each time.
                clients.until(lambda kill=kill: clients.pushed >= 40 * kill + 25)
                hub.process.kill()
                hub.process.wait()
        with served(home) as hub:
            clients.until(lambda: not any(thread.is_alive() for thread in threads))
            assert clients.wrong == []
            assert sorted(v for rows in clients.events.values() for v in rows) == [*range(clients.rows)]
            names = {query["name"] for query in hub.get("/v1/queries?limit=1000")["queries"]}
            assert names == {"q", "total", *(f"above_{number}" for number in range(clients.rows // 5))}
            total = {"n": clients.rows, "sum": sum(range(clients.rows))}
            clients.until(lambda: hub.get("/v1/queries/total/answer")["rows"] == [total])
            last = max(clients.events)
            rows = hub.get(f"/v1/queries/above_{clients.rows // 5 - 1}/results?limit=100000")["rows"]
            assert sorted(row["v"] for row in rows) == [*range(clients.rows // 5 - 1, clients.rows)]
            assert clients.acknowledged <= last
    finally:
        clients.ended.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
