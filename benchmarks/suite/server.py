"""A served hub under load on loopback: registrations, pushes, INVOKE, and followers during epochs.

The hub is `headrace serve` in a process of its own, without a JVM; clients are threads of this one, and followers have a third, so all share
the machine's cores. Pushes of JSON lines and of Arrow carry the same rows, and a push counts when it was answered: its rows are durable then.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
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
ASKED, RATE = 1_000, 200
EPOCHS = 40
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
        before, with_followers = _followed(client)
        latencies = _asked(str(client.base_url))
        alone, beside = _registered(client)
    p50, p99 = (float(np.quantile(latencies, q)) * 1000 for q in (0.5, 0.99))
    table = [
        _row("pushed as JSON lines, rows a second", json_rate),
        _row("pushed as Arrow, rows a second", arrow_rate),
        _row(f"registrations a second, {BATCH} a request, while epochs run", alone),
        _row("registrations a second, one a request, eight clients", beside),
        _row(f"INVOKE at {RATE} a second, p50 ms", p50),
        _row(f"INVOKE at {RATE} a second, p99 ms", p99),
        _row("push to answer without followers, ms", before),
        _row(f"push to answer with {FOLLOWERS:,} followers, ms", with_followers),
    ]
    assert __doc__ is not None
    return Report(
        "server",
        "A served hub under load",
        table,
        [
            Ratio("rows a second as JSON lines, in 150,000", json_rate / 150_000, 1),
            Ratio("rows a second as Arrow, in 2 million", arrow_rate / 2e6, 1),
            Ratio("registrations a second, in 500", alone / 500, 1),
            Ratio("p99 of INVOKE, in 15 ms", p99 / 15, 1, at_most=True),
            Ratio("an epoch with 1,000 followers to one without", with_followers / before, 1.1, at_most=True),
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
        before = client.get("/v1/status").json()["epoch"]
        started = time.perf_counter()
        _push(client, body, ARROW)
        while client.get("/v1/queries/top/answer").status_code != 200 or _epoch(client) == before:
            pass
        times.append((time.perf_counter() - started) * 1000)
    return median(times)


def _epoch(client: httpx.Client) -> int:
    return int(client.get("/v1/status").json()["epoch"])


def _followed(client: httpx.Client) -> tuple[float, float]:
    """Milliseconds to an answer without followers, and with all of them connected."""
    alone = _epoch_ms(client)
    command = [sys.executable, "-m", "benchmarks.followers_runner", str(client.base_url.port), str(FOLLOWERS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as followers:
        assert followers.stdout is not None
        assert followers.stdout.readline() == "connected\n"
        beside = _epoch_ms(client)
        received = int(followers.communicate("")[0])
    assert received >= FOLLOWERS, f"{received:,} events for {FOLLOWERS:,} followers"
    return alone, beside


def _asked(url: str) -> list[float]:
    """Seconds of INVOKE over HTTP at a steady rate, from the instant at which each was due."""
    with httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(8) as pool:
        begin = time.perf_counter() + 0.1

        def ask(number: int) -> float:
            due = begin + number / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            client.get("/v1/queries/top/answer").raise_for_status()
            return time.perf_counter() - due

        return list(pool.map(ask, range(ASKED)))


def _registered(client: httpx.Client) -> tuple[float, float]:
    """Registrations a second: many in a request, and one in a request from eight clients."""
    select = (
        "SELECT COUNT(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 10 SECONDS] WHERE auction = {} AND price > {}"
    )

    def many(first: int) -> None:
        queries = {f"q{n}": select.format(n, n % 100) for n in range(first, first + BATCH)}
        client.post("/v1/queries", json={"queries": queries}).raise_for_status()

    started = time.perf_counter()
    for first in range(0, REGISTRATIONS, BATCH):
        many(first)
    together = REGISTRATIONS / (time.perf_counter() - started)

    def one(n: int) -> None:
        client.post("/v1/queries", json={"queries": {f"s{n}": select.format(n, 7)}}).raise_for_status()

    started = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(REGISTRATIONS // 100)))
    return together, REGISTRATIONS / 100 / (time.perf_counter() - started)
