"""Followers that are written to together: who joins, who reads by itself, and that each event is written once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.server.connections import event_streams
from headrace.server.connections.event_streams import EventStream, EventStreams, _Follower
from headrace.server.connections.http_protocol import TRANSPORT
from headrace.server.following import Batch, Event, Publications
from headrace.server.problems import Refused
from headrace.server.security.principal import LOCAL, Principal


@dataclass
class Connection:
    """A connection that takes all, or holds what it is given."""

    written: list[bytes] = field(default_factory=list)
    unsent: int = 0
    is_lost: bool = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.is_lost

    def abort(self) -> None:
        self.is_lost = True


@dataclass
class Results:
    """The feed of a query that commits a number in each epoch; `readings` are the positions it was read from."""

    principal: Principal = LOCAL
    committed: list[int] = field(default_factory=list)
    readings: list[int] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    query: str = "q"
    form: str = "json"

    @property
    def permissions(self) -> Any:
        return SimpleNamespace(principal=self.principal)

    @property
    def access(self) -> Any:
        return SimpleNamespace(lasting=lambda _: self)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def require_permitted(self) -> None:
        if self.principal.token in self.refused:
            raise Refused(403, "the token was revoked")

    def read(self, position: int) -> Batch:
        self.readings.append(position)
        events = [Event(n, str(n)) for n in self.committed if n > position]
        return Batch(events, max([position, *self.committed]), is_all=True)


class Server:
    """An application's followers without a network."""

    def __init__(self) -> None:
        self.publications = Publications()
        self.streams = EventStreams(self.publications)
        self.tasks: list[asyncio.Task[None]] = []
        self.gone: list[asyncio.Event] = []

    def follow(self, feed: Results, connection: Connection, position: int = 0, version: str = "1.1") -> None:
        gone = asyncio.Event()

        async def receive() -> dict[str, str]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            while connection.unsent and not connection.is_lost:
                await asyncio.sleep(0.001)
            if body := message.get("body"):
                connection.write(b"%x\r\n%b\r\n" % (len(body), body) if version == "1.1" else body)

        stream = EventStream(feed, position, self.streams)  # type: ignore[arg-type]
        scope = {TRANSPORT: connection, "http_version": version}
        self.tasks.append(asyncio.ensure_future(stream(scope, receive, send)))  # type: ignore[arg-type]
        self.gone.append(gone)

    async def epoch(self, feed: Results, number: int) -> None:
        feed.committed.append(number)
        self.publications.wake()
        await quiet()

    async def end(self) -> None:
        self.publications.ended = True
        self.publications.wake()
        await asyncio.wait_for(asyncio.gather(*self.tasks), 10)


async def quiet() -> None:
    """Let everything happen that is due: readings are in threads."""
    for _ in range(20):
        await asyncio.sleep(0.002)


def cursors(connection: Connection) -> list[int]:
    stream = b"".join(connection.written).decode()
    return [int(line.removeprefix("id: ")) for line in stream.splitlines() if line.startswith("id: ")]


def test_followers_that_are_up_to_date_are_written_to_by_one_reading_and_the_same_bytes() -> None:
    async def run() -> None:
        server, feed = Server(), Results()
        connections = [Connection() for _ in range(20)]
        for connection in connections:
            server.follow(feed, connection)
        await quiet()
        feed.readings.clear()
        for number in range(1, 4):
            await server.epoch(feed, number)
        assert feed.readings == [0, 1, 2]
        assert {tuple(cursors(connection)) for connection in connections} == {(1, 2, 3)}
        assert len({id(connection.written[-1]) for connection in connections}) == 1
        await server.end()
        assert not server.streams._groups

    asyncio.run(run())


def test_who_comes_with_another_position_gets_each_event_once() -> None:
    async def run() -> None:
        server, feed = Server(), Results(committed=[1, 2, 3])
        old, new = Connection(), Connection()
        server.follow(feed, old)
        await quiet()
        server.follow(feed, new, position=2)
        await quiet()
        ahead = Connection()
        feed.committed.append(4)  # the others have not been woken yet
        server.follow(feed, ahead, position=3)
        await quiet()
        assert (cursors(old), cursors(ahead)) == ([1, 2, 3], [4])
        await server.epoch(feed, 5)
        assert (cursors(old), cursors(new), cursors(ahead)) == ([1, 2, 3, 4, 5], [3, 4, 5], [4, 5])
        await server.end()

    asyncio.run(run())


