"""`headrace fetch`: what a query has emitted since a client's last acknowledgement, on standard output; each delivery
is acknowledged once it was read.

Rows that are still in a pipe are not yet read.
"""

from __future__ import annotations

import array
import fcntl
import os
import select
import stat
import sys
import termios
from typing import Final, TextIO

from headrace.cli.screen import Screen
from headrace.runtime.delivery.client import Client, Delivery

_WAIT_MILLISECONDS: Final = 5


def fetch_to(screen: Screen, client: Client, *, keep: bool = False) -> int:
    """Show all that is not acknowledged, and acknowledge each delivery after it was shown, unless `keep`; how many.

    Raises `BrokenPipeError` when the reader of the output is gone: what it did not receive is delivered again.
    """
    screen.several = False
    count = 0
    shown: Delivery | None = None
    for delivery in client.pending():
        if delivery.missed:
            screen.line.warning(f"{client.query}: retention had removed older answers that were not fetched")
        screen.rows(client.query, delivery.epoch, delivery.rows)
        shown = delivery
        count += 1
        if not keep and is_taken(screen.out):
            client.acknowledge(delivery)
            shown = None
    if not keep and shown is not None:
        wait_until_taken(screen.out)
        client.acknowledge(shown)
    if not count:
        screen.line.message(f"{client.query}: nothing new for {client.name}")
    return count


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
