"""An epoch as one Spark job: scan tasks, one exchange of Arrow blobs by state task, state tasks (decision D5).

Only names, small messages and blobs pass through Spark; rows are read, and files written, inside the Python tasks.

A task that fails for a reason of ours or the user's (a file that changed, a full disk) would fail again: it sends its error
as a blob and the driver raises it, at once and with its own type. Anything else is Spark's to retry.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import EpochFailed, HeadraceError
from headrace.runtime.messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.scan import run_scan
from headrace.runtime.state import run_state

_FAILED: Final = b"\xff" * 8
"""How a blob begins that is a scan task's error: the length that other blobs begin with is never negative."""
_WORDS: Final = 8
"""Lines of a task's message that are passed on."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A task's error, in place of its receipt."""

    error: HeadraceError


class SparkExecutor:
    """Runs epochs on a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._context: SparkContext = spark.sparkContext
        self.cores = self._context.defaultParallelism

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        """One job; with nothing to scan, one stage.

        Raises the error of a task that found one, and `EpochFailed` with the task's own words when Spark gave up on it.
        """
        try:
            with _our_python(self._context):
                ended = self._job(scans, {state.task: pickle.dumps(state, protocol=5) for state in states})
        except (Py4JJavaError, PySparkException) as error:
            raise EpochFailed(_cause(error)) from error
        for each in ended:
            if isinstance(each, _Failure):
                raise each.error
        return [each for each in ended if not isinstance(each, _Failure)]

    def _job(self, scans: Sequence[ScanMessage], orders: dict[int, bytes]) -> list[StateReceipt | _Failure]:
        if not scans:
            return self._context.parallelize(sorted(orders), len(orders)).map(_Tick(orders)).collect()
        parts = self._context.parallelize([pickle.dumps(scan, protocol=5) for scan in scans], len(scans))
        blobs = parts.mapPartitions(_scan).partitionBy(len(orders), _owner)
        return blobs.mapPartitionsWithIndex(_State(orders)).collect()


@contextmanager
def _our_python(context: SparkContext) -> Iterator[None]:
    """Workers of a user's local session would run whatever `python3` is on PATH: ours must be this Python.

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
    for message in messages:
        scan = pickle.loads(message)
        try:
            yield from run_scan(scan)
        except HeadraceError as error:
            blob = _FAILED + pickle.dumps(error)
            yield from ((owner, blob) for owner in range(len(scan.owners)))


def _advance(order: bytes, blobs: Sequence[bytes]) -> StateReceipt | _Failure:
    failed = next((blob for blob in blobs if blob.startswith(_FAILED)), None)
    if failed is not None:
        return _Failure(pickle.loads(failed[len(_FAILED) :]))
    try:
        return run_state(pickle.loads(order), blobs)
    except HeadraceError as error:
        return _Failure(error)


class _State:
    """Picklable by reference to this module, with one epoch's orders."""

    def __init__(self, orders: dict[int, bytes]) -> None:
        self._orders = orders

    def __call__(self, task: int, blobs: Iterable[tuple[int, bytes]]) -> Iterator[StateReceipt | _Failure]:
        yield _advance(self._orders[task], [blob for _, blob in blobs])


class _Tick:
    """The same without a scan stage."""

    def __init__(self, orders: dict[int, bytes]) -> None:
        self._orders = orders

    def __call__(self, task: int) -> StateReceipt | _Failure:
        return _advance(self._orders[task], [])


def _cause(error: Exception) -> str:
    """What the task said last, without the stacks of Python and of the JVM around it."""
    text = str(error)
    if "Python worker exited unexpectedly" in text:
        return (
            "a Python worker died in every attempt at a task: killed from outside, or out of memory\n"
            "  Nothing of the epoch counts. Look at the system's log, give it more memory or fewer cores, and run again."
        )
    if "No module named 'headrace'" in text:
        return (
            "Spark's Python workers cannot import headrace\n"
            f"  Install it where they run, or set PYSPARK_PYTHON={sys.executable} before the session starts."
        )
    lines = text.splitlines()
    starts = [
        number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")
    ]
    if not starts:
        return lines[0] if lines else type(error).__name__
    after = lines[starts[-1] + 1 :]
    said = next((number for number, line in enumerate(after) if line and not line.startswith(" ")), 0)
    words = [line for line in after[said:] if line and not line.startswith(("JVM stacktrace", "\tat "))]
    return "a task failed in every attempt: " + "\n  ".join(words[:_WORDS] or ["for no reason it told"])
