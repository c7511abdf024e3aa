"""What is written while epochs run and a later manifest names: one thing at a time, in a thread where the caller has one to spare.

Such a thread holds Python's lock most of the time, which an epoch releases and takes again dozens of times. So longer work in it calls
`give_way` between its steps: a pause in which epochs have the lock for themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from headrace.dataclass import dataclass
from headrace.store.files.filesystem import MissingFile

_Written = TypeVar("_Written")

_STEP: Final = 0.0005
"""Seconds of work after which a thread pauses."""
_PAUSE: Final = 4.0
"""The length of a pause, as a multiple of the work before it: epochs have four fifths of the time."""
_PAUSES: Final = 0.5
"""Most seconds that one piece of work pauses: then it continues without pauses, and keeps up with what is due next."""


class _Pauses(threading.local):
    """The pauses of a thread: how many seconds of them it has left, and since when it works."""

    left = 0.0
    since = 0.0


_pauses: Final = _Pauses()


@contextmanager
def beneath_epochs() -> Iterator[None]:
    """A block of work in a thread of its own that pauses wherever it calls `give_way`."""
    _pauses.left, _pauses.since = _PAUSES, time.perf_counter()
    try:
        yield
    finally:
        _pauses.left = 0.0


def give_way() -> None:
    """Pause between two steps of work that is done beneath epochs; elsewhere return at once."""
    if _pauses.left <= 0:
        return
    worked = time.perf_counter() - _pauses.since
    if worked < _STEP:
        return
    pause = min(_PAUSE * worked, _pauses.left)
    time.sleep(pause)
    _pauses.left, _pauses.since = _pauses.left - pause, time.perf_counter()


@dataclass(slots=True)
class Turns:
    """The epochs of a process in which something is done that is due every few: when a multiple has passed, which may be a number before its first.

    A home's openings have numbers too, so none of the epochs need have a number that is a multiple.
    """

    _last: int = 0

    def is_due(self, epoch: int, every: int) -> bool:
        """Whether it is due in an epoch, or after it; then it is not again before the next multiple."""
        turn = epoch // every
        if turn <= self._last:
            return False
        self._last = turn
        return True


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

    @property
    def written(self) -> _Written | None:
        """What was written and is not taken yet; None while it is being written."""
        return None if self._is_busy else self._written

    def taken(self) -> _Written | None:
        """What was written, once; None while it is being written."""
        if self._is_busy:
            return None
        written, self._written = self._written, None
        return written

    def wait(self) -> None:
        """Return when nothing is being written."""
        if self._thread is not None:
            self._thread.join()

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
            with beneath_epochs():
                self._written = write()
        except MissingFile:  # it has expired or was replaced, and was collected meanwhile
            return
        except BaseException as failure:  # noqa: BLE001 - raised by the next look
            self._failure = failure
