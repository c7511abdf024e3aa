"""The channels of actions that write rows to a stream of the hub or to a folder: exactly once, since a batch of rows is
named by its epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import PushFailed, UserError
from headrace.runtime.delivery.actions.channel import Message, Undelivered

Push = Callable[[str, Any, str | None, int | None], int]
"""Stream, rows, producer and number of a push; see `Pushing.push`."""
PRODUCER: Final = "action-"
"""How the producers of actions begin; the rest is the action's id."""


@dataclass(frozen=True, slots=True)
class StreamWriter:
    """A stream made USING push. The action is its producer and the epoch the number: a repetition counts once."""

    stream: str
    push: Push

    @property
    def batch(self) -> int | None:
        """All rows of an epoch are one batch of the producer."""
        return None

    @property
    def attempts(self) -> int | None:
        """A full disk is waited for."""
        return None

    async def send(self, message: Message) -> None:
        """Push the rows. Raises `Undelivered` where the stream does not take them, `StoreError` where the disk does not."""
        try:
            await asyncio.to_thread(
                self.push, self.stream, message.rows, f"{PRODUCER}{message.action}", message.epoch
            )
        except PushFailed as error:
            raise Undelivered(str(error.__cause__ or error)) from error
        except UserError as error:
            raise Undelivered(error.message, lasting=True) from None


@dataclass(frozen=True, slots=True)
class FolderWriter:
    """A folder that gets a file for each epoch."""

    receive: Callable[[int, pa.Table], object]

    @property
    def batch(self) -> int | None:
        """All rows of an epoch are one file."""
        return None

    @property
    def attempts(self) -> int | None:
        """A full disk is waited for."""
        return None

    async def send(self, message: Message) -> None:
        """Write the rows. Raises `StoreError` where the disk does not take them."""
        await asyncio.to_thread(self.receive, message.epoch, message.rows)
