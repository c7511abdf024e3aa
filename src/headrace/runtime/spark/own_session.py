"""The Spark session of a hub that was given none: opened, replaced when its JVM is lost, and closed with the hub."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.runtime.home.file_names import SPARK_SCRATCH
from headrace.runtime.spark.session import close_session, open_session


class OwnSession:
    """A session with a scratch folder in the home. A session that follows another gets a folder of its own."""

    def __init__(self, home: Path, cores: int | None, *, brief: bool) -> None:
        self._home, self._cores, self._brief = home, cores, brief
        self.spark = self._open()

    def renew(self) -> SparkSession:
        """Another session in place of one whose JVM is gone."""
        self.close()
        self.spark = self._open()
        return self.spark

    def close(self) -> None:
        """End the session, and delete its folder."""
        close_session(self.spark)
        self._scratch.cleanup()

    def _open(self) -> SparkSession:
        # Java may have left unfinished files when it was killed: that is no reason to fail.
        self._scratch = tempfile.TemporaryDirectory(
            prefix=f"{SPARK_SCRATCH}{os.getpid()}-", dir=self._home, ignore_cleanup_errors=True
        )
        try:
            return open_session(self._cores, scratch=Path(self._scratch.name), brief=self._brief)
        except BaseException:
            self._scratch.cleanup()
            raise
