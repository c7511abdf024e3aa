"""Followers of a served query in a process of their own: `python -m benchmarks.followers_runner PORT COUNT events|websockets`.

It prints a line once all are connected, and how many events they got when its standard input ends.
"""

from __future__ import annotations

import selectors
import socket
import sys
import threading

REQUEST = b"GET /v1/queries/top/follow HTTP/1.1\r\nHost: localhost\r\n"
EVENTS = REQUEST + b"\r\n"
WEBSOCKET = (
    REQUEST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_MANY = b'{"credits": 1000000}'
CREDITS = b"\x81" + bytes([0x80 | len(_MANY)]) + bytes(4) + _MANY
"""A frame of text, masked by zeros."""


def main(port: int, count: int, kind: str) -> None:
    """Connect, and count events until the end of the standard input."""
    is_socket = kind == "websockets"
    request, answer = (WEBSOCKET, b"101 Switching") if is_socket else (EVENTS, b": following")
    mark = b'{"cursor": ' if is_socket else b"event: rows"
    received, ended = 0, threading.Event()
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            follower = socket.create_connection(("127.0.0.1", port))
            follower.sendall(request)
            while answer not in follower.recv(1 << 16):
                pass
            if is_socket:
                follower.sendall(CREDITS)
            follower.setblocking(False)
            selector.register(follower, selectors.EVENT_READ, follower)
        print("connected", flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        while not ended.is_set():
            for key, _ in selector.select(0.1):
                received += key.data.recv(1 << 20).count(mark)
    print(received, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
