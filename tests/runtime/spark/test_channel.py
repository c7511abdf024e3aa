"""Frames over sockets: large ones both ways at once, half ones, and strangers."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from headrace.runtime.spark.standing import channel
from headrace.runtime.spark.standing.channel import Channel, ConnectionLost, Frame, next_frame, transfer


def pair(one: bytes = b"secret", other: bytes = b"secret") -> tuple[Channel, Channel]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        called: list[Channel] = []

        def call() -> None:
            with suppress(ConnectionLost):
                called.append(Channel.connect(listener.getsockname(), other))

        calling = threading.Thread(target=call)
        calling.start()
        try:
            accepted = Channel.accepted(listener.accept()[0], one)
        finally:
            calling.join()
        return accepted, called[0]


def exchange(sender: Channel, frames: list[bytes], awaited: int) -> list[Frame]:
    for number, data in enumerate(frames):
        sender.send(7, number, data)
    received: list[Frame] = []
    while len(received) < awaited or sender.is_sending:
        received += [frame for _, frame in transfer([sender], 20)]
    return received


def test_both_ends_send_more_than_the_system_buffers_and_none_waits_for_the_other() -> None:
    one, other = pair()
    sent = [b"a" * (32 << 20), b"", b"b" * 5]
    received: list[Frame] = []
    thread = threading.Thread(target=lambda: received.extend(exchange(other, sent, 3)))
    thread.start()
    assert exchange(one, sent, 3) == [Frame(7, number, data) for number, data in enumerate(sent)]
    thread.join(30)
    assert received == [Frame(7, number, data) for number, data in enumerate(sent)]


@pytest.mark.parametrize("sent", [5, 24, 30, 124])
def test_a_frame_that_ends_early_is_no_frame(sent: int) -> None:
    one, other = pair()
    whole = channel._HEADER.pack(1, 2, 101) + b"x" * 101
    other._socket.sendall(whole[:sent])
    other.close()
    with pytest.raises(ConnectionLost, match="closed the connection"):
        next_frame(one, 20)


def test_beats_are_heard_and_are_no_frames() -> None:
    one, other = pair()
    before = one.heard
    other.beat()
    while one.heard == before:
        assert transfer([one], 20) == []
    other.send(1, 2, b"data")
    assert next_frame(one, 20) == Frame(1, 2, b"data")


def test_a_beat_does_not_cut_a_frame_in_two() -> None:
    one, other = pair()
    data = b"x" * (16 << 20)
    other.send(1, 2, data)
    assert other.is_sending
    queued = len(other._outgoing)
    other.beat()
    assert len(other._outgoing) == queued
    sending = threading.Thread(target=lambda: channel.finish_sending([other]))
    sending.start()
    assert next_frame(one, 20) == Frame(1, 2, data)
    sending.join()


@pytest.mark.parametrize(("one", "other"), [(b"secret", b"another"), (b"", b"x")])
def test_ends_that_do_not_know_the_same_secret_do_not_meet(one: bytes, other: bytes) -> None:
    with pytest.raises(ConnectionLost, match=r"does not know the secret|closed"):
        pair(one, other)


def test_a_proof_that_is_sent_back_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mirror = socket.create_connection(listener.getsockname())

        def reflect() -> None:
            with suppress(OSError):
                while part := mirror.recv(64):
                    mirror.sendall(part)

        thread = threading.Thread(target=reflect)
        thread.start()
        with pytest.raises(ConnectionLost, match="does not know the secret"):
            Channel.accepted(listener.accept()[0], b"secret")
        thread.join(20)
        mirror.close()


def test_a_connection_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_HANDSHAKE_SECONDS", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        pytest.raises(TimeoutError),
    ):
        Channel.accepted(listener.accept()[0], b"secret")


def test_no_frame_in_time_is_a_lost_connection() -> None:
    one, other = pair()
    with pytest.raises(ConnectionLost, match=r"in 0.1 seconds"):
        next_frame(one, 0.1)
    other.close()
