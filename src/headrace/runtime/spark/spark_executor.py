"""The executor that runs epochs on Spark: a small one in standing tasks, any other as a job of its own (decision 22).

The job has scan tasks, one exchange of Arrow blobs by state task, and state tasks. Only names, small messages and blobs pass through
Spark; rows are read, and files written, inside the Python tasks. What fails for a reason that is not Headrace's is retried by Spark.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import EpochFailed
from headrace.runtime.messages.exchange_files import exchange_folder
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.spark.given_session import NOT_IMPORTED, cannot_import, our_python
from headrace.runtime.spark.session import was_interrupted
from headrace.runtime.spark.standing.pace import EASY_ROWS
from headrace.runtime.spark.standing.standing_tasks import StandingTasks, Use
from headrace.runtime.spark.standing.task_functions import Failure, advance, packed, scan, without_failures

if TYPE_CHECKING:
    from headrace.runtime.spark.given_session import GivenSession
    from headrace.runtime.spark.own_session import OwnSession

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


_LEVELS_ROWS: Final = 20_000
"""Rows of an epoch for which one task for all levels takes less than a round for each level."""


class SparkExecutor:
    """Runs epochs on a Spark session."""

    few_rows = 5_000
    """Rows of an epoch in standing tasks for which one state task takes less than several: the calls of each cost more than
    its share of the rows."""

    def __init__(self, session: GivenSession | OwnSession, *, standing: Use | None = None) -> None:
        """An own session may still be starting: what needs it waits for it, and raises why it did not start.

        `standing`: the use of standing tasks, by default the session's setting `spark.headrace.standingTasks`.
        """
        self._session, self._use_of_standing = session, standing
        self._standing: StandingTasks | None = None
        if session.as_status()["state"] == "ready":
            self._standing = StandingTasks(session.context, standing)
        self.cores = session.cores

    @property
    def spark(self) -> SparkSession:
        """The session, for DataFrames."""
        return self._session.spark

    @property
    def standing(self) -> StandingTasks:
        """The standing tasks of the session, which has started then."""
        if self._standing is None:
            self._standing = StandingTasks(self._context, self._use_of_standing)
        return self._standing

    @property
    def _context(self) -> SparkContext:
        return self._session.context

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        """An epoch, in standing tasks or as a job; with nothing to scan, the job has one stage.

        Raises a task's own error, and `EpochFailed` with the task's message when Spark gave up on it.
        """
        before, standing = sys.exception(), self.standing
        began = time.monotonic()
        try:
            with our_python(self._context):
                receipts = standing.run(scans, states)
                if receipts is None:
                    receipts = without_failures(self._job(scans, states))
        except Exception as error:
            if was_interrupted(error, before):
                raise KeyboardInterrupt from error
            if not self._is_alive():
                raise EpochFailed(_GONE) from error
            if not isinstance(error, Py4JJavaError | PySparkException):
                raise
            raise epoch_failure(str(error)) from error
        standing.saw(scans, began)
        return receipts

    @property
    def easy_rows(self) -> int | None:
        """Those of an epoch in standing tasks, where there are any."""
        return EASY_ROWS if self._standing is not None and self._standing.awaiting(EASY_ROWS) else None

    def state_tasks(self, most: int, rows: int, levels: int) -> int:
        """One for each standing task that the epoch will find; one for all if it has few rows, or some more and levels, which then run there."""
        standing = 0 if self._standing is None else self._standing.awaiting(rows)
        if not standing:
            return most
        return 1 if rows <= (_LEVELS_ROWS if levels else self.few_rows) else min(most, standing)

    def has_all_slots(self, tasks: int) -> bool:
        """Whether there is only one state task: others may be in other processes."""
        return tasks == 1

    def close(self) -> None:
        """End the standing tasks."""
        if self._standing is not None:
            self._standing.close()

    def await_files(self) -> None:
        """Wait for the files of standing tasks; those of a job are written when it ends."""
        if self._standing is not None:
            self._standing.await_files()

    def prepare_next(self) -> None:
        """Do nothing: standing tasks do it by themselves, and those of a job have ended."""

    def revive(self) -> bool:
        """Start another session if the JVM of this one is gone, or it did not start; whether it did.

        Raises `EpochFailed` when the session was passed by a program.
        """
        if self._is_alive():
            return False
        if self._standing is not None:
            self._standing.end()
            self._standing = None
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

    def _job(
        self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]
    ) -> list[StateReceipt | Failure]:
        messages = {state.task: pickle.dumps(state, protocol=5) for state in states}
        if not scans:
            return _ended(self._context.parallelize(sorted(messages), len(messages)).map(_Tick(messages)))
        parts = self._context.parallelize(
            [pickle.dumps(message, protocol=5) for message in scans], len(scans)
        )
        with exchange_folder(self._session.exchange) as folder:
            blobs = parts.mapPartitions(_Scan(folder)).partitionBy(len(messages), _owner)
            return _ended(blobs.mapPartitionsWithIndex(_State(messages)))


def _ended(tasks: RDD[bytes]) -> list[StateReceipt | Failure]:
    """Run a job; the ends of its state tasks."""
    return [pickle.loads(one) for one in tasks.collect()]


def _owner(task: int) -> int:
    return task


class _Scan:
    """Scan tasks, picklable by reference to this module; large blobs are files of `folder`, if it is given."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def __call__(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        for message in messages:
            for task, blob in scan(pickle.loads(message)):
                yield task, packed(blob, self._folder)


class _State:
    """As `_Scan`, an epoch's state messages. Receipts are pickled here: Spark's own pickler calls Python for each object."""

    def __init__(self, messages: dict[int, bytes]) -> None:
        self._messages = messages

    def __call__(self, task: int, blobs: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
        ended = advance(pickle.loads(self._messages[task]), [blob for _, blob in blobs])
        yield pickle.dumps(ended, protocol=5)


class _Tick:
    """As `_State`, without a scan stage."""

    def __init__(self, messages: dict[int, bytes]) -> None:
        self._messages = messages

    def __call__(self, task: int) -> bytes:
        return pickle.dumps(advance(pickle.loads(self._messages[task]), []), protocol=5)


def epoch_failure(text: str) -> EpochFailed:
    """A task's last message in what Spark reports, without the stacks of Python and of the JVM around it."""
    if "Python worker exited unexpectedly" in text:
        return EpochFailed(
            "a Python worker died in every attempt at a task: killed from outside, or out of memory\n"
            "  Nothing of the epoch counts. Read the system's log, give it more memory or fewer cores, and run again."
        )
    if NOT_IMPORTED in text:
        return cannot_import()
    lines = text.splitlines()
    starts = [
        number for number, line in enumerate(lines) if line.endswith("Traceback (most recent call last):")
    ]
    if not starts:
        return EpochFailed(lines[0] if lines else "for no reason it gave")
    after = lines[starts[-1] + 1 :]
    start = next((number for number, line in enumerate(after) if line and not line.startswith(" ")), 0)
    words = [line for line in after[start:] if line and not line.startswith(("JVM stacktrace", "\tat "))]
    message = words[:_WORDS] or ["for no reason it gave"]
    kind = message[0].partition(":")[0]
    return EpochFailed(
        "a task failed in every attempt: " + "\n  ".join(message), lasting=not kind.endswith(_PASSING)
    )
