"""A hub served on loopback by a process of its own, and the bids that are pushed to it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pyarrow as pa

from benchmarks import folders

ARROW = "application/vnd.apache.arrow.stream"
PUSHES = 10
"""Pushes a second while epochs are to run."""


@contextmanager
def served() -> Iterator[httpx.Client]:
    """A client of `headrace serve` with a new home and no JVM; it ends with the block."""
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


def bids(count: int, per_second: int = 10_000) -> pa.Table:
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


def as_arrow(table: pa.Table) -> bytes:
    """An IPC stream."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def push(client: httpx.Client, body: bytes, kind: str) -> int:
    """The rows of the stream `bids` that were accepted, which are durable then."""
    answer = client.post("/v1/streams/bids/rows", content=body, headers={"Content-Type": kind})
    answer.raise_for_status()
    return int(answer.json()["accepted"])


@contextmanager
def pushing(client: httpx.Client) -> Iterator[None]:
    """A block in which another client pushes, so that epochs run."""
    ended = threading.Event()

    def push_on() -> None:
        with httpx.Client(base_url=client.base_url, timeout=60) as another:
            while not ended.wait(1 / PUSHES):
                push(another, as_arrow(bids(1_000)), ARROW)

    with ThreadPoolExecutor(1) as pool:
        pushed = pool.submit(push_on)
        try:
            yield
        finally:
            ended.set()
            pushed.result()
