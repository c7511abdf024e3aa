"""Whether what was written to a pipe has been read at its other end."""

from __future__ import annotations

import array
import fcntl
import os
import select
import stat
import sys
import termios
from typing import Final, TextIO

_WAIT_MILLISECONDS: Final = 5


def is_taken(out: TextIO) -> bool:
    """Whether all that was flushed has been read; True for what is no pipe.

    Raises `BrokenPipeError` when the pipe has no reader any more.
    """
    descriptor = _pipe(out)
    if descriptor is None:
        return True
    _require_reader(descriptor, 0)
    unread = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, unread)
    if unread[0]:
        return False
    _require_reader(descriptor, 0)  # it may have closed the pipe with bytes unread
    return True


def wait_until_taken(out: TextIO) -> None:
    """Wait until all that was flushed has been read.

    Raises `BrokenPipeError` when the pipe has no reader any more.
    """
    while not is_taken(out):
        descriptor = _pipe(out)
        assert descriptor is not None
        _require_reader(descriptor, _WAIT_MILLISECONDS)


def _pipe(out: TextIO) -> int | None:
    """The descriptor of a pipe, where the system reports how much is unread; None for anything else."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        descriptor = out.fileno()
    except (OSError, ValueError):
        return None
    return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None


def _require_reader(descriptor: int, milliseconds: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are reported always: the other end is closed
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(milliseconds)):
        raise BrokenPipeError