def test_a_follower_that_has_read_less_than_the_others_reads_on_by_itself() -> None:
    async def run() -> None:
        server, feed = Server(), Results(committed=[1])
        prompt, behind = Connection(), Connection()
        server.follow(feed, prompt)
        await quiet()
        plain = feed.read

        def slowly(position: int) -> Batch:
            """An epoch is committed, and written to the others, while the new one is reading."""
            batch = plain(position)
            if position == 0:
                feed.committed.append(2)
                loop.call_soon_threadsafe(server.publications.wake)
                while 2 not in cursors(prompt):
                    pass
            return batch

        loop = asyncio.get_running_loop()
        feed.read = slowly  # type: ignore[method-assign]
        server.follow(feed, behind)
        await quiet()
        await server.epoch(feed, 3)
        assert cursors(prompt) == cursors(behind) == [1, 2, 3]
        await server.end()

    asyncio.run(run())


def test_who_joins_while_the_others_are_written_to_reads_by_itself() -> None:
    async def run() -> None:
        server, feed, joined = Server(), Results(committed=[1]), list[bool]()

        class Watched(Connection):
            def write(self, data: bytes) -> None:
                super().write(data)
                if b"id: 2" in data:
                    late = _Follower(feed, Connection(), True, 1)  # type: ignore[arg-type]
                    joined.append(server.streams.join(late))

        connections = [Watched() for _ in range(40)]
        for connection in connections:
            server.follow(feed, connection)
        await quiet()
        await server.epoch(feed, 2)
        assert joined == [False] * 40
        assert {tuple(cursors(connection)) for connection in connections} == {(1, 2)}
        await server.end()

    asyncio.run(run())


def test_a_connection_that_holds_what_it_was_given_reads_by_itself_and_comes_back() -> None:
    async def run() -> None:
        server, feed = Server(), Results()
        slow, prompt = Connection(), Connection()
        for connection in (slow, prompt):
            server.follow(feed, connection)
        await quiet()
        await server.epoch(feed, 1)
        slow.unsent = 1 << 20
        for number in (2, 3):
            await server.epoch(feed, number)
        assert (cursors(slow), cursors(prompt)) == ([1], [1, 2, 3])
        slow.unsent = 0
        await quiet()
        assert cursors(slow) == [1, 2, 3]
        feed.readings.clear()
        await server.epoch(feed, 4)
        assert feed.readings == [3]
        assert cursors(slow) == cursors(prompt) == [1, 2, 3, 4]
        await server.end()

    asyncio.run(run())


def test_a_connection_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "STALLED_SECONDS", 0.02)

    async def run() -> None:
        server, feed = Server(), Results()
        stuck, prompt = Connection(), Connection()
        for connection in (stuck, prompt):
            server.follow(feed, connection)
        await quiet()
        stuck.unsent = 1 << 20
        await server.epoch(feed, 1)
        await asyncio.wait_for(server.tasks[0], 10)
        assert stuck.is_lost
        await server.epoch(feed, 2)
        assert (cursors(stuck), cursors(prompt)) == ([], [1, 2])
        await server.end()

    asyncio.run(run())


def test_a_follower_without_permission_ends_alone_and_one_that_left_holds_nothing() -> None:
    async def run() -> None:
        server, feed = Server(), Results(Principal("ana", "read", "a"))
        other = Results(Principal("ben", "read", "b"), feed.committed, feed.readings, feed.refused)
        ended, kept, left = Connection(), Connection(), Connection()
        server.follow(feed, ended)
        server.follow(other, kept)
        server.follow(other, left)
        await quiet()
        feed.refused.add("a")
        server.gone[2].set()
        left.is_lost = True
        await server.epoch(feed, 1)
        assert b"the token was revoked" in b"".join(ended.written)
        assert (cursors(ended), cursors(kept), cursors(left)) == ([], [1], [])
        assert [task.done() for task in server.tasks] == [True, False, True]
        server.gone[1].set()
        kept.is_lost = True
        await server.epoch(feed, 2)
        assert not server.streams._groups
        await server.end()

    asyncio.run(run())


def test_a_comment_shows_a_lost_connection_and_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "KEEP_ALIVE_SECONDS", 0.01)

    async def run() -> None:
        server, feed = Server(), Results()
        new, old = Connection(), Connection()
        server.follow(feed, new)
        server.follow(feed, old, version="1.0")
        await quiet()
        assert b"b\r\n: waiting\n\n\r\n" in new.written
        assert b": waiting\n\n" in old.written
        await server.epoch(feed, 1)
        assert cursors(new) == cursors(old) == [1]
        await server.end()

    asyncio.run(run())
