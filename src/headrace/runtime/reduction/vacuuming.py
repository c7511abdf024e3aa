"""The vacuum of a home while its epochs run: segments are written in a thread, and the next epoch's manifest names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.runtime.home.background_write import BackgroundWrite, Turns
from headrace.runtime.home.home import Home
from headrace.runtime.reduction.segments import Readers, Vacuumed, with_copies, with_vacuumed
from headrace.store.logs.manifest import Manifest
from headrace.time import FOREVER

if TYPE_CHECKING:
    from headrace.runtime.reduction.vacuum import RunSizes


@dataclass(slots=True)
class Vacuuming:
    """What is written, until a manifest names it."""

    home: Home
    every: int = 8
    """Epochs after which it looks for what is due."""
    writing: BackgroundWrite[Vacuumed] = field(default_factory=lambda: BackgroundWrite("headrace-vacuum"))
    """The next manifest takes in what it has written."""
    _sizes: RunSizes | None = None
    """What one look has found for the next."""
    _last: Mapping[str, CorruptStore] = field(default_factory=dict)
    """Stream → the damaged run that the last look has met."""
    _turns: Turns = field(default_factory=Turns)

    def settled(self, planned: Manifest, streams: Sequence[StreamDefinition], readers: Readers) -> Manifest:
        """An epoch's manifest with a copy for each reducer, and what was written, once every reader has read what it replaces."""
        planned = with_copies(planned, streams, self.home)
        done = self.writing.written
        if done is None:
            return planned
        archive = self.home.list_of(planned, f"archive:{done.stream}")
        is_unread = min(readers(done.stream, archive), default=FOREVER) < done.first + done.entries
        if done.entries and not done.reducer and is_unread:
            return planned
        self.writing.taken()
        return with_vacuumed(planned, done, self.home)

    def look(
        self, manifest: Manifest, streams: Sequence[StreamDefinition], readers: Readers, *, in_thread: bool
    ) -> None:
        """Write what is due after an epoch, in a thread of its own with `in_thread`. Raises the failure of the last time."""
        if not (self.writing.is_free() and self._turns.is_due(manifest.epoch, self.every)):
            return
        reducing = [stream for stream in streams if stream.reduce or stream.reducers]
        if not reducing:
            return
        from headrace.runtime.reduction.vacuum import RunSizes, Vacuum  # noqa: PLC0415 - where an archive is reduced

        self._sizes = self._sizes or RunSizes()
        vacuum = Vacuum(self.home, manifest, readers, at_once=False, sizes=self._sizes)
        self._last = vacuum.damaged
        self.writing.start(lambda: vacuum.next(reducing), in_thread=in_thread)

    def notes(self) -> dict[str, str]:
        """Stream → why its archive is not reduced, of those that the last look has found damaged."""
        return {
            stream: f"{stream}: its archive is not reduced, since {error}"
            for stream, error in list(self._last.items())
        }

    def due(
        self, manifest: Manifest, streams: Sequence[StreamDefinition], readers: Readers
    ) -> Vacuumed | None:
        """What the next manifest takes in: written before, or now; None where nothing is due."""
        self.writing.wait()
        if self.writing.written is None:
            from headrace.runtime.reduction.vacuum import Vacuum  # noqa: PLC0415

            vacuum = Vacuum(self.home, manifest, readers)
            self.writing.start(lambda: vacuum.next(streams), in_thread=False)
        return self.writing.written
