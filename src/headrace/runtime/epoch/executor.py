"""Executors of an epoch's tasks: in this process, or on Spark. Both run the same two functions."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Protocol

from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.tasks.scan.scan_task import run_scan
from headrace.runtime.tasks.state.state_task import run_state


class Executor(Protocol):
    """Runs scan tasks, exchanges their blobs by state task, runs state tasks.

    Contract: every state task is exactly once in the receipts, also when no scan task sent it anything; a task may run more than
    once, but only one attempt's receipt is returned.
    """

    @property
    def cores(self) -> int:
        """Number of tasks that run at a time."""
        ...

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        """One epoch's job."""
        ...

    def revive(self) -> bool:
        """Restart after a failed epoch what the failure may have stopped, a JVM; returns whether that was needed."""
        ...

    def close(self) -> None:
        """Release what it holds between epochs: its hub is closed."""
        ...


class LocalExecutor:
    """All tasks in this process, one after the other, without a JVM. For tests, `hr.test` and small inputs."""

    cores = 1

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        """Scan, exchange, advance; messages and receipts are pickled as for another process."""
        inbox: dict[int, list[bytes]] = {state.task: [] for state in states}
        for scan in scans:
            for task, blob in run_scan(pickle.loads(pickle.dumps(scan))):
                inbox[task].append(blob)
        return [run_state(pickle.loads(pickle.dumps(state)), inbox[state.task]) for state in states]

    def revive(self) -> bool:
        """False: only this process could be lost."""
        return False

    def close(self) -> None:
        """Nothing is held."""
