"""The loop of epochs: one thread steps the engine; others wait for its epochs.

An epoch begins when there is something for it: rows, records of Spark or statements wake the thread (`Intake.news`). Only files
and clocks are polled. What arrives during an epoch is the next one, so epochs grow with the load.
All access to the engine goes through one lock, but for pushes. A failed epoch is tried again (`supervisor`); a failure that
persists ends the loop and is raised to those who wait.
"""

from __future__ import annotations

import sys
import threading
import time as stopwatch
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.observation import EpochFailure, EpochObservation
from headrace.runtime.epoch.engine import Engine
from headrace.runtime.epoch.supervisor import Retries, Supervisor
from headrace.runtime.home.deadline import change, held_in_time
from headrace.time import SECOND

_SWITCH_SECONDS: Final = 0.0005
"""After which a thread of Python lets another one run, at most. Python's own 5 ms delayed each push that wanted to continue while
an epoch computed: the median from push to result was 1.8 to 3 times as long.
"""
POLL_SECONDS: Final = 0.05
"""Between two readings of the clock, and two listings of files."""
_ROOM_SECONDS: Final = 0.2
"""Between two looks whether the disk has room again for rows of sources."""
_WAIT_SECONDS: Final = 0.5
"""After which those who wait for an epoch read the home in any case."""
_HANDOVER_SECONDS: Final = 0.001
"""The thread that has published an epoch pauses until those who waited for it wait again, at most so long. It would hold the
interpreter's lock otherwise, to measure the epoch, and followers would have its results 0.7 ms later.
"""


