"""Who runs an epoch's tasks: this process, or Spark. Both run the same two functions."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Protocol

from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.tasks.scan.scan_task import run_scan
from headrace.runtime.tasks.state.state_task import run_state


class Executor(Protocol):
    """Runs scan tasks, exchanges their blobs by state task, runs state tasks.

    Contract: every state task runs exactly once in the receipts, also when no scan task sent it anything; a task may be
    run more than once, but only one attempt's receipt is returned.
    """

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""
        ...

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        """One epoch's job."""
        ...

    def revive(self) -> bool:
        """After a failed epoch: start anew what it may have taken along, a JVM; whether that was needed."""
        ...


class LocalExecutor:
    """All tasks in this process, one after the other: no JVM. For tests, for `hr.test`, for small questions."""

    cores = 1

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        """Scan, exchange, advance; messages and receipts are pickled as they would be on the way to another process."""
        inbox: dict[int, list[bytes]] = {state.task: [] for state in states}
        for scan in scans:
            for task, blob in run_scan(pickle.loads(pickle.dumps(scan))):
                inbox[task].append(blob)
        return [run_state(pickle.loads(pickle.dumps(state)), inbox[state.task]) for state in states]

    def revive(self) -> bool:
        """There is nothing to lose but this process."""
        return False
