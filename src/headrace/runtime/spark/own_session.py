"""The Spark session of a hub that was given none: it starts in the background, is replaced when its JVM is lost, and ends with the hub."""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.runtime.home.file_names import SPARK_SCRATCH
from headrace.runtime.spark.jvm import SessionFailed
from headrace.runtime.spark.launch import launch, usable_cores

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_GIVEN_UP = "the start of Spark was given up"


class OwnSession:
    """A session with a scratch folder in the home. A session that follows another gets a folder of its own."""

    def __init__(self, home: Path, cores: int | None, *, brief: bool, start: bool = True) -> None:
        """Start the JVM and do not wait for it, or without `start` leave it to the first use.

        Raises `SessionAlreadyOpen` and `NoJava`.
        """
        self._home, self._brief = home, brief
        self.cores = cores or usable_cores()
        self._lock = threading.Lock()
        self._start: _Start | None = None
        if start:
            self._started()

    def _started(self) -> _Start:
        with self._lock:
            if self._start is None:
                self._start = _Start(self._home, self.cores, brief=self._brief)
            return self._start

    @property
    def context(self) -> SparkContext:
        """Its Spark context, as soon as there is one. Raises `SessionFailed` if it did not start."""
        return self._started().context.result()

    @property
    def spark(self) -> SparkSession:
        """The session, for DataFrames."""
        from headrace.runtime.spark.session import sql_session  # noqa: PLC0415 - PySpark is imported while Java starts

        return sql_session(self.context)

    @property
    def exchange(self) -> Path:
        """A folder that all tasks can read, for the blobs of a job: they run on this machine."""
        return self._started().scratch / "exchange"

    def ready(self, seconds: float) -> bool:
        """Wait so long for the start to end, well or not; whether it has."""
        return bool(wait([self._started().context], seconds).done)

    def as_status(self) -> dict[str, Any]:
        """Plain values: whether it is idle, starting, ready or has failed to start, and why."""
        failure = None
        if self._start is None:
            state = "idle"
        elif not self._start.context.done():
            state = "starting"
        else:
            failure = self._start.context.exception()
            state = "ready" if failure is None else "failed"
        return {"engine": "spark", "state": state, "error": None if failure is None else str(failure)}

    def renew(self) -> None:
        """Start another session in place of one whose JVM is gone, or that did not start."""
        self.close()
        self._start = None

    def give_up(self) -> None:
        """End a start that is under way: those who wait for it get `SessionFailed`. A session that has started is left."""
        if self._start is not None:
            self._start.give_up()

    def close(self) -> None:
        """End the session or its start, and delete its folder."""
        if self._start is not None:
            self._start.close()


class _Start:
    """The start of one session, in a thread of its own."""

    def __init__(self, home: Path, cores: int, *, brief: bool) -> None:
        self.context: Future[SparkContext] = Future()
        self._given_up = self._is_warm = False
        home.mkdir(parents=True, exist_ok=True)
        # Java may have left unfinished files when it was killed: that is no reason to fail.
        self._scratch = tempfile.TemporaryDirectory(
            prefix=f"{SPARK_SCRATCH}{os.getpid()}-", dir=home, ignore_cleanup_errors=True
        )
        self.scratch = Path(self._scratch.name)
        try:
            self._launched = launch(cores, scratch=self.scratch, brief=brief)
        except BaseException:
            self._scratch.cleanup()
            raise
        self._thread = threading.Thread(target=self._run, name="headrace-spark", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from headrace.runtime.spark.session import begin, sql_session, warm  # noqa: PLC0415 - while Java starts

        try:
            context = begin(self._launched)
        except BaseException as failure:  # noqa: BLE001 - raised again where the context is asked for
            self.context.set_exception(SessionFailed(_GIVEN_UP) if self._given_up else failure)
            return
        self.context.set_result(context)
        with suppress(Exception):  # whatever it is, the first epoch meets it too, and reports it
            warm(context)
            self._is_warm = True
            if self._launched.sharing.is_recording:
                sql_session(context)  # its classes are to be in the list too

    def give_up(self) -> None:
        if not self.context.done():
            self._given_up = True
            self._launched.jvm.process.kill()

    def close(self) -> None:
        self.give_up()
        if self.context.exception() is None:
            from headrace.runtime.spark.session import close  # noqa: PLC0415 - it was imported by the start

            close(self._launched, self.context.result())
            self._thread.join()
            if self._is_warm:
                self._launched.sharing.make()
        self._scratch.cleanup()
