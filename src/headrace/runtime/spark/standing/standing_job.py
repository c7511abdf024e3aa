"""The driver's side of standing tasks: one long barrier job of Spark, and the connections to its tasks.

A barrier job gets all of its cores at once or none. Whatever goes wrong ends the job as a whole: tasks end when their connections
do, and Spark kills those that do not.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from pyspark import SparkContext

from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.spark.standing.channel import Channel, ConnectionLost, next_frame, transfer
from headrace.runtime.spark.standing.standing_task import LOOPBACK, Invitation, Round, StandingTask
from headrace.runtime.spark.standing.task_functions import Failure

START_SECONDS: Final = 30.0
"""The job is given up when its tasks have not met by then: the cores are not free."""
_POLL_SECONDS: Final = 0.2
_END_SECONDS: Final = 0.5
_PATIENCE: Final = 12
"""A task waits this many times the idle time for a driver that was stopped."""


class StandingJob:
    """One Spark job whose tasks stay. It is ready once all tasks have met, and over when one of them is lost."""

    def __init__(
        self,
        context: SparkContext,
        tasks: int,
        *,
        idle_seconds: float,
        silence_seconds: float,
        task: Callable[[Invitation], StandingTask] = StandingTask,
    ) -> None:
        """Start the job, without waiting for its tasks. Errors of Spark that prevent it are raised."""
        self.tasks = tasks
        self._context, self._idle, self._silence = context, idle_seconds, silence_seconds
        self._group = f"headrace-standing-{uuid.uuid4().hex}"
        self._secret = os.urandom(32)
        self._channels: list[Channel] = []
        self._ready, self._over = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._number, self._used = 0, time.monotonic()
        self._writing: set[Channel] = set()
        """Of tasks that have answered the last epoch, and have not sent that its files are written."""
        self._unwritten: Failure | None = None
        local = context.master.startswith("local")
        host = LOOPBACK if local else context.getConf().get("spark.driver.host", LOOPBACK)
        bound = LOOPBACK if local else context.getConf().get("spark.driver.bindAddress", host)
        self._listener = socket.create_server((bound or LOOPBACK, 0))
        try:
            address = (str(host), self._listener.getsockname()[1])
            invitation = Invitation(address, self._secret, tasks, local, _PATIENCE * idle_seconds)
            self._partitions = (
                context.parallelize(range(tasks), tasks).barrier().mapPartitions(task(invitation))
            )
            self._partitions._jrdd  # noqa: B018 - made here, with the Python that is in force now
        except BaseException:
            self._listener.close()
            raise
        self._job = threading.Thread(target=self._stay, name="headrace-standing-job", daemon=True)
        self._guard = threading.Thread(target=self._watch, name="headrace-standing-guard", daemon=True)
        self._job.start()
        self._guard.start()

    @property
    def is_ready(self) -> bool:
        """Whether all tasks have met, and none was lost."""
        return self._ready.is_set() and not self._over.is_set()

    @property
    def was_ready(self) -> bool:
        """Whether all tasks have met once."""
        return self._ready.is_set()

    @property
    def is_over(self) -> bool:
        """Whether it takes no more epochs."""
        return self._over.is_set()

    @property
    def holds_cores(self) -> bool:
        """Whether Spark has not ended the job yet."""
        return self._job.is_alive()

    def wait(self) -> bool:
        """Wait until it is ready or over; whether it is ready."""
        while not self._ready.wait(_POLL_SECONDS):
            if self._over.is_set():
                return False
        return self.is_ready

    def run(
        self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]
    ) -> list[StateReceipt | Failure] | None:
        """Run an epoch; None when the job was over before it began.

        Raises `ConnectionLost` when a task is lost or silent; then the job is over, and no receipt of the epoch is returned.
        """
        self.await_files()
        with self._lock:
            if not self._is_complete():
                return None
            with self._closed_by_errors():
                receipts = self._run(pickle.dumps(Round(scans, states), protocol=5))
            self._used = time.monotonic()
            return receipts

    def await_files(self) -> None:
        """Return once all files that the last receipts name are written, though not durable.

        Raises the error of a task that cannot write them, and `ConnectionLost`.
        """
        with self._lock, self._closed_by_errors():
            self._await(set(), self._writing)
        failure, self._unwritten = self._unwritten, None
        if failure is not None:
            raise failure.error

    @contextmanager
    def _closed_by_errors(self) -> Iterator[None]:
        """A block in which any error ends the job."""
        try:
            yield
        except BaseException:
            self._writing.clear()
            self._close()
            raise

    def _is_complete(self) -> bool:
        """Whether all tasks are there: one may have been killed since the last epoch."""
        if not self.is_ready:
            return False
        with suppress(ConnectionLost):
            if not transfer(self._channels, 0):
                return True
        self._close()
        return False

    def _run(self, messages: bytes) -> list[StateReceipt | Failure]:
        self._number += 1
        for channel in self._channels:
            channel.send(self._number, 0, messages)
        return sorted(self._await(set(self._channels), self._writing), key=_task_of)

    def _await(self, answering: set[Channel], writing: set[Channel]) -> list[StateReceipt | Failure]:
        """Wait until tasks have answered; or, if none is to answer, until those that have answered have written their files."""
        began, receipts = time.monotonic(), list[StateReceipt | Failure]()
        waiting = answering or writing
        while waiting:
            for channel, frame in transfer(answering | writing, _POLL_SECONDS):
                if frame.round != self._number:
                    raise ConnectionLost("receipts of another epoch")
                if channel in answering:
                    receipts += pickle.loads(frame.data)
                    answering.remove(channel)
                    writing.add(channel)
                else:
                    self._unwritten = pickle.loads(frame.data) or self._unwritten
                    writing.remove(channel)
            now = time.monotonic()
            if any(now - max(channel.heard, began) > self._silence for channel in waiting):
                raise ConnectionLost(f"no sign of life for {self._silence} seconds")
        return receipts

    def end(self) -> None:
        """End the job: no epoch begins any more, and its tasks see the end of their connections. Does not wait for them."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._over.set()
        for channel in self._channels:
            channel.close()

    def join(self, seconds: float) -> None:
        """Wait until Spark has ended the job."""
        self._guard.join(seconds)

    # -- threads -----------------------------------------------------------------------------------------------------

    def _stay(self) -> None:
        """Run the job; what fails in it shows in the connections."""
        with suppress(Exception):
            self._context.setJobGroup(self._group, "headrace: standing tasks")
            self._partitions.collect()
        self._over.set()

    def _watch(self) -> None:
        """Let the tasks meet, end the job when it is idle, and cancel it when its tasks do not end by themselves."""
        try:
            with suppress(OSError, EOFError, pickle.UnpicklingError):
                self._meet()
            if not self._ready.is_set():
                self.end()
            while not self._over.wait(max(0.0, self._used + self._idle - time.monotonic())):
                with self._lock:
                    if time.monotonic() - self._used >= self._idle:
                        self._close()
        finally:
            self.end()
            self._listener.close()
            self._job.join(_END_SECONDS)
            if self._job.is_alive():
                with suppress(Exception):  # a lost JVM does not answer
                    self._context.cancelJobGroup(self._group)
                self._job.join()

    def _meet(self) -> None:
        """Accept all tasks, send each the addresses of all, and wait until they are connected to each other."""
        until = time.monotonic() + START_SECONDS
        joined: dict[int, tuple[Channel, tuple[str, int]]] = {}
        self._listener.settimeout(_POLL_SECONDS)
        while len(joined) < self.tasks:
            if self._over.is_set() or time.monotonic() > until:
                return
            with suppress(TimeoutError, ConnectionLost):
                channel = Channel.accepted(self._listener.accept()[0], self._secret)
                with self._lock:
                    self._channels.append(channel)  # closed with the others, also if it goes no further
                hello = next_frame(channel, START_SECONDS)
                joined[hello.tag] = channel, pickle.loads(hello.data)
        self._listener.close()
        addresses = pickle.dumps([joined[index][1] for index in range(self.tasks)])
        for channel, _ in joined.values():
            channel.send(0, 0, addresses)
        for channel, _ in joined.values():
            next_frame(channel, START_SECONDS)
        self._used = time.monotonic()
        self._ready.set()


def _task_of(receipt: StateReceipt | Failure) -> Any:
    return -1 if isinstance(receipt, Failure) else receipt.task
