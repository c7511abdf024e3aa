"""A served hub under load on loopback: registrations, pushes, INVOKE, and followers during epochs.

The hub is `headrace serve` in a process of its own, without a JVM; clients are threads of this one, and followers have a third, so all share
the machine's cores. Pushes of JSON lines and of Arrow carry the same rows, and a push counts when it was answered: its rows are durable then.
Epochs with followers, by events and by WebSocket, and without take turns. INVOKE is asked while ten pushes a second make epochs, and its time
runs from the instant at which it was due. Queries are registered while epochs run.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from statistics import median
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

from benchmarks import folders
from benchmarks.charts import Bar
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

REGISTRATIONS, BATCH = 10_000, 100
FOLLOWERS = 1_000
ASKED, RATE, PUSHES = 2_000, 200, 10
EPOCHS, ROUNDS = 20, 3
ARROW = "application/vnd.apache.arrow.stream"
_STREAM = """CREATE STREAM bids (auction BIGINT, price DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE QUERY top AS SELECT COUNT(*) AS n, MAX(price) AS top FROM bids [RANGE 10 SECONDS SLIDE 1 SECOND];"""


def server(rows: int, rounds: int) -> Report:
    """One run, whatever `rounds` is; as many rows are pushed as `rows` allows, at most a million a format."""
    del rounds
    pushed = min(rows, 1_000_000)
    with _served() as client:
        client.post("/v1/statements", content=_STREAM).raise_for_status()
        json_rate, arrow_rate = _push_rates(client, pushed)
        alone_ms, events_ms, sockets_ms = _followed(client)
        latencies = _asked(client)
        alone, beside = _registered(client)
    p50, p99 = (float(np.quantile(latencies, q)) * 1000 for q in (0.5, 0.99))
    table = [
        _row("pushed as JSON lines, rows a second", json_rate),
        _row("pushed as Arrow, rows a second", arrow_rate),
        _row(f"registrations a second, {BATCH} a request, while epochs run", alone),
        _row("registrations a second, one a request, eight clients", beside),
        _row(f"INVOKE at {RATE} a second, p50 ms", p50),
        _row(f"INVOKE at {RATE} a second, p99 ms", p99),
        _row(f"INVOKE at {RATE} a second, most ms", max(latencies) * 1000),
        _row("push to answer without followers, ms", alone_ms),
        _row(f"push to answer with {FOLLOWERS:,} followers by events, ms", events_ms),
        _row(f"push to answer with {FOLLOWERS:,} followers by WebSocket, ms", sockets_ms),
    ]
    assert __doc__ is not None
    return Report(
        "server",
        "A served hub under load",
        table,
        [
            Ratio("rows a second as JSON lines, in 150,000", json_rate / 150_000, 1),
            Ratio("rows a second as Arrow, in 2 million", arrow_rate / 2e6, 1),
            Ratio("registrations a second, 100 a request, in 500", alone / 500, 1),
            Ratio("registrations a second, one a request, in 500", beside / 500, 1),
            Ratio("p99 of INVOKE, in 15 ms", p99 / 15, 1, at_most=True),
            Ratio(
                "an epoch with 1,000 followers by events to one without",
                events_ms / alone_ms,
                1.1,
                at_most=True,
            ),
            Ratio("the same with followers by WebSocket", sockets_ms / alone_ms, 1.1, at_most=True),
        ],
        [Bar(row["measure"], row["value"], "ours") for row in table],
        "see the names",
        [__doc__.strip()],
    )


def _row(measure: str, value: float) -> dict[str, Any]:
    return {"measure": measure, "value": round(value, 2)}


@contextmanager
def _served() -> Iterator[httpx.Client]:
    home = folders.fresh("server-run") / "home"
    command = [
        sys.executable,
        "-m",
        "headrace.cli.main",
        "serve",
        "--home",
        str(home),
        "--port",
        "0",
        "--no-auth",
    ]
    environment = {**os.environ, "HEADRACE_EXECUTOR": "local"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        with httpx.Client(base_url=url, timeout=300) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


_START = datetime(2024, 1, 1, tzinfo=UTC)
_seconds = 0


def _rows(count: int, per_second: int = 10_000) -> pa.Table:
    """Rows that continue in event time after those made before."""
    global _seconds  # noqa: PLW0603 - the stream's clock
    spans = np.arange(count) * 1_000_000 // per_second
    start = int((_START + timedelta(seconds=_seconds)).timestamp() * 1e6)
    _seconds += count // per_second + 1
    draws = np.random.default_rng(count)
    return pa.table(
        {
            "auction": draws.integers(0, 1000, count),
            "price": np.round(draws.lognormal(4, 1, count), 2),
            "at": pa.array(start + spans, pa.timestamp("us", "UTC")),
        }
    )


def _arrow(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def _lines(table: pa.Table) -> bytes:
    rows = table.set_column(2, "at", table["at"].cast(pa.string())).to_pylist()
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _push_rates(client: httpx.Client, rows: int) -> tuple[float, float]:
    rates = []
    for encode, kind, batch in ((_lines, "application/x-ndjson", 20_000), (_arrow, ARROW, 200_000)):
        bodies = [encode(_rows(min(batch, rows))) for _ in range(max(1, rows // batch))]
        started = time.perf_counter()
        accepted = sum(_push(client, body, kind) for body in bodies)
        rates.append(accepted / (time.perf_counter() - started))
    return rates[0], rates[1]


def _push(client: httpx.Client, body: bytes, kind: str) -> int:
    answer = client.post("/v1/streams/bids/rows", content=body, headers={"Content-Type": kind})
    answer.raise_for_status()
    return int(answer.json()["accepted"])


def _epoch_ms(client: httpx.Client) -> float:
    """Median milliseconds from a push of a second of rows until the answer has them."""
    times = []
    for _ in range(EPOCHS):
        body = _arrow(_rows(2_000, per_second=1_000))
        before = _epoch(client)
        started = time.perf_counter()
        _push(client, body, ARROW)
        while client.get("/v1/queries/top/answer").status_code != 200 or _epoch(client) == before:
            pass
        times.append((time.perf_counter() - started) * 1000)
    return median(times)


def _epoch(client: httpx.Client) -> int:
    return int(client.get("/v1/status").json()["epoch"])


def _followed(client: httpx.Client) -> tuple[float, float, float]:
    """Milliseconds to an answer without followers, with all of them by events, and by WebSocket: medians of rounds in turn."""
    _epoch_ms(client)
    alone, by_events, by_sockets = [], [], []
    for _ in range(ROUNDS):
        alone.append(_epoch_ms(client))
        by_events.append(_beside(client, "events"))
        alone.append(_epoch_ms(client))
        by_sockets.append(_beside(client, "websockets"))
    return median(alone), median(by_events), median(by_sockets)


def _beside(client: httpx.Client, kind: str) -> float:
    port = str(client.base_url.port)
    command = [sys.executable, "-m", "benchmarks.followers_runner", port, str(FOLLOWERS), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as followers:
        assert followers.stdout is not None
        assert followers.stdout.readline() == "connected\n"
        took = _epoch_ms(client)
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

    with _pushing(client), ThreadPoolExecutor(8) as pool:
        begin = time.perf_counter() + 0.5
        return list(pool.map(ask, range(ASKED)))


@contextmanager
def _pushing(client: httpx.Client) -> Iterator[None]:
    """A block in which another client pushes, so that epochs run."""
    ended = threading.Event()

    def push() -> None:
        with httpx.Client(base_url=client.base_url, timeout=60) as pushing:
            while not ended.wait(1 / PUSHES):
                _push(pushing, _arrow(_rows(1_000)), ARROW)

    with ThreadPoolExecutor(1) as pushes:
        pushed = pushes.submit(push)
        try:
            yield
        finally:
            ended.set()
            pushed.result()


def _registered(client: httpx.Client) -> tuple[float, float]:
    """Registrations a second: many in a request, and one in a request from eight clients."""
    select = (
        "SELECT COUNT(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 10 SECONDS] WHERE auction = {} AND price > {}"
    )

    def many(first: int) -> None:
        queries = {f"q{n}": select.format(n, n % 100) for n in range(first, first + BATCH)}
        client.post("/v1/queries", json={"queries": queries}).raise_for_status()

    def one(n: int) -> None:
        client.post("/v1/queries", json={"queries": {f"s{n}": select.format(n, 7)}}).raise_for_status()

    def timed(count: int, registered: Callable[[], object]) -> float:
        started = time.perf_counter()
        registered()
        return count / (time.perf_counter() - started)

    ones = REGISTRATIONS // 10
    with _pushing(client), ThreadPoolExecutor(8) as pool:
        together = timed(REGISTRATIONS, lambda: [many(first) for first in range(0, REGISTRATIONS, BATCH)])
        return together, timed(ones, lambda: list(pool.map(one, range(ones))))