@dataclass(slots=True)
class Loop:
    """Steps an engine, on call or in a thread. `on_epoch` is called after each published epoch, outside the lock."""

    engine: Engine
    on_epoch: Callable[[EpochObservation], None]
    on_failure: Callable[[EpochFailure], None] = field(default=lambda _: None)
    retries: Retries = field(default_factory=Retries)
    lock: threading.RLock = field(default_factory=threading.RLock)
    published: threading.Condition = field(init=False)
    supervisor: Supervisor = field(init=False)
    failure: BaseException | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    """Held by a statement that waits for the lock: the thread begins no epoch before it has had it."""
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _ends: int = 0
    """How often the thread has ended."""
    _next_poll: float = 0.0
    _starting: threading.Lock = field(default_factory=threading.Lock)
    _waiting: int = 0
    """Threads that wait for an epoch."""
    _woken: int = 0
    """Of those that waited for the last epoch, how many do not wait again yet."""
    _wait_again: threading.Event = field(default_factory=threading.Event)
    """Set once all of them do."""

    def __post_init__(self) -> None:
        self.published = threading.Condition()
        self.engine.on_published = self._wake_followers
        self.supervisor = Supervisor(self.engine, self.lock, self.on_failure, retries=self.retries)

    def log(self, *entries: Mapping[str, Any]) -> None:
        """Append entries to the query log, see `Engine.log`; during an epoch where that is possible, else after it.

        Raises `DeadlinePassed` where that is too late for a statement: nothing is appended then.
        """
        if self.lock.acquire(blocking=False):
            try:
                change(lambda: self.engine.log(*entries))
            finally:
                self.lock.release()
        elif not change(lambda: self.engine.log_ahead(*entries)):
            with held_in_time(self._turn), held_in_time(self.lock):
                change(lambda: self.engine.log(*entries))

    def step(self, *, live_first: bool = False) -> EpochObservation | None:
        """One epoch, if there is anything to do, see `Engine.step`; a failure is raised, and not tried again."""
        with self.lock:
            seen = self.engine.step(live_first=live_first)
        return self._reported(seen)

    def drain(self) -> int:
        """Run epochs until nothing waits; returns their number."""
        count = 0
        while self._supervised_step(lambda: True) is not None:
            count += 1
        return count

    def seal(self) -> None:
        """Run the last epochs of all streams."""
        self._reported(self.supervisor.carry_out(self.engine.seal))

    def catch_up(self, proceed: Callable[[], bool]) -> bool:
        """Run epochs until all input of the time of the call is consumed; False when `proceed` returned False first."""
        end = self.supervisor.carry_out(self._listen, proceed)
        while proceed():
            seen = self._supervised_step(proceed)
            if seen is None:
                return True
            if seen.kind == "epoch" and not self._waits_before(end):
                self._measure_last(proceed)
                return True
        return False

    def await_input(self, proceed: Callable[[], bool] = lambda: True) -> bool:
        """Wait until the thread has consumed all input of the time of the call, and no query is behind the archive.

        False when `proceed` returned False, or the thread ended, before that.
        """
        with self._turn:
            end = self.supervisor.carry_out(self._listen, proceed)
        self.engine.intake.news.set()
        while proceed() and self.is_running:
            epoch = self.engine.published.epoch
            with self._turn, self.lock:
                if not (self._waits_before(end) or self.engine.is_catching_up()):
                    return True
            self.wait_for_epoch_after(epoch)
        return False

    def _measure_last(self, proceed: Callable[[], bool]) -> None:
        """Give queries over built-in streams the rows about the last epoch."""
        with self.lock:
            waits = self.engine.has_system_rows()
        if waits:
            self._supervised_step(proceed)

    def _listen(self) -> int:
        """List all sources; returns the number of ingest records."""
        self.engine.intake.listen(self.engine.plan.streams.values(), thorough=True)
        return self.engine.home.ingest_log.length

    def _supervised_step(
        self, proceed: Callable[[], bool], *, live_first: bool = False, polls: bool = True
    ) -> EpochObservation | None:
        return self._reported(
            self.supervisor.carry_out(lambda: self.engine.step(live_first=live_first, polls=polls), proceed)
        )

    def _reported(self, seen: EpochObservation | None) -> EpochObservation | None:
        if seen is not None:
            self.on_epoch(seen)
        return seen

    def wait_for_epoch_after(self, epoch: int, unless: Callable[[], bool] = lambda: False) -> None:
        """Wait until a later epoch is published, the thread ends, `unless` returns True or half a second has passed."""
        with self.published:
            ends = self._ends
            self._waiting += 1
            self._woken -= 1
            if self._woken <= 0:
                self._wait_again.set()
            try:
                self.published.wait_for(
                    lambda: self.engine.published.epoch > epoch or self._ends > ends or unless(),
                    _WAIT_SECONDS,
                )
            finally:
                self._waiting -= 1

    def _wake_followers(self) -> None:
        with self.published:
            woken = self._woken = self._waiting
            self._wait_again.clear()
            self.published.notify_all()
        if woken:
            self._pause()

    def _pause(self) -> None:
        self._wait_again.wait(_HANDOVER_SECONDS)

    def _waits_before(self, ordinal: int) -> bool:
        with self.lock:
            engine = self.engine
            return (
                engine.has_emission_backlog()
                or engine.has_unread_results()
                or bool(engine.rounds.failing.attempts)
                or any(
                    record.ordinal < ordinal
                    for name in engine.plan.streams
                    for record in engine.intake.waiting(name)
                )
            )

    @property
    def is_running(self) -> bool:
        """True while the thread lives."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Step in a thread until `stop`; nothing where one does already."""
        with self._starting:
            if self.is_running:
                return
            sys.setswitchinterval(min(_SWITCH_SECONDS, sys.getswitchinterval()))
            self._stop.clear()
            self.failure = None
            self._thread = threading.Thread(target=self._run, name="headrace-epochs", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish the current epoch and stop; raises the failure that ended the loop, if there was one."""
        self._stop.set()
        self.engine.intake.news.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._ended()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def _run(self) -> None:
        news, proceed = self.engine.intake.news, lambda: not self._stop.is_set()
        try:
            with self.engine.housekeeping.in_background():
                while proceed():
                    if not self.engine.executor.ready(POLL_SECONDS):
                        continue  # without the lock: statements and pushes do not wait for the start of Spark
                    news.clear()
                    with self._turn:
                        pass
                    if self._supervised_step(proceed, live_first=True, polls=self._is_poll_due()) is None:
                        news.wait(self._patience())
                    elif not news.is_set():
                        with self.lock:
                            self.engine.executor.prepare_next()
        except BaseException as error:  # noqa: BLE001 - raised by stop() and to those who wait
            self.failure = error
            self._ended()

    def _ended(self) -> None:
        with self.published:
            self._ends += 1
            self.published.notify_all()

    def _is_poll_due(self) -> bool:
        """Whether this step lists files; the next one that does is `POLL_SECONDS` later."""
        now = stopwatch.monotonic()
        is_due = now >= self._next_poll
        if is_due:
            self._next_poll = now + POLL_SECONDS
        return is_due

    def _patience(self) -> float | None:
        """Seconds until something is due that does not wake the thread; None where nothing is."""
        engine, waits = self.engine, []
        if engine.is_polled():
            waits.append(self._next_poll - stopwatch.monotonic())
        if engine.intake.held_back:
            waits.append(_ROOM_SECONDS)
        if engine.gathers_until is not None:
            waits.append((engine.gathers_until - engine.clock()) / SECOND)
        return max(0.0, min(waits)) if waits else None
