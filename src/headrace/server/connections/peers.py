"""Peers of TCP connections: how many there may be, with files left for the epochs, and the search for those that are gone."""

from __future__ import annotations

import resource
import socket
from typing import Any, Final

_RESERVED_FILES: Final = 512
"""Open files of the process that connections leave to the epochs, if there are twice as many."""
_IDLE_SECONDS: Final = 60
"""Without data, after which the peer's machine is asked whether it still has the connection."""
_UNTAKEN_SECONDS: Final = 120
"""After which a connection ends whose peer takes nothing of what was sent."""


def most_connections() -> int:
    """How many connections there may be: open files of this process, less those of its epochs."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return files - min(_RESERVED_FILES, files // 2)


def allow_open_files() -> None:
    """Raise the process's limit of open files to the most that it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def find_lost_peer(connection: Any) -> None:
    """Let TCP end a connection whose peer is gone without a word (its machine or the network failed)."""
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _IDLE_SECONDS),
        ("TCP_KEEPINTVL", _IDLE_SECONDS // 4),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", _UNTAKEN_SECONDS * 1000),
    ):
        if hasattr(socket, option):  # Linux has them all
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
