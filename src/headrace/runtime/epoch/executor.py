"""The interface of executors, which run an epoch's scan and state tasks, and the executor that runs them in this process,
without Spark; `spark_executor` has the other one.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from headrace.runtime.home.quick_start import matrices_have_one_thread
from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.tasks.levels import Finished, run_states
from headrace.runtime.tasks.scan.scan_task import scan_blobs

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


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

    @property
    def easy_rows(self) -> int | None:
        """The rows up to which an epoch takes little besides its rows, now; None where it is the same for all epochs."""
        ...

    def state_tasks(self, most: int, rows: int, levels: int) -> int:
        """How many state tasks an epoch of so many rows should have, `most` at most; the plan has `levels` above the first.

        More than there are processes for would only divide their work.
        """
        ...

    def has_all_slots(self, tasks: int) -> bool:
        """Whether so many state tasks run in one process, which then runs all levels of an epoch."""
        ...

    def await_files(self) -> None:
        """Return once all files that the last receipts name are written, though not durable.

        Called before an epoch is published; raises what `run` raises.
        """
        ...

    def prepare_next(self) -> None:
        """Between two epochs, do ahead what the next one would do first."""
        ...

    def revive(self) -> bool:
        """Restart after a failed epoch what the failure may have stopped, a JVM; returns whether that was needed."""
        ...

    def close(self) -> None:
        """Release what it holds between epochs: its hub is closed."""
        ...

    def ready(self, seconds: float) -> bool:
        """Wait so long for an engine that is starting; whether `run` would not wait for it."""
        ...

    def give_up(self) -> None:
        """End a start that is under way: `run` then raises an error."""
        ...

    def as_status(self) -> dict[str, Any]:
        """Plain values: the engine, its state (idle, starting, ready or failed), and the error of a start that failed."""
        ...


@cache
def _thread_pools() -> ThreadpoolController:
    """The thread pools of numpy's libraries for matrices that are loaded by now: it goes through all libraries of the process."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - a short command has loaded numpy with one thread

    return ThreadpoolController().select(user_api="blas")


def _one_thread() -> AbstractContextManager[object]:
    """A block in which products of matrices have one thread."""
    if matrices_have_one_thread() or all(pool.num_threads == 1 for pool in _thread_pools().lib_controllers):
        return nullcontext()
    return _thread_pools().limit(limits=1)


class LocalExecutor:
    """All tasks in this process, one after the other, without a JVM. For tests, `hr.test` and small inputs."""

    cores = 1
    easy_rows: int | None = None
    _finished: Finished | None = None
    """The tasks of the last epoch, until the next one is prepared."""

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        """Scan, exchange, advance; messages are pickled as for another process.

        Matrix products have one thread, as in Spark's workers: more of them wait for each other actively where cores are few.
        """
        inbox: dict[int, list[ScanBlob]] = {state.task: [] for state in states}
        scans, states = pickle.loads(pickle.dumps((scans, states)))
        with _one_thread():
            for scan in scans:
                for task, blob in scan_blobs(scan):
                    inbox[task].append(blob)
            self._finished = run_states(states, inbox)
        return self._finished.receipts

    def await_files(self) -> None:
        """Return at once: files are written when their receipts are returned."""

    def prepare_next(self) -> None:
        """Prepare the tasks of the last epoch for the next one."""
        finished, self._finished = self._finished, None
        if finished is not None:
            finished.prepare_next()

    def state_tasks(self, most: int, rows: int, levels: int) -> int:  # noqa: ARG002
        """As many as the hub has."""
        return most

    def has_all_slots(self, tasks: int) -> bool:  # noqa: ARG002
        """True."""
        return True

    def revive(self) -> bool:
        """False: only this process could be lost."""
        return False

    def close(self) -> None:
        """Nothing is held."""

    def ready(self, _: float) -> bool:
        """True: there is nothing to start."""
        return True

    def give_up(self) -> None:
        """Do nothing: there is nothing to start."""

    def as_status(self) -> dict[str, Any]:
        """Always ready."""
        return {"engine": "local", "state": "ready", "error": None}
