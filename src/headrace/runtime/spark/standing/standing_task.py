"""A standing task: it stays in its worker, runs its part of one small epoch after another, and ends with its driver.

Task w of W does the scan tasks with index % W = w and the state tasks with number % W = w, so a state's runs, plans and indexes
stay open in one process. Blobs go from task to task, never through the driver.
"""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field
from typing import Final, NamedTuple

from pyspark import BarrierTaskContext

from headrace.dataclass import dataclass
from headrace.errors import EpochFailed, HeadraceError
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.spark.standing.channel import (
    Channel,
    ConnectionLost,
    Frame,
    finish_sending,
    next_frame,
    transfer,
)
from headrace.runtime.spark.standing.task_functions import Blob, Failure, advanced, failed_scan, packed, scan
from headrace.runtime.tasks.file_writes import LaterWrites
from headrace.runtime.tasks.levels import Finished

LOOPBACK: Final = "127.0.0.1"
_JOINING_SECONDS: Final = 30.0
_BEAT_SECONDS: Final = 1.0


class NotForeseen(EpochFailed):
    """A task failed with an error that is not Headrace's: a job of its own tries it again, and reports it."""


class Round(NamedTuple):
    """An epoch's messages to all standing tasks, pickled once: what the tasks have in common is in it once."""

    scans: Sequence[ScanMessage]
    states: Sequence[StateMessage]


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a task needs to join: the driver's address, the secret of the job, and the number of tasks.

    `local`: all tasks are on the driver's machine. A task that hears nothing for `patience` seconds ends: its driver was
    stopped, and others need the core.
    """

    address: tuple[str, int]
    secret: bytes = field(repr=False)
    tasks: int
    local: bool
    patience: float


class StandingTask:
    """The function of one partition of the standing job."""

    def __init__(self, invitation: Invitation) -> None:
        self.invitation = invitation

    def __call__(self, _: Iterable[int]) -> Iterator[int]:
        """Stay until the driver ends the job. A lost connection ends the task, too: the driver sees it, and decides."""
        context = BarrierTaskContext.get()
        self.index = context.partitionId()
        self.host = LOOPBACK
        if not self.invitation.local:
            self.host = context.getTaskInfos()[self.index].address.rpartition(":")[0]
        self._early: list[Frame] = []  # blobs of tasks that began the next epoch sooner
        self._finished: list[Finished] = []
        self._writes = LaterWrites()
        with suppress(OSError):
            self._stay()
        yield self.index

    def _stay(self) -> None:
        with ExitStack() as opened:
            self._join(opened)
            channels, patience = [self.driver, *self.peers.values()], self.invitation.patience
            idle_since = time.monotonic()
            while time.monotonic() - max(idle_since, self.driver.heard) < patience:
                frames = transfer(channels, patience)
                self._early += [frame for channel, frame in frames if channel is not self.driver]
                for frame in (frame for channel, frame in frames if channel is self.driver):
                    self.run(frame.round, pickle.loads(frame.data))
                    idle_since = time.monotonic()

    def _join(self, opened: ExitStack) -> None:
        """Connect to the driver, then to all other tasks: to lower ones, accepting higher ones."""
        secret = self.invitation.secret
        listener = opened.enter_context(socket.create_server((self.host, 0)))
        self.driver = opened.enter_context(Channel.connect(self.invitation.address, secret))
        self.driver.send(0, self.index, pickle.dumps((self.host, listener.getsockname()[1])))
        addresses = pickle.loads(next_frame(self.driver, _JOINING_SECONDS).data)
        self.peers: dict[int, Channel] = {}
        for lower in range(self.index):
            self.peers[lower] = opened.enter_context(Channel.connect(addresses[lower], secret))
            self.peers[lower].send(0, self.index, b"")
        listener.settimeout(_JOINING_SECONDS)
        while len(self.peers) < self.invitation.tasks - 1:
            with suppress(ConnectionLost):
                peer = opened.enter_context(Channel.accepted(listener.accept()[0], secret))
                self.peers[next_frame(peer, _JOINING_SECONDS).tag] = peer
        listener.close()
        self.driver.send(0, self.index, b"")
        opened.enter_context(_Beats(self.driver))

    def run(self, number: int, messages: Round) -> None:
        """One epoch: scan, exchange, advance, answer; then write files, and do what the next one would do first."""
        states = {state.task: state for state in messages.states if self._is_own(state.task)}
        blobs: dict[int, list[Blob]] = {task: [] for task in states}
        own_scans = messages.scans[self.index :: self.invitation.tasks]
        for message in own_scans:
            for owner, blob in self.scan(message).items():
                if self._is_own(owner):
                    blobs[owner].append(blob)
                else:
                    self.peers[owner % self.invitation.tasks].send(number, owner, packed(blob))
        self.exchange(number, (len(messages.scans) - len(own_scans)) * len(states), blobs)
        receipts = [self.advance(states[task], blobs[task]) for task in states]
        self.answer(number, receipts)
        self.write_files(number)
        self.prepare_next()

    def _is_own(self, state_task: int) -> bool:
        return state_task % self.invitation.tasks == self.index

    def scan(self, message: ScanMessage) -> dict[int, Blob]:
        """One blob for each state task, by its number; those for other processes are packed."""
        try:
            return {
                owner: blob if self._is_own(owner) else packed(blob)
                for owner, blob in scan(message, self._writes)
            }
        except Exception as error:  # noqa: BLE001 - of any kind: the job that runs it again reports it
            return dict(failed_scan(message, NotForeseen(f"{type(error).__name__}: {error}")))

    def exchange(self, number: int, awaited: int, blobs: Mapping[int, list[Blob]]) -> None:
        """Receive as many blobs of other tasks as are `awaited` while the own ones are sent."""
        peers, frames = list(self.peers.values()), self._early
        self._early = []
        while True:
            for frame in frames:
                if frame.round != number:
                    raise ConnectionLost("a blob of another epoch")
                blobs[frame.tag].append(frame.data)
            awaited -= len(frames)
            if not (awaited or any(peer.is_sending for peer in peers)):
                return
            frames = [frame for _, frame in transfer([*peers, self.driver], None)]

    def advance(self, message: StateMessage, blobs: Sequence[Blob]) -> StateReceipt | Failure:
        """The receipt of one state task."""
        try:
            finished = advanced(message, blobs, self._writes)
        except Exception as error:  # noqa: BLE001 - as for a scan
            return Failure(NotForeseen(f"{type(error).__name__}: {error}"))
        if isinstance(finished, Failure):
            return finished
        self._finished.append(finished)
        return finished.receipts[0]

    def answer(self, number: int, receipts: Sequence[StateReceipt | Failure]) -> None:
        """Send the receipts to the driver."""
        self.driver.send(number, self.index, pickle.dumps(receipts, protocol=5))
        finish_sending([self.driver])

    def write_files(self, number: int) -> None:
        """Write what the receipts name, and send the driver that it is done; or the error. It waits for it before it publishes."""
        failure: Failure | None = None
        try:
            self._writes.finish()
        except HeadraceError as error:
            failure = Failure(error)
        except Exception as error:  # noqa: BLE001 - as for a scan
            failure = Failure(NotForeseen(f"{type(error).__name__}: {error}"))
        self.driver.send(number, self.index, pickle.dumps(failure))
        finish_sending([self.driver])

    def prepare_next(self) -> None:
        """What the next epoch would do first, while the driver publishes this one."""
        while self._finished:
            self._finished.pop().prepare_next()


class _Beats:
    """A thread that shows the driver that this process is alive, also while a kernel computes."""

    def __init__(self, driver: Channel) -> None:
        self._driver, self._ended = driver, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="headrace-beats", daemon=True)

    def _beat(self) -> None:
        with suppress(OSError):  # the task itself sees that the connection has ended
            while not self._ended.wait(_BEAT_SECONDS):
                self._driver.beat()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
