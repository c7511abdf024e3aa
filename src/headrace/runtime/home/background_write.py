"""What is written while epochs run and a later manifest names: one thing at a time, in a thread where the caller has one to spare."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from headrace.dataclass import dataclass
from headrace.store.files.filesystem import MissingFile

_Written = TypeVar("_Written")


@dataclass(slots=True)
class BackgroundWrite(Generic[_Written]):
    """The last thing that was written, until it is taken."""

    name: str
    _written: _Written | None = None
    _thread: threading.Thread | None = None
    _failure: BaseException | None = None

    def is_free(self) -> bool:
        """Whether nothing is being written, nor waits to be taken. Raises the failure of the last time."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return self._written is None and not self._is_busy

    def taken(self) -> _Written | None:
        """What was written, once; None while it is being written."""
        if self._is_busy:
            return None
        written, self._written = self._written, None
        return written

    def start(self, write: Callable[[], _Written | None], *, in_thread: bool) -> None:
        """Write something, in a thread of its own with `in_thread`."""
        if not in_thread:
            self._written = write()
            return
        self._thread = threading.Thread(target=self._run, args=(write,), name=self.name)
        self._thread.start()

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, write: Callable[[], _Written | None]) -> None:
        try:
            self._written = write()
        except MissingFile:  # it has expired and was collected meanwhile
            return
        except BaseException as failure:  # noqa: BLE001 - raised by the next look
            self._failure = failure
