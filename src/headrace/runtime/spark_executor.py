"""An epoch as one Spark job: scan tasks, one exchange of Arrow blobs by state task, state tasks (decision D5).

Only names, small messages and blobs pass through Spark; rows are read, and files written, inside the Python tasks.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.errors import EpochFailed
from headrace.runtime.messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.scan import run_scan
from headrace.runtime.state import run_state


class SparkExecutor:
    """Runs epochs on a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._context: SparkContext = spark.sparkContext
        self.cores = self._context.defaultParallelism

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        """One job; with nothing to scan, one stage.

        Raises `EpochFailed` with the task's own error when Spark gives up on a task.
        """
        orders = {state.task: pickle.dumps(state, protocol=5) for state in states}
        try:
            if scans:
                parts = self._context.parallelize(
                    [pickle.dumps(scan, protocol=5) for scan in scans], len(scans)
                )
                blobs = parts.mapPartitions(_scan).partitionBy(len(orders), _owner)
                return blobs.mapPartitionsWithIndex(_State(orders)).collect()
            return self._context.parallelize(sorted(orders), len(orders)).map(_Tick(orders)).collect()
        except Py4JJavaError as error:
            raise EpochFailed(_cause(error)) from error


def _owner(task: int) -> int:
    return task


def _scan(messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for message in messages:
        yield from run_scan(pickle.loads(message))


class _State:
    """Picklable by reference to this module, with one epoch's orders."""

    def __init__(self, orders: dict[int, bytes]) -> None:
        self._orders = orders

    def __call__(self, task: int, blobs: Iterable[tuple[int, bytes]]) -> Iterator[StateReceipt]:
        yield run_state(pickle.loads(self._orders[task]), [blob for _, blob in blobs])


class _Tick:
    """The same without a scan stage."""

    def __init__(self, orders: dict[int, bytes]) -> None:
        self._orders = orders

    def __call__(self, task: int) -> StateReceipt:
        return run_state(pickle.loads(self._orders[task]), [])


def _cause(error: Py4JJavaError) -> str:
    """The last line of the Python traceback inside Spark's message: what failed, without the JVM's stack."""
    text = str(error.java_exception)
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")
    ]
    python = [
        line for line in lines if ": " in line and not line.startswith(("File", "org.", "Driver", "Job"))
    ]
    return python[-1] if python else lines[0] if lines else "the job failed"
