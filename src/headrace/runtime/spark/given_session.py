"""The Spark session that a program passed to a hub: it is used as it is, and its owner ends it."""

from __future__ import annotations

from typing import Any, NoReturn

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
