"""Followers that are written to together, event streams and WebSockets: who joins, who reads by itself, and that each event is
written once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from headrace.server.connections import follower_groups
from headrace.server.connections.event_streams import EventStream
from headrace.server.connections.follower_groups import MOST_CREDITS, Credits, Follower, FollowerGroups
from headrace.server.connections.http_protocol import TRANSPORT
from headrace.server.connections.web_sockets import FRAMES
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
        self.groups = FollowerGroups(self.publications)
        self.tasks: list[asyncio.Task[None]] = []
        self.gone: list[asyncio.Event] = []

    def follow(self, feed: Results, connection: Connection, position: int = 0, version: str = "1.1") -> None:
        gone = asyncio.Event()

        async def receive() -> dict[str, str]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            while connection.unsent and not connection.is_lost:
                await asyncio.sleep(0)
            if body := message.get("body"):
                connection.write(b"%x\r\n%b\r\n" % (len(body), body) if version == "1.1" else body)

        stream = EventStream(feed, position, self.groups)  # type: ignore[arg-type]
        scope = {TRANSPORT: connection, "http_version": version}
        self.tasks.append(asyncio.ensure_future(stream(scope, receive, send)))  # type: ignore[arg-type]
        self.gone.append(gone)

    def follow_by_socket(
        self, feed: Results, connection: Connection, credits_: Credits, position: int = 0
    ) -> None:
        """A WebSocket: its handler pays for what it sends by itself."""

        async def send(event: Event) -> None:
            while not credits_.take(1):
                await credits_.some()
            connection.write(FRAMES.frame([event]))

        follower = Follower(feed, connection, FRAMES, position, credits_)  # type: ignore[arg-type]
        self.tasks.append(asyncio.ensure_future(follower.follow(self.groups, send)))

    async def epoch(self, feed: Results, number: int) -> None:
        feed.committed.append(number)
        self.publications.wake()
        await self.quiet()

    async def quiet(self) -> None:
        """Let everything happen that is due: readings are in threads, and what follows them in this one."""
        turns = 0
        while turns < 50:
            turns = 0 if self.publications._readings else turns + 1
            await asyncio.sleep(0)

    async def end(self) -> None:
        self.publications.ended = True
        self.publications.wake()
        await asyncio.wait_for(asyncio.gather(*self.tasks), 10)


def received(connection: Connection) -> list[int]:
    """The events of a WebSocket, as a client that knows the protocol reads them."""
    client = ClientProtocol(parse_uri("ws://localhost"), state=State.OPEN)
    client.receive_data(b"".join(connection.written))
    frames = client.events_received()
    assert all(isinstance(frame, Frame) and frame.opcode is Opcode.TEXT and frame.fin for frame in frames)
    return [int(frame.data) for frame in frames if isinstance(frame, Frame)]


def cursors(connection: Connection) -> list[int]:
    stream = b"".join(connection.written).decode()
    return [int(line.removeprefix("id: ")) for line in stream.splitlines() if line.startswith("id: ")]


def test_followers_that_are_up_to_date_are_written_to_by_one_reading_and_the_same_bytes() -> None:
    async def run() -> None:
        server, feed = Server(), Results()
        connections = [Connection() for _ in range(20)]
        for connection in connections:
            server.follow(feed, connection)
        await server.quiet()
        feed.readings.clear()
        for number in range(1, 4):
            await server.epoch(feed, number)
        assert feed.readings == [0, 1, 2]
        assert {tuple(cursors(connection)) for connection in connections} == {(1, 2, 3)}
        assert len({id(connection.written[-1]) for connection in connections}) == 1
        await server.end()
        assert not server.groups._groups

    asyncio.run(run())


def test_who_comes_with_another_position_gets_each_event_once() -> None:
    async def run() -> None:
        server, feed = Server(), Results(committed=[1, 2, 3])
        old, new = Connection(), Connection()
        server.follow(feed, old)
        await server.quiet()
        server.follow(feed, new, position=2)
        await server.quiet()
        ahead = Connection()
        feed.committed.append(4)  # the others have not been woken yet
        server.follow(feed, ahead, position=3)
        await server.quiet()
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
        await server.quiet()
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
        await server.quiet()
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
                    late = Follower(feed, Connection(), FRAMES, 1)  # type: ignore[arg-type]
                    joined.append(server.groups.join(late))

        connections = [Watched() for _ in range(40)]
        for connection in connections:
            server.follow(feed, connection)
        await server.quiet()
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
        await server.quiet()
        await server.epoch(feed, 1)
        slow.unsent = 1 << 20
        for number in (2, 3):
            await server.epoch(feed, number)
        assert (cursors(slow), cursors(prompt)) == ([1], [1, 2, 3])
        slow.unsent = 0
        await server.quiet()
        assert cursors(slow) == [1, 2, 3]
        feed.readings.clear()
        await server.epoch(feed, 4)
        assert feed.readings == [3]
        assert cursors(slow) == cursors(prompt) == [1, 2, 3, 4]
        await server.end()

    asyncio.run(run())


def test_a_connection_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_groups, "STALLED_SECONDS", 0.02)

    async def run() -> None:
        server, feed = Server(), Results()
        stuck, prompt = Connection(), Connection()
        for connection in (stuck, prompt):
            server.follow(feed, connection)
        await server.quiet()
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
        await server.quiet()
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
        assert not server.groups._groups
        await server.end()

    asyncio.run(run())


def test_a_comment_shows_a_lost_connection_and_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_groups, "KEEP_ALIVE_SECONDS", 0.01)

    async def run() -> None:
        server, feed = Server(), Results()
        new, old = Connection(), Connection()
        server.follow(feed, new)
        server.follow(feed, old, version="1.0")
        while b"b\r\n: waiting\n\n\r\n" not in new.written or b": waiting\n\n" not in old.written:
            await asyncio.sleep(0.001)
        await server.epoch(feed, 1)
        assert cursors(new) == cursors(old) == [1]
        await server.end()

    asyncio.run(run())


# -- WebSockets ------------------------------------------------------------------------------------------------------


def test_websockets_with_credits_are_written_to_by_one_reading_and_the_same_bytes() -> None:
    async def run() -> None:
        server, feed = Server(), Results()
        connections, credits_ = [Connection() for _ in range(20)], [Credits(10) for _ in range(20)]
        for connection, credit in zip(connections, credits_, strict=True):
            server.follow_by_socket(feed, connection, credit)
        stream = Connection()
        server.follow(feed, stream)
        await server.quiet()
        feed.readings.clear()
        for number in range(1, 4):
            await server.epoch(feed, number)
        assert feed.readings == [0, 1, 2]
        assert {tuple(received(connection)) for connection in connections} == {(1, 2, 3)}
        assert len({id(connection.written[-1]) for connection in connections}) == 1
        assert {credit.left for credit in credits_} == {7}
        assert cursors(stream) == [1, 2, 3]
        await server.end()

    asyncio.run(run())


def test_a_websocket_without_credits_gets_each_event_once_as_it_gives_some() -> None:
    async def run() -> None:
        server, feed = Server(), Results()
        poor, rich, credits_ = Connection(), Connection(), Credits(1)
        server.follow_by_socket(feed, poor, credits_)
        server.follow_by_socket(feed, rich, Credits(100))
        await server.quiet()
        for number in range(1, 5):
            await server.epoch(feed, number)
        assert (received(poor), received(rich)) == ([1], [1, 2, 3, 4])
        credits_.give(2)
        await server.quiet()
        assert (received(poor), credits_.left) == ([1, 2, 3], 0)
        credits_.give(10)
        await server.quiet()
        assert (received(poor), credits_.left) == ([1, 2, 3, 4], 9)
        feed.readings.clear()
        await server.epoch(feed, 5)
        assert feed.readings == [4]
        assert (received(poor), received(rich), credits_.left) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 8)
        await server.end()

    asyncio.run(run())


def test_a_websocket_pays_for_all_events_of_a_batch_or_reads_them_by_itself() -> None:
    async def run() -> None:
        server, feed = Server(), Results()
        some, all_ = Connection(), Connection()
        credits_ = Credits(2)
        server.follow_by_socket(feed, some, credits_)
        server.follow_by_socket(feed, all_, Credits(3))
        await server.quiet()
        feed.committed += [1, 2]
        await server.epoch(feed, 3)
        assert (received(some), credits_.left) == ([1, 2], 0)
        assert received(all_) == [1, 2, 3]
        credits_.give(1)
        await server.end()
        assert received(some) == [1, 2, 3]

    asyncio.run(run())


def test_one_that_has_read_as_far_as_the_others_are_written_to_gets_nothing_twice() -> None:
    async def run() -> None:
        server, feed = Server(), Results()
        old, new, stream, credits_ = Connection(), Connection(), Connection(), Credits(5)
        server.follow_by_socket(feed, old, Credits(5))
        await server.quiet()
        feed.committed.append(1)  # the others have not been woken yet
        server.follow_by_socket(feed, new, credits_)
        server.follow(feed, stream)
        await server.quiet()
        server.publications.wake()  # the others read the first event, which the two have
        await server.quiet()
        await server.epoch(feed, 2)
        assert received(old) == received(new) == cursors(stream) == [1, 2]
        assert credits_.left == 3
        await server.end()
        assert b"0\r\n\r\n" not in b"".join(stream.written)  # an empty chunk would end the response

    asyncio.run(run())


def test_no_comment_is_written_to_a_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_groups, "KEEP_ALIVE_SECONDS", 0.01)

    async def run() -> None:
        server, feed = Server(), Results()
        connection, stream = Connection(), Connection()
        server.follow_by_socket(feed, connection, Credits(5))
        server.follow(feed, stream)
        while b": waiting" not in b"".join(stream.written):
            await asyncio.sleep(0.001)
        assert connection.written == []
        await server.end()

    asyncio.run(run())


def test_credits_are_bounded_and_never_less_than_none() -> None:
    credits_ = Credits()
    credits_.give(-5)
    assert (credits_.left, credits_.take(1)) == (0, False)
    credits_.give(10**30)
    credits_.give(10**30)
    assert credits_.left == MOST_CREDITS
    assert not credits_.take(MOST_CREDITS + 1)
    assert credits_.take(MOST_CREDITS)
    assert credits_.left == 0
