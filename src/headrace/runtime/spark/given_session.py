"""The Spark session that a program passed to a hub: it is used as it is, and its owner ends it; and the Python of its
workers, which has to be able to import headrace.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.dataclass import dataclass
from headrace.errors import EpochFailed


@dataclass(frozen=True, slots=True)
class GivenSession:
    """As `OwnSession`, of a session that has started."""

    spark: SparkSession

    @property
    def context(self) -> SparkContext:
        """Its Spark context."""
        return self.spark.sparkContext

    @property
    def cores(self) -> int:
        """Number of tasks that run at a time."""
        return self.context.defaultParallelism

    @property
    def exchange(self) -> None:
        """None: its tasks may run on several machines."""

    def ready(self, _: float) -> bool:
        """True: it has started."""
        return True

    def as_status(self) -> dict[str, Any]:
        """Plain values: it is ready."""
        return {"engine": "spark", "state": "ready", "error": None}

    def give_up(self) -> None:
        """Do nothing: no start is under way."""

    def renew(self) -> NoReturn:
        """Raise `EpochFailed`: another session is its owner's to make."""
        raise EpochFailed(
            "the JVM of the Spark session that was passed is gone\n"
            "  Make another session and open the home with it: the home is complete, and continues where it was.",
            lasting=True,
        )


NOT_IMPORTED: Final = "No module named 'headrace'"
"""What a worker reports whose Python does not have this package."""


def cannot_import() -> EpochFailed:
    """The error of workers that report `NOT_IMPORTED`."""
    return EpochFailed(
        "Spark's Python workers cannot import headrace\n"
        f"  Install it where they run, or set PYSPARK_PYTHON={sys.executable} before the session starts.",
        lasting=True,
    )


@contextmanager
def our_python(context: SparkContext) -> Iterator[None]:
    """Run workers of a user's local session with this Python, not with any `python3` on PATH.

    A Python that was chosen (PYSPARK_PYTHON), and workers on other machines, stay as they are. Epochs and micro-batches
    overlap: the last of them to end restores what it was.
    """
    with _LOCK:
        if context.pythonExec == "python3" and context.master.startswith("local"):
            context.pythonExec = sys.executable
            _USERS[id(context)] = 0
        if id(context) in _USERS:
            _USERS[id(context)] += 1
    try:
        yield
    finally:
        with _LOCK:
            if id(context) in _USERS:
                _USERS[id(context)] -= 1
                if not _USERS[id(context)]:
                    del _USERS[id(context)]
                    context.pythonExec = "python3"


_LOCK: Final = threading.Lock()
_USERS: Final[dict[int, int]] = {}
"""How many blocks run the workers of a context, by its id, with this Python now."""
