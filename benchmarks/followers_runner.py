"""Followers of a served query in a process of their own: `python -m benchmarks.followers_runner PORT COUNT`.

It prints a line once all are connected, and how many events they got when its standard input ends.
"""

from __future__ import annotations

import selectors
import socket
import sys
import threading

REQUEST = b"GET /v1/queries/top/follow HTTP/1.1\r\nHost: localhost\r\n\r\n"


def main(port: int, count: int) -> None:
    received, ended = 0, threading.Event()
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            follower = socket.create_connection(("127.0.0.1", port))
            follower.sendall(REQUEST)
            while b": following" not in follower.recv(1 << 16):
                pass
            follower.setblocking(False)
            selector.register(follower, selectors.EVENT_READ, follower)
        print("connected", flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        while not ended.is_set():
            for key, _ in selector.select(0.1):
                received += key.data.recv(1 << 20).count(b"event: rows")
    print(received, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
