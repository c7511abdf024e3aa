"""The Unix socket in a home, on which the hub that runs there listens: how it is opened, and whether a process listens
on it; for its user alone, by the permissions of files.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

SOCKET: Final = "hub.sock"
BACKLOG: Final = 1024
_LONGEST: Final = 100
"""Bytes of a path that every system takes as a socket's address."""


def local_socket(home: Path) -> socket.socket:
    """A listening socket in the home; one that a killed process left is replaced. The caller holds the home's lock."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    (home / SOCKET).unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        listening.bind(short_address(home))
        listening.listen(BACKLOG)
    finally:
        os.umask(before)
    return listening


def is_listening(home: Path) -> bool:
    """Whether a process listens on the home's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(short_address(home))
        except OSError:
            return False
    return True


def short_address(home: Path) -> str:
    """The socket's path, or one that is short enough: through an open folder, which stays open with the process."""
    path = str(home / SOCKET)
    if len(os.fsencode(path)) <= _LONGEST or not home.is_dir():
        return path
    if home not in _FOLDERS:
        _FOLDERS[home] = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{_FOLDERS[home]}/{SOCKET}"


_FOLDERS: Final[dict[Path, int]] = {}
