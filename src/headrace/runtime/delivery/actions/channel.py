"""The interface of channels, by each of which an action sends messages to one receiver; the message, which has rows of one
epoch, and the error of one that was not taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.errors import HeadraceError


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
