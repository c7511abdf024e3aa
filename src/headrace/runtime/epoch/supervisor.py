"""The supervisor of epochs: a failed epoch is tried again, a bounded number of times, by a new incarnation of this driver.

A failed epoch has published nothing, or its publication is in doubt. In both cases the home decides: the driver takes it over
again, reads its manifest, and does the next epoch, as a new process would do.
Only transient failures are tried again: a lost JVM or worker, an I/O error, a full disk. A user's error, a damaged file and a
replaced driver would fail again, and are raised at once.
"""

from __future__ import annotations

import threading
import time as stopwatch
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final, TypeVar

from headrace.dataclass import dataclass
from headrace.errors import AlreadyPublished, CorruptStore, EpochFailed, StoreError, UserError
from headrace.observation import EpochFailure
from headrace.runtime.epoch.engine import Engine
from headrace.store.files.filesystem import MissingFile, NotPermitted

Done = TypeVar("Done")

_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Retries:
    """Seconds to wait before each further attempt; as many attempts as waits, and the first."""

    waits: tuple[float, ...] = (0.25, 1.0, 4.0, 10.0)

    @property
    def attempts(self) -> int:
        """The number of attempts at an epoch."""
        return 1 + len(self.waits)


def may_pass(failure: BaseException) -> bool:
    """Whether the same epoch may succeed when it is tried again."""
    if isinstance(failure, EpochFailed):
        return not failure.lasting
    if isinstance(failure, UserError | AlreadyPublished | CorruptStore | MissingFile | NotPermitted):
        return False
    return isinstance(failure, StoreError | OSError)


@dataclass(slots=True)
class Supervisor:
    """Runs actions of an engine under its lock, again when they fail.

    `revive` restarts what the failure may have stopped, a JVM; `on_failure` is called for every failed attempt.
    """

    engine: Engine
    lock: threading.RLock
    on_failure: Callable[[EpochFailure], None]
    revive: Callable[[], None] = field(default=lambda: None)
    retries: Retries = field(default_factory=Retries)
    failed: int = 0
    """Attempts that have failed since this driver started."""
    last: EpochFailure | None = None
    failing: bool = False
    """True between a failure and the next success."""
    _stale: bool = False

    def carry_out(self, action: Callable[[], Done], proceed: Callable[[], bool] = lambda: True) -> Done:
        """Run an action; after a transient failure wait and run it again, while `proceed` returns True.

        Raises other failures as they are, and `EpochFailed` when all attempts have failed.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                with self.lock:
                    self._take_over_if_stale()
                    done = action()
            except BaseException as failure:
                # The engine's memory may differ from the home.
                self._stale = self._stale or not isinstance(failure, UserError | AlreadyPublished)
                if not may_pass(failure):
                    raise
                wait = self._note(failure, attempt)
                if wait is None:
                    raise self._final(failure, attempt) from failure
                if not _waited(wait, proceed):
                    raise
            else:
                self.failing = False
                return done

    def as_status(self) -> dict[str, Any]:
        """Plain values: the number of failed attempts, whether the last attempt failed, and the last failure."""
        last = self.last.as_dict() if self.last is not None else None
        return {"count": self.failed, "failing": self.failing, "last": last}

    def _take_over_if_stale(self) -> None:
        if self._stale:
            self.revive()
            self.engine.take_over()
            self._stale = False

    def _note(self, failure: BaseException, attempt: int) -> float | None:
        """Record and report a failure; returns the wait before the next attempt, None when there is none."""
        waits = self.retries.waits
        wait = waits[attempt - 1] if attempt <= len(waits) else None
        self.last = EpochFailure(
            epoch=self.engine.manifest.epoch + 1,
            attempt=attempt,
            attempts=self.retries.attempts,
            error=type(failure).__name__,
            message=str(failure),
            incarnation=self.engine.manifest.incarnation,
            at=self.engine.clock(),
            retry_after=wait,
        )
        self.failed, self.failing = self.failed + 1, True
        self.on_failure(self.last)
        return wait

    def _final(self, failure: BaseException, attempts: int) -> BaseException:
        if attempts == 1:
            return failure
        epoch, home = self.engine.manifest.epoch, self.engine.home.store.root
        return EpochFailed(
            f"epoch {epoch + 1} failed {attempts} times in a row, the last time because {failure}\n"
            f"  Nothing of it counts: the home {home} is at epoch {epoch}. Remove the cause and start again;\n"
            f"  the same input is read again. {home}/epochs.jsonl has the error of every attempt."
        )


def _waited(seconds: float, proceed: Callable[[], bool]) -> bool:
    """Wait in small steps; False as soon as `proceed` returns False."""
    end = stopwatch.monotonic() + seconds
    while proceed():
        left = end - stopwatch.monotonic()
        if left <= 0:
            return True
        stopwatch.sleep(min(left, _POLL_SECONDS))
    return False
