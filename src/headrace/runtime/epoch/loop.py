"""The loop of epochs: one thread steps the engine; others wait for its epochs.

All access to the engine goes through one lock. A failed epoch is tried again (`supervisor`); a failure that persists ends
the loop and is raised to those who wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.observation import EpochFailure, EpochObservation
from headrace.runtime.epoch.engine import Engine
from headrace.runtime.epoch.supervisor import Retries, Supervisor

_IDLE_SECONDS = 0.05


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
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.published = threading.Condition()
        self.supervisor = Supervisor(self.engine, self.lock, self.on_failure, retries=self.retries)

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
                return True
        return False

    def _listen(self) -> int:
        """List all sources; returns the number of ingest records."""
        self.engine.intake.listen(self.engine.plan.streams.values(), thorough=True)
        return self.engine.home.ingest_log.length

    def _supervised_step(
        self, proceed: Callable[[], bool], *, live_first: bool = False
    ) -> EpochObservation | None:
        return self._reported(
            self.supervisor.carry_out(lambda: self.engine.step(live_first=live_first), proceed)
        )

    def _reported(self, seen: EpochObservation | None) -> EpochObservation | None:
        if seen is not None:
            self.on_epoch(seen)
            with self.published:
                self.published.notify_all()
        return seen

    def _waits_before(self, ordinal: int) -> bool:
        with self.lock:
            engine = self.engine
            return (
                engine.has_emission_backlog()
                or engine.has_unread_results()
                or bool(engine.failing.attempts)
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
        """Step in a thread until `stop`."""
        if self.is_running:
            return
        self._stop.clear()
        self.failure = None
        self._thread = threading.Thread(target=self._run, name="headrace-epochs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the current epoch and stop; raises the failure that ended the loop, if there was one."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self.published:
            self.published.notify_all()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self.engine.executor.ready(_IDLE_SECONDS):
                    continue  # without the lock: statements and pushes do not wait for the start of Spark
                if self._supervised_step(lambda: not self._stop.is_set(), live_first=True) is None:
                    self._stop.wait(_IDLE_SECONDS)
        except BaseException as error:  # noqa: BLE001 - raised by stop() and to those who wait
            self.failure = error
            with self.published:
                self.published.notify_all()
