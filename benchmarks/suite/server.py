"""A served hub under load on loopback: registrations, pushes, INVOKE, and followers during epochs.

The hub is `headrace serve` in a process of its own, without a JVM; clients are threads of this one, and followers have a third, so all share
the machine's cores. Pushes of JSON lines and of Arrow carry the same rows, and a push counts when it was answered: its rows are durable then.
Epochs with followers, by events and by WebSocket, and without take turns; the time of an epoch is the hub's own measurement. INVOKE is asked
while ten pushes a second make epochs, and its time runs from the instant at which it was due. Ten thousand queries are registered while epochs
run, each durable when it is answered: in one hub a hundred a request, in another one a request over sixteen connections.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from statistics import median
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

from benchmarks.charts import Bar
from benchmarks.report import Report
from benchmarks.served_hub import ARROW, as_arrow, bids, push, pushing, served
from benchmarks.thresholds import Ratio

REGISTRATIONS, BATCH = 10_000, 100
FOLLOWERS = 1_000
ASKED, RATE = 2_000, 200
CONNECTIONS = 16
EPOCHS, ROUNDS = 20, 5
_STREAM = """CREATE STREAM bids (auction BIGINT, price DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE QUERY top AS SELECT COUNT(*) AS n, MAX(price) AS top FROM bids [RANGE 10 SECONDS SLIDE 1 SECOND];"""


def server(rows: int, rounds: int) -> Report:
    """One run, whatever `rounds` is; as many rows are pushed as `rows` allows, at most a million a format."""
    del rounds
    pushed = min(rows, 1_000_000)
    with served() as client:
        client.post("/v1/statements", content=_STREAM).raise_for_status()
        json_rate, arrow_rate = _push_rates(client, pushed)
        alone, by_events, by_sockets = _followed(client)
        latencies = _asked(client)
        together = _registered(client, _many_a_request)
    with served() as client:
        client.post("/v1/statements", content=_STREAM).raise_for_status()
        _push_rates(client, pushed // 10)
        single = _registered(client, _one_a_request)
    p50, p99 = (float(np.quantile(latencies, q)) * 1000 for q in (0.5, 0.99))
    table = [
        _row("pushed as JSON lines, rows a second", json_rate),
        _row("pushed as Arrow, rows a second", arrow_rate),
        _row(f"registrations a second, {BATCH} a request, while epochs run", together),
        _row(f"registrations a second, one a request, {CONNECTIONS} connections", single),
        _row(f"INVOKE at {RATE} a second, p50 ms", p50),
        _row(f"INVOKE at {RATE} a second, p99 ms", p99),
        _row(f"INVOKE at {RATE} a second, most ms", max(latencies) * 1000),
        _row("an epoch without followers, ms", alone.epoch),
        _row(f"an epoch with {FOLLOWERS:,} followers by events, ms", by_events.epoch),
        _row(f"an epoch with {FOLLOWERS:,} followers by WebSocket, ms", by_sockets.epoch),
        _row("push to answer without followers, ms", alone.answer),
        _row(f"push to answer with {FOLLOWERS:,} followers by events, ms", by_events.answer),
        _row(f"push to answer with {FOLLOWERS:,} followers by WebSocket, ms", by_sockets.answer),
    ]
    assert __doc__ is not None
    return Report(
        "server",
        "A served hub under load",
        table,
        [
            Ratio("rows a second as JSON lines, in 150,000", json_rate / 150_000, 1),
            Ratio("rows a second as Arrow, in 2 million", arrow_rate / 2e6, 1),
            Ratio("registrations a second, 100 a request, in 500", together / 500, 1),
            Ratio("registrations a second, one a request, in 500", single / 500, 1),
            Ratio("p99 of INVOKE, in 15 ms", p99 / 15, 1, at_most=True),
            *(
                Ratio(f"{what} with 1,000 followers {kind} to one without", slower / quick, 1.1, at_most=True)
                for kind, followed in (("by events", by_events), ("by WebSocket", by_sockets))
                for what, slower, quick in (
                    ("an epoch", followed.epoch, alone.epoch),
                    ("push to answer", followed.answer, alone.answer),
                )
            ),
        ],
        [Bar(row["measure"], row["value"], "ours") for row in table],
        "see the names",
        [__doc__.strip()],
    )


def _row(measure: str, value: float) -> dict[str, Any]:
    return {"measure": measure, "value": round(value, 2)}


def _lines(table: pa.Table) -> bytes:
    rows = table.set_column(2, "at", table["at"].cast(pa.string())).to_pylist()
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _push_rates(client: httpx.Client, rows: int) -> tuple[float, float]:
    rates = []
    for encode, kind, batch in ((_lines, "application/x-ndjson", 20_000), (as_arrow, ARROW, 200_000)):
        bodies = [encode(bids(min(batch, rows))) for _ in range(max(1, rows // batch))]
        started = time.perf_counter()
        accepted = sum(push(client, body, kind) for body in bodies)
        rates.append(accepted / (time.perf_counter() - started))
    return rates[0], rates[1]


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds: of an epoch, and from its push to its answer."""

    epoch: float
    answer: float

    @staticmethod
    def median(times: Sequence[Times]) -> Times:
        return Times(median(each.epoch for each in times), median(each.answer for each in times))


def _epoch_times(client: httpx.Client) -> Times:
    """Medians of epochs of a second of rows, each pushed when the answer has those before."""
    first, answers = _epoch(client), []
    for _ in range(EPOCHS):
        body = as_arrow(bids(2_000, per_second=1_000))
        before = _epoch(client)
        started = time.perf_counter()
        push(client, body, ARROW)
        while client.get("/v1/queries/top/answer").status_code != 200 or _epoch(client) == before:
            pass
        answers.append((time.perf_counter() - started) * 1000)
    seen = client.get("/v1/epochs", params={"after": first, "limit": 1000}).json()["epochs"]
    epochs = [sum(facts["seconds"][stage] for stage in ("execute", "publish")) * 1000 for facts in seen]
    return Times(median(epochs), median(answers))


def _epoch(client: httpx.Client) -> int:
    return int(client.get("/v1/status").json()["epoch"])


def _followed(client: httpx.Client) -> tuple[Times, Times, Times]:
    """Without followers, with all of them by events, and by WebSocket: medians of rounds in turn."""
    _epoch_times(client)
    alone, by_events, by_sockets = [], [], []
    for _ in range(ROUNDS):
        alone.append(_epoch_times(client))
        by_events.append(_among_followers(client, "events"))
        alone.append(_epoch_times(client))
        by_sockets.append(_among_followers(client, "websockets"))
    return Times.median(alone), Times.median(by_events), Times.median(by_sockets)


def _among_followers(client: httpx.Client, kind: str) -> Times:
    port = str(client.base_url.port)
    command = [sys.executable, "-m", "benchmarks.followers_runner", port, str(FOLLOWERS), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as followers:
        assert followers.stdout is not None
        assert followers.stdout.readline() == "connected\n"
        took = _epoch_times(client)
        received = int(followers.communicate("")[0])
    assert received >= FOLLOWERS * EPOCHS // 2, f"{received:,} events for {FOLLOWERS:,} followers"
    return took


def _asked(client: httpx.Client) -> list[float]:
    """Seconds of INVOKE over HTTP at a steady rate while epochs run, from the instant at which each was due."""
    connections = threading.local()
    host, port = client.base_url.host, client.base_url.port

    def ask(number: int) -> float:
        due = begin + number / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        if not hasattr(connections, "http"):
            connections.http = HTTPConnection(host, port, timeout=60)
        connections.http.request("GET", "/v1/queries/top/answer")
        response = connections.http.getresponse()
        response.read()
        assert response.status == 200
        return time.perf_counter() - due

    with pushing(client), ThreadPoolExecutor(8) as pool:
        begin = time.perf_counter() + 0.5
        return list(pool.map(ask, range(ASKED)))


_SELECT = "SELECT COUNT(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 10 SECONDS] WHERE auction = {} AND price > {}"


def _registered(client: httpx.Client, register: Callable[[httpx.Client], None]) -> float:
    """Registrations a second while epochs run."""
    with pushing(client):
        started = time.perf_counter()
        register(client)
        return REGISTRATIONS / (time.perf_counter() - started)


def _many_a_request(client: httpx.Client) -> None:
    for first in range(0, REGISTRATIONS, BATCH):
        queries = {f"q{n}": _SELECT.format(n, n % 100) for n in range(first, first + BATCH)}
        client.post("/v1/queries", json={"queries": queries}).raise_for_status()


def _one_a_request(client: httpx.Client) -> None:
    def some(first: int) -> None:
        connection = HTTPConnection(client.base_url.host, client.base_url.port, timeout=300)
        for n in range(first, REGISTRATIONS, CONNECTIONS):
            body = json.dumps({"queries": {f"q{n}": _SELECT.format(n, n % 100)}})
            connection.request("POST", "/v1/queries", body)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            response.read()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(some, range(CONNECTIONS)))
