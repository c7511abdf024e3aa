"""`headrace fetch` into a pipe: what its reader has not taken is not acknowledged."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.fetch import fetch_to, is_taken, wait_until_taken
from headrace.cli.screen import Screen
from headrace.cli.status_line import LiveLine
from headrace.runtime.delivery.client import Client, connect
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub

EPOCHS = 3


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """A client of three epochs of one row each."""
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (a INT) USING push; CREATE QUERY q AS SELECT a FROM s")
        for number in range(EPOCHS):
            hub.push("s", [{"a": number}])
            hub.catch_up()
    return connect(tmp_path / "home", "q", "phone")


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    reading, writing = os.pipe()
    out = os.fdopen(writing, "w")
    yield reading, out
    with contextlib.suppress(BrokenPipeError):
        out.close()


def screen(out: io.TextIOWrapper) -> Screen:
    return Screen(out, LiveLine(io.StringIO(), quiet=True), "csv")


def test_rows_that_nobody_took_from_a_pipe_are_not_acknowledged(
    client: Client, pipe: tuple[int, io.TextIOWrapper]
) -> None:
    """The reader goes after the first line, as `head -1` does: the pipe's buffer would have held all of it."""
    reading, out = pipe

    def read_a_line() -> None:
        os.read(reading, 2)
        os.close(reading)

    reader = threading.Thread(target=read_a_line)
    reader.start()
    with pytest.raises(BrokenPipeError):
        fetch_to(screen(out), client)
    reader.join()
    assert [row for delivery in client.pending() for row in delivery.rows.column("a").to_pylist()] == [
        0,
        1,
        2,
    ]


def test_rows_that_a_reader_took_are_acknowledged(client: Client, pipe: tuple[int, io.TextIOWrapper]) -> None:
    reading, out = pipe
    chunks: list[bytes] = []

    def read_all() -> None:
        while chunk := os.read(reading, 1):
            chunks.append(chunk)

    reader = threading.Thread(target=read_all)
    reader.start()
    assert fetch_to(screen(out), client) == EPOCHS
    out.close()
    reader.join()
    os.close(reading)
    assert b"".join(chunks) == b"a\n0\n1\n2\n"
    assert client.fetch() is None


def test_what_is_no_pipe_is_taken_when_it_is_written(client: Client, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        assert is_taken(out)
        wait_until_taken(out)
        assert fetch_to(screen(out), client) == EPOCHS
    assert is_taken(io.StringIO())
    assert client.fetch() is None
