"""What is written for many epochs at once, every few epochs: in a thread while the loop runs, and the next epoch's manifest names it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.home.background_write import BackgroundWrite, Turns
from headrace.runtime.home.home import Home
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles

EVERY: Final = 8
"""Epochs after which what is due is sought again: the lists of all streams are read for it."""


class Written(Protocol):
    """Files that no manifest names yet."""

    def settled(self, planned: Manifest, home: Home, lists: ListFiles) -> Manifest:
        """An epoch's manifest with these files."""
        ...


class PeriodicWrite(ABC):
    """One kind of such files of a home, in a thread named `thread`."""

    thread: str

    def __init__(self, home: Home) -> None:
        self.home, self.every = home, EVERY
        self._writing: BackgroundWrite[Sequence[Written]] = BackgroundWrite(self.thread)
        self._turns = Turns()

    @abstractmethod
    def due(
        self, manifest: Manifest, streams: Sequence[StreamDefinition]
    ) -> Callable[[], Sequence[Written]] | None:
        """What writes the files that are due as of a manifest; None where none are."""

    def settled(self, planned: Manifest, lists: ListFiles) -> Manifest:
        """An epoch's manifest with what was written."""
        for written in self._writing.taken() or ():
            planned = written.settled(planned, self.home, lists)
        return planned

    def look(self, manifest: Manifest, streams: Sequence[StreamDefinition], *, in_thread: bool) -> None:
        """Write what is due after an epoch, in a thread of its own with `in_thread`. Raises the failure of the last time."""
        if not (self._writing.is_free() and self._turns.is_due(manifest.epoch, self.every)):
            return
        write = self.due(manifest, streams)
        if write is not None:
            self._writing.start(write, in_thread=in_thread)
