"""The standing tasks of one executor: started when epochs are small and frequent, ended when idle or in the way.

At most half of the cores are theirs, and those of all hubs of this process together never take the last one: streaming
DataFrames, other hubs and the programs of the user of the session need cores, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Literal, TypeAlias, get_args

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from headrace.errors import EpochFailed, UserError
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.spark.standing.channel import ConnectionLost
from headrace.runtime.spark.standing.pace import Pace, are_few, is_small
from headrace.runtime.spark.standing.standing_job import StandingJob
from headrace.runtime.spark.standing.standing_task import NotForeseen, StandingTask
from headrace.runtime.spark.standing.task_functions import without_failures

Use: TypeAlias = Literal["auto", "never", "always"]
"""`auto`: for small and frequent epochs; `always`: for every epoch that can have them, waiting for their start."""

SETTING: Final = "spark.headrace.standingTasks"
"""The setting of a Spark session that chooses it."""
_JOIN_SECONDS: Final = 10.0

_jobs: Final[list[StandingJob]] = []
"""The standing jobs of this process, which has one Spark session."""
_starting: Final = threading.Lock()


class StandingTasks:
    """Runs small epochs of one hub in standing tasks, while there are any."""

    idle_seconds = 5.0
    silence_seconds = 20.0
    task = StandingTask

    def __init__(self, context: SparkContext, use: Use | None = None) -> None:
        """`use`: by default the session's setting."""
        chosen = use or context.getConf().get(SETTING, "auto")
        if chosen not in get_args(Use):
            raise UserError(
                f"the setting {SETTING} is '{chosen}'", remedy=f"Use one of {', '.join(get_args(Use))}."
            )
        self.use = chosen
        self._context = context
        self.epochs = 0
        """Epochs that were run in standing tasks."""
        self._job: StandingJob | None = None
        self._writing: StandingJob | None = None
        """Of the last epoch, whose files may not be written yet."""
        self._started: list[StandingJob] = []
        self._slots = 0
        self._pace = Pace()

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt] | None:
        """Run an epoch in standing tasks; None when it has to be a job of its own, for which there are cores.

        Raises a task's own error, and `EpochFailed` when a standing task was lost: the epoch can be tried again.
        """
        self.await_files()
        job = self._job_for(scans, states)
        if job is None:
            return None
        try:
            with self._losses():
                ended = job.run(scans, states)
                receipts = None if ended is None else without_failures(ended)
        except NotForeseen:
            return None
        if receipts is not None:
            self._writing = job
            self._pace.succeeded()
            self.epochs += 1
        return receipts

    def await_files(self) -> None:
        """Return once all files that the last receipts name are written. Raises as `run` does."""
        job, self._writing = self._writing, None
        if job is not None:
            with self._losses():
                job.await_files()

    @contextmanager
    def _losses(self) -> Iterator[None]:
        """A block in which a task may be lost, or fail with an error that is not Headrace's: a job tries it again."""
        try:
            yield
        except ConnectionLost as error:
            self._pace.failed(time.monotonic())
            raise EpochFailed(
                f"a standing task was lost in the middle of an epoch: {error}\n"
                "  Nothing of the epoch counts. Its worker was killed from outside, or out of memory."
            ) from error
        except NotForeseen:
            self._pace.failed(time.monotonic())
            self.end()
            raise

    def awaiting(self, rows: int) -> int:
        """The number of standing tasks that are ready for an epoch of so many rows; 0 when it would be a job."""
        job = self._job
        if job is None or not job.is_ready or self.use == "never":
            return 0
        if self.use == "auto" and (self._pace.was_long or not are_few(rows)):
            return 0
        return job.tasks

    def saw(self, scans: Sequence[ScanMessage], began: float) -> None:
        """Count an epoch that has ended now, in standing tasks or as a job."""
        self._pace.saw(small=is_small(scans), began=began, ended=time.monotonic())

    def end(self) -> None:
        """End the standing tasks, without waiting for them; later epochs may start others."""
        if self._job is not None:
            self._job.end()
            self._job = None

    def close(self) -> None:
        """End the standing tasks, and wait until Spark has their cores again."""
        self.end()
        for job in self._started:
            job.join(_JOIN_SECONDS)

    def _job_for(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> StandingJob | None:
        """The standing job that takes the epoch, if there is one; one that is in the way of a large epoch ends."""
        if self.use == "never":
            return None
        now, always = time.monotonic(), self.use == "always"
        if self._job is not None and self._job.is_over:
            if not self._job.was_ready:
                self._pace.failed(now)
            self._job = None
        if not always and (self._pace.was_long or not is_small(scans)):
            if self._job is not None and max(len(scans), len(states)) > self._slots - _held():
                self.end()
            return None
        if self._job is None and (always or self._pace.is_due(now)):
            self._start(len(states))
            if self._job is None:
                self._pace.failed(now)
        if self._job is None or not (self._job.wait() if always else self._job.is_ready):
            return None
        return self._job

    def _start(self, states: int) -> None:
        """Start a standing job, if there are cores for it."""
        # Errors: the session cannot have one. Jobs do without.
        with _starting, suppress(Py4JError, PySparkException, OSError):
            self._slots = slots_of(self._context)
            tasks = tasks_for(states, self._slots, _held())
            if tasks < 1:
                return
            self._job = StandingJob(
                self._context,
                tasks,
                idle_seconds=self.idle_seconds,
                silence_seconds=self.silence_seconds,
                task=self.task,
            )
            self._started = [*(job for job in self._started if job.holds_cores), self._job]
            _jobs.append(self._job)


def tasks_for(states: int, slots: int, held: int) -> int:
    """The number of standing tasks for so many state tasks; 0 when there are no cores for them.

    `held` of the `slots` are held by standing tasks of other hubs.
    """
    return max(0, min(states, slots // 2, slots - 1 - held))


def slots_of(context: SparkContext) -> int:
    """The number of tasks that the executors of a session run at a time, now."""
    scheduler = context._jsc.sc()
    profile = scheduler.resourceProfileManager().defaultResourceProfile()
    return int(scheduler.maxNumConcurrentTasks(profile))


def _held() -> int:
    """Cores that standing tasks of this process hold."""
    _jobs[:] = [job for job in _jobs if job.holds_cores]
    return sum(job.tasks for job in _jobs)
