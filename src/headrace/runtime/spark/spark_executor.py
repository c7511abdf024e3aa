"""An epoch as one Spark job: scan tasks, one exchange of Arrow blobs by state task, state tasks (decision D5).

Only names, small messages and blobs pass through Spark; rows are read, and files written, inside the Python tasks.

A task that fails for a reason of the user's or of Headrace (a file that changed, a full disk) would fail again: it sends its
error as a blob and the driver raises it, at once and with its own type. Anything else is retried by Spark.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import EpochFailed, HeadraceError
from headrace.runtime.home.gc_control import modules_not_sought
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.spark.session import was_interrupted
from headrace.runtime.tasks.scan.scan_task import run_scan
from headrace.runtime.tasks.state.state_task import run_state

if TYPE_CHECKING:
    from headrace.runtime.spark.given_session import GivenSession
    from headrace.runtime.spark.own_session import OwnSession

_FAILED: Final = b"\xff" * 8
"""Prefix of a blob that is a scan task's error: the length that other blobs begin with is never negative."""
_PASSING: Final = (
    "OSError",
    "IOError",
    "EOFError",
    "MemoryError",
    "TimeoutError",
    "ConnectionError",
    "ConnectionResetError",
)
"""Errors of Python that may be transient; others are of the program, and recur."""
_GONE: Final = (
    "the JVM that runs Spark is gone: killed from outside, or out of memory\n"
    "  Nothing of the epoch counts. Read the system's log, or give it more memory."
)
_WORDS: Final = 8
"""Lines of a task's message that are passed on."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A task's error, in place of its receipt."""

    error: HeadraceError


class SparkExecutor:
    """Runs epochs on a Spark session."""

    def __init__(self, session: GivenSession | OwnSession) -> None:
        """An own session may still be starting: what needs it waits for it, and raises why it did not start."""
        self._session = session
        self.cores = session.cores

    @property
    def spark(self) -> SparkSession:
        """The session, for DataFrames."""
        return self._session.spark

    @property
    def _context(self) -> SparkContext:
        return self._session.context

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        """One job; with nothing to scan, one stage.

        Raises a task's own error, and `EpochFailed` with the task's message when Spark gave up on it.
        """
        before = sys.exception()
        context = self._context
        try:
            with _our_python(context):
                ended = self._job(scans, {state.task: pickle.dumps(state, protocol=5) for state in states})
        except Exception as error:
            if was_interrupted(error, before):
                raise KeyboardInterrupt from error
            if not self._is_alive():
                raise EpochFailed(_GONE) from error
            if not isinstance(error, Py4JJavaError | PySparkException):
                raise
            raise _epoch_failure(error) from error
        for receipt in ended:
            if isinstance(receipt, _Failure):
                raise receipt.error
        return [receipt for receipt in ended if not isinstance(receipt, _Failure)]

    def revive(self) -> bool:
        """Start another session if the JVM of this one is gone, or it did not start; whether it did.

        Raises `EpochFailed` when the session was passed by a program.
        """
        if self._is_alive():
            return False
        self._session.renew()
        return True

    def ready(self, seconds: float) -> bool:
        """Wait so long for a session that is starting; whether `run` would not wait for it."""
        return self._session.ready(seconds)

    def give_up(self) -> None:
        """End the start of a session that is under way: what waits for it raises `SessionFailed`."""
        self._session.give_up()

    def as_status(self) -> dict[str, Any]:
        """Plain values: whether the session is idle, starting, ready or has failed to start, and why."""
        return self._session.as_status()

    def _is_alive(self) -> bool:
        try:
            return not self._context._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - a JVM that does not answer is lost, whatever the error
            return False

    def _job(self, scans: Sequence[ScanMessage], orders: dict[int, bytes]) -> list[StateReceipt | _Failure]:
        if not scans:
            return self._context.parallelize(sorted(orders), len(orders)).map(_Tick(orders)).collect()
        parts = self._context.parallelize([pickle.dumps(scan, protocol=5) for scan in scans], len(scans))
        blobs = parts.mapPartitions(_scan).partitionBy(len(orders), _owner)
        return blobs.mapPartitionsWithIndex(_State(orders)).collect()


@contextmanager
def _our_python(context: SparkContext) -> Iterator[None]:
    """Run workers of a user's local session with this Python, not with any `python3` on PATH.

    A Python that was chosen (PYSPARK_PYTHON), and workers on other machines, stay as they are.
    """
    chosen = context.pythonExec
    if chosen == "python3" and context.master.startswith("local"):
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = chosen


def _owner(task: int) -> int:
    return task


def _scan(messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    modules_not_sought()
    for message in messages:
        scan = pickle.loads(message)
        try:
            yield from run_scan(scan)
        except HeadraceError as error:
            blob = _FAILED + pickle.dumps(error)
            yield from ((owner, blob) for owner in range(len(scan.owners)))


def _advance(order: bytes, blobs: Sequence[bytes]) -> StateReceipt | _Failure:
    modules_not_sought()
    failed = next((blob for blob in blobs if blob.startswith(_FAILED)), None)
    if failed is not None:
        return _Failure(pickle.loads(failed[len(_FAILED) :]))
    try:
        return run_state(pickle.loads(order), blobs)
    except HeadraceError as error:
        return _Failure(error)


class _State:
    """An epoch's state messages, picklable by reference to this module."""

    def __init__(self, orders: dict[int, bytes]) -> None:
        self._task_messages = orders

    def __call__(self, task: int, blobs: Iterable[tuple[int, bytes]]) -> Iterator[StateReceipt | _Failure]:
        yield _advance(self._task_messages[task], [blob for _, blob in blobs])


class _Tick:
    """As `_State`, without a scan stage."""

    def __init__(self, orders: dict[int, bytes]) -> None:
        self._task_messages = orders

    def __call__(self, task: int) -> StateReceipt | _Failure:
        return _advance(self._task_messages[task], [])


def _epoch_failure(error: Exception) -> EpochFailed:
    """The task's last message, without the stacks of Python and of the JVM around it."""
    text = str(error)
    if "Python worker exited unexpectedly" in text:
        return EpochFailed(
            "a Python worker died in every attempt at a task: killed from outside, or out of memory\n"
            "  Nothing of the epoch counts. Read the system's log, give it more memory or fewer cores, and run again."
        )
    if "No module named 'headrace'" in text:
        return EpochFailed(
            "Spark's Python workers cannot import headrace\n"
            f"  Install it where they run, or set PYSPARK_PYTHON={sys.executable} before the session starts.",
            lasting=True,
        )
    lines = text.splitlines()
    starts = [
        number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")
    ]
    if not starts:
        return EpochFailed(lines[0] if lines else type(error).__name__)
    after = lines[starts[-1] + 1 :]
    start = next((number for number, line in enumerate(after) if line and not line.startswith(" ")), 0)
    words = [line for line in after[start:] if line and not line.startswith(("JVM stacktrace", "\tat "))]
    message = words[:_WORDS] or ["for no reason it gave"]
    kind = message[0].partition(":")[0]
    return EpochFailed(
        "a task failed in every attempt: " + "\n  ".join(message), lasting=not kind.endswith(_PASSING)
    )
