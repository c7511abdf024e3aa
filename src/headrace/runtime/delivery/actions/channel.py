"""The interface of channels, by each of which an action sends messages to one receiver; the message, which has rows of one
epoch, and the error of one that was not taken. Threads for what may never return, and the event loop that resolves names in
such threads.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError

_Result = TypeVar("_Result")


class Undelivered(HeadraceError):
    """A receiver did not take a message. `lasting`: it would refuse the same message again. `after`: seconds that it asked to wait."""

    def __init__(self, reason: str, *, lasting: bool = False, after: float = 0.0) -> None:
        super().__init__(reason)
        self.lasting, self.after = lasting, after


@dataclass(frozen=True, slots=True)
class Message:
    """Rows of one epoch of a query for one action: batch `number` of them, counted from 0."""

    query: str
    action: str
    epoch: int
    number: int
    rows: pa.Table

    @property
    def key(self) -> str:
        """The same for every attempt at this message, also by a later process, and for no other message."""
        return f"{self.action}-{self.epoch}-{self.number}"


class Channel(Protocol):
    """Sends messages to one receiver."""

    @property
    def batch(self) -> int | None:
        """Rows of a message; None: all rows of an epoch are one."""

    @property
    def attempts(self) -> int | None:
        """How often a message is sent before it becomes a dead letter; None: until it is delivered."""

    async def send(self, message: Message) -> None:
        """Return when the receiver has the message. Raises `Undelivered`, or `StoreError` of the home's own disk."""


async def in_own_thread(call: Callable[[], _Result]) -> _Result:
    """What a function returns or raises, in a thread that it may keep: neither the end of the hub nor of the process waits for it."""
    result: Future[_Result] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            result.set_exception(error)

    threading.Thread(target=run, name="headrace-action", daemon=True).start()
    return await asyncio.shield(asyncio.wrap_future(result))


class ChannelLoop(asyncio.SelectorEventLoop):
    """An event loop that ends while a resolver of names still searches."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """As the function of `socket`."""
        return await in_own_thread(partial(socket.getaddrinfo, host, port, **options))
