"""Handling of Ctrl-C and SIGTERM: the first asks to finish the epoch under way, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError, UserError

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_CONVENTION: Final = 128  # a shell's exit code for a process that a signal ended, less the signal's number


class Interrupts:
    """Inside a `with` block signals only set a flag: an exception in the middle of a job would lose the connection to it."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._before: dict[int, Any] = {}
        self._actions: list[Callable[[], object]] = []
        self.signal: int | None = None

    @property
    def stop(self) -> bool:
        """True once a signal has come."""
        return self._requested.is_set()

    @property
    def exit_code(self) -> int:
        """The exit code of an interrupted command that is not done."""
        return _CONVENTION + (self.signal or signal.SIGINT)

    def proceed(self) -> bool:
        """The opposite of `stop`, as a function."""
        return not self._requested.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for a signal, at most so long; whether one has come."""
        return self._requested.wait(seconds)

    def request(self, number: int = signal.SIGINT) -> None:
        """Act as if the signal had come."""
        self.signal = number
        self._requested.set()
        for action in self._actions:
            action()

    def when_requested(self, action: Callable[[], object]) -> None:
        """Call `action` as soon as a signal comes, in its handler; at once if one has come."""
        self._actions.append(action)
        if self.stop:
            action()

    def giving_up(self, warn: Callable[[str], None]) -> GivingUp:
        """A `with` block of what a signal may end; see `GivingUp`."""
        return GivingUp(self, warn)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._requested.is_set():
            os._exit(_CONVENTION + number)  # the second signal; the JVM ends when the pipe to it breaks
        self.request(number)


@dataclass(frozen=True, slots=True)
class GivingUp:
    """Inside a `with` block, once a signal has come, the failure of what was under way is a warning, and not raised.

    A signal to a whole group ends Spark's processes too. Nothing of the epoch was published: the home is whole.
    """

    stop: Interrupts
    warn: Callable[[str], None]

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not self.stop.stop or not isinstance(error, HeadraceError) or isinstance(error, UserError):
            return False
        self.warn(f"Stopped; what was under way is given up, the next run repeats it ({error})")
        return True


def let_arrow_finish() -> None:
    """Leave signals to this program: what Arrow reads is part of the epoch under way, and is finished with it."""
    import pyarrow as pa  # noqa: PLC0415 - signals are handled before it is imported

    pa.enable_signal_handlers(False)
