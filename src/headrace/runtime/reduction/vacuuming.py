"""The vacuum of a home while its epochs run: segments are written in a thread, and the next epoch's manifest names them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.runtime.home.home import Home
from headrace.runtime.reduction.segments import Readers, Vacuumed, with_copies, with_vacuumed
from headrace.store.files.filesystem import MissingFile
from headrace.store.logs.manifest import Manifest
from headrace.time import FOREVER

if TYPE_CHECKING:
    from headrace.runtime.reduction.vacuum import Vacuum


@dataclass(slots=True)
class Vacuuming:
    """What is written, until a manifest names it."""

    home: Home
    every: int = 8
    """Epochs after which it looks for what is due."""
    written: Vacuumed | None = None
    """What the next manifest takes in."""
    _thread: threading.Thread | None = None
    _failure: BaseException | None = None

    def settled(self, planned: Manifest, streams: Sequence[StreamDefinition], readers: Readers) -> Manifest:
        """An epoch's manifest with a copy for each reducer, and what was written, once every reader has read what it replaces."""
        planned = with_copies(planned, streams, self.home)
        done = None if self._is_busy else self.written
        if done is None:
            return planned
        archive = self.home.list_of(planned, f"archive:{done.stream}")
        is_unread = min(readers(done.stream, archive), default=FOREVER) < done.first + done.entries
        if done.entries and not done.reducer and is_unread:
            return planned
        self.written = None
        return with_vacuumed(planned, done, self.home)

    def look(
        self, manifest: Manifest, streams: Sequence[StreamDefinition], readers: Readers, *, in_thread: bool
    ) -> None:
        """Write what is due after an epoch, in a thread of its own with `in_thread`. Raises the failure of the last time."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if manifest.epoch % self.every or self.written is not None or self._is_busy:
            return
        reducing = [stream for stream in streams if stream.reduce or stream.reducers]
        if not reducing:
            return
        from headrace.runtime.reduction.vacuum import Vacuum  # noqa: PLC0415 - where an archive is reduced

        vacuum = Vacuum(self.home, manifest, readers, at_once=False)
        if not in_thread:
            self.written = vacuum.next(reducing)
            return
        self._thread = threading.Thread(target=self._run, args=(vacuum, reducing), name="headrace-vacuum")
        self._thread.start()

    def due(
        self, manifest: Manifest, streams: Sequence[StreamDefinition], readers: Readers
    ) -> Vacuumed | None:
        """What the next manifest takes in: written before, or now; None where nothing is due."""
        if self._thread is not None:
            self._thread.join()
        if self.written is None:
            from headrace.runtime.reduction.vacuum import Vacuum  # noqa: PLC0415

            self.written = Vacuum(self.home, manifest, readers).next(streams)
        return self.written

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, vacuum: Vacuum, streams: Sequence[StreamDefinition]) -> None:
        try:
            self.written = vacuum.next(streams)
        except MissingFile:  # an epoch has replaced and collected it meanwhile
            return
        except BaseException as failure:  # noqa: BLE001 - raised by the next look
            self._failure = failure
