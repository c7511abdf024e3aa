"""Backpressure, the last resort of overload: a push waits while as many rows of its stream wait for epochs as it allows, or the disk is
nearly full; it is refused in the end, before anything is written. Rows of files and of Spark stay where they are while the disk is nearly
full: epochs leave them for later, and take them as soon as there is room.
"""

from __future__ import annotations

import shutil
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import field
from typing import Final

from headrace.catalog import system_streams
from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.options import most_waiting
from headrace.dataclass import dataclass
from headrace.errors import StoreError
from headrace.runtime.ingest.ingest_queue import Intake

PATIENCE_SECONDS: Final = 30.0
"""How long a push waits before it is refused."""
_LOOK_SECONDS: Final = 0.1
"""Between two readings of the free space of the disk, whose files are deleted some time after an epoch."""


@dataclass(slots=True)
class Backpressure:
    """That of one hub. Without epochs that run, a push does not wait: nothing would make room.

    `disk_reserve` are bytes of the disk that rows do not fill, so that epochs can end, and free some.
    """

    intake: Intake
    is_running: Callable[[], bool]
    disk_reserve: int = 0
    patience: float = PATIENCE_SECONDS
    waited: int = 0
    refused: int = 0
    _free: Callable[[], int] = field(init=False)
    _has_warned: bool = False

    def __post_init__(self) -> None:
        self.intake.is_held_back = self.holds_back
        self._free = lambda: shutil.disk_usage(self.intake.home.store.root).free

    def admit(self, definition: StreamDefinition) -> None:
        """Return when there is room for rows of a stream. Raises `StoreError` if there is none in time."""
        full = self._full(definition)
        if full is None:
            return
        self.waited += 1
        until = time.monotonic() + self.patience
        while full is not None:
            remaining = until - time.monotonic()
            if remaining <= 0 or not self.is_running():
                self.refused += 1
                raise StoreError(full, outcome="absent")
            with self.intake.taken:
                self.intake.taken.wait(min(remaining, _LOOK_SECONDS))
            full = self._full(definition)

    def holds_back(self, definition: StreamDefinition) -> bool:
        """Whether rows of a source have to wait, with a warning when that begins. Pushed rows do not: they are on the disk already."""
        if definition.using in ("push", system_streams.USING):
            return False
        full = self._full_disk()
        if full is not None and not self._has_warned:
            warnings.warn(
                f"{full}: rows of files and of Spark wait until it has more", RuntimeWarning, stacklevel=2
            )
        self._has_warned = full is not None
        return full is not None

    def wait_for_room(self, definition: StreamDefinition, stopped: threading.Event) -> bool:
        """Return when there is room for rows of a source; false if its reading is stopped before."""
        while self.holds_back(definition):
            if stopped.wait(_LOOK_SECONDS):
                return False
        return True

    def as_dict(self) -> dict[str, int]:
        """How many pushes had to wait since the hub was opened, and how many of these were refused."""
        return {"waited": self.waited, "refused": self.refused}

    def _full(self, definition: StreamDefinition) -> str | None:
        """Why there is no room."""
        most = most_waiting(definition.options)
        if most is not None:
            rows = sum(pending.weight - 1 for pending in tuple(self.intake.waiting(definition.name)))
            if rows >= most:
                return f"{rows:,} rows wait for an epoch, the option mostWaiting allows {most:,}"
        return self._full_disk()

    def _full_disk(self) -> str | None:
        if self.disk_reserve and (free := self._free()) < self.disk_reserve:
            return f"the disk of the home has {free:,} bytes left, disk_reserve is {self.disk_reserve:,}"
        return None
