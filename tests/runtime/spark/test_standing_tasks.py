"""Epochs in standing tasks: the answers of the reference, and no fault of a process, a socket or a task that changes them."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from headrace.connectors.records.ingest_record import SourceChanged
from headrace.errors import EpochFailed, UserError
from headrace.runtime.epoch import task_orders
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest.admission import packed
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.spark.given_session import GivenSession
from headrace.runtime.spark.spark_executor import SparkExecutor
from headrace.runtime.spark.standing import pace, standing_job, standing_tasks
from headrace.runtime.spark.standing.standing_task import StandingTask
from tests.runtime.rig import QUERIES, SEVERAL, Rig, assert_as_the_reference, cut, faults_once_tidy, made_rows

pytestmark = pytest.mark.spark

ONE_FILE = {"maxFilesPerTrigger": "1"}
FEW = {name: QUERIES[name] for name in ("tumble", "slide", "now", "some")}
ROWS = made_rows(61, 60)
FILES = cut(ROWS, 20, 35)
TASKS_FOR = standing_tasks.tasks_for
PHASES = ("scan", "exchange", "advance", "answer", "write_files")


@pytest.fixture(autouse=True)
def two_tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both cores of the test session, for few rows too: there is no exchange with one task. Nothing is left behind."""
    monkeypatch.setattr(standing_tasks, "tasks_for", lambda *_: 2)
    monkeypatch.setattr(SparkExecutor, "few_rows", 0)
    yield
    assert threads() == []


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-standing")]


def executor(
    spark: SparkSession, task: type[StandingTask] = StandingTask, **settings: float
) -> SparkExecutor:
    spark_executor = SparkExecutor(GivenSession(spark), standing="always")
    spark_executor.standing.task = task
    for name, value in settings.items():
        setattr(spark_executor.standing, name, value)
    return spark_executor


def harmed(where: str, harm: Callable[[StandingTask], None]) -> type[StandingTask]:
    """A task that does harm before a phase. A class inside a function is pickled by value: workers do not know this module."""

    class Harmed(StandingTask):
        def scan(self, *arguments: Any) -> Any:
            if where == "scan":
                harm(self)
            return super().scan(*arguments)

        def exchange(self, *arguments: Any) -> Any:
            if where == "exchange":
                harm(self)
            return super().exchange(*arguments)

        def advance(self, *arguments: Any) -> Any:
            if where == "advance":
                harm(self)
            return super().advance(*arguments)

        def answer(self, *arguments: Any) -> Any:
            if where == "answer":
                harm(self)
            return super().answer(*arguments)

        def write_files(self, *arguments: Any) -> None:
            if where == "write_files":
                harm(self)
            super().write_files(*arguments)

        def prepare_next(self) -> None:
            if where == "prepare_next":
                harm(self)
            super().prepare_next()

    return Harmed


def once(mark: Path, harm: Callable[[StandingTask], None]) -> Callable[[StandingTask], None]:
    """The harm, done by the first task to come; `mark` has its process."""
    path = str(mark)

    def do(task: StandingTask) -> None:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        os.write(descriptor, str(os.getpid()).encode())
        os.close(descriptor)
        harm(task)

    return do


def killed(_: StandingTask) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stopped(_: StandingTask) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def assert_answers(
    rig: Rig, spark_executor: SparkExecutor, failures: int, queries: dict[str, str] = FEW
) -> None:
    """All files give the reference's answers, after so many failed attempts; the home is without faults."""
    with Hub(rig.home, spark_executor, tasks=3, retries=Retries((0.01,) * 4)) as hub:
        hub.execute(rig.script(queries))
        assert_as_the_reference(hub, FILES)
        assert hub.status()["failures"]["count"] == failures
        assert faults_once_tidy(hub) == []


# -- answers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [(), (30,), (7, 8, 20, 41, 59)])
def test_any_cut_into_epochs_has_the_answers_of_the_reference(
    spark: SparkSession, tmp_path: Path, places: tuple[int, ...]
) -> None:
    rig, files = Rig(tmp_path, ONE_FILE), cut(ROWS, *places)
    rig.drop(*files)
    spark_executor = executor(spark)
    with Hub(rig.home, spark_executor, tasks=3) as hub:
        hub.execute(rig.script(QUERIES | SEVERAL))
        assert_as_the_reference(hub, files)
        assert spark_executor.standing.epochs > len(files)


def test_few_rows_have_one_state_task(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, files = Rig(tmp_path, ONE_FILE), cut(ROWS, 30)
    monkeypatch.setattr(SparkExecutor, "few_rows", 1000)  # estimated by bytes
    spark_executor, many = executor(spark), SparkExecutor.few_rows + 1
    with Hub(rig.home, spark_executor, tasks=3) as hub:
        hub.execute(rig.script(FEW))
        rig.drop(files[0])
        hub.run_once()
        assert spark_executor.state_tasks(3, many, levels=0) == 2, "as many as standing tasks"
        assert (
            spark_executor.state_tasks(3, many, levels=1)
            == spark_executor.state_tasks(3, many - 1, levels=0)
            == 1
        )
        rig.drop(files[1])
        hub.run_once()
        newest = hub.home.latest().state[-1]
        assert (newest.low_slot, newest.high_slot) == (0, 256)
        assert_as_the_reference(hub, files)


def test_a_home_goes_on_at_other_numbers_of_tasks_and_with_jobs_between(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(ROWS, *range(10, 60, 10))
    for number, file in enumerate(files):
        rig.drop(file)
        spark_executor = SparkExecutor(GivenSession(spark), standing="never" if number % 3 == 2 else "always")
        with Hub(rig.home, spark_executor, tasks=1 + number % 4) as hub:
            hub.execute(rig.script(QUERIES) if number == 0 else "")
            hub.catch_up()
    with Hub(rig.home, executor(spark), tasks=2) as hub:
        assert_as_the_reference(hub, files)


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_several_scans_of_an_epoch_are_divided_and_exchanged_both_ways(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    monkeypatch.setattr(EpochWork, "tasks", lambda work, *_: max(1, len(work.splits)))
    monkeypatch.setattr(task_orders, "balanced", lambda splits, cores, tasks: packed(splits, tasks))
    rig = Rig(tmp_path)
    rig.drop(*cut(ROWS, 12, 20, 41, 50))
    with Hub(rig.home, executor(spark), tasks=tasks) as hub:
        hub.execute(rig.script(QUERIES | SEVERAL))
        assert_as_the_reference(hub, [ROWS])
        assert hub.status()["failures"]["count"] == 0
        assert hub.status()["streams"]["s"]["rows"] == len(ROWS)
        assert len(list((rig.home / "archive" / "s").iterdir())) >= 3  # one a scan task


def test_a_blob_that_arrives_before_its_epochs_message_is_read_is_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    class Late(StandingTask):
        def _join(self, opened: Any) -> None:
            super()._join(opened)
            time.sleep(0.7 * self.index)

    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    assert_answers(rig, executor(spark, Late), failures=0)


def test_a_query_registered_late_has_its_backfill_too(spark: SparkSession, tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    with Hub(rig.home, executor(spark), tasks=3) as hub:
        hub.execute(rig.script({"tumble": QUERIES["tumble"]}))
        hub.catch_up()
        hub.register(QUERIES["slide"], "slide")
        assert_as_the_reference(hub, FILES)


# -- processes and sockets that fail ------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
def test_a_task_killed_in_any_phase_costs_one_attempt_and_no_row(
    spark: SparkSession, tmp_path: Path, phase: str
) -> None:
    rig, mark = Rig(tmp_path, ONE_FILE), tmp_path / "killed"
    rig.drop(*FILES)
    assert_answers(rig, executor(spark, harmed(phase, once(mark, killed))), failures=1)
    assert mark.exists()


def test_a_task_killed_after_its_files_are_written_costs_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """The epoch counts; whether the next one is an attempt that fails, or is a job at once, is a question of time."""
    rig, mark = Rig(tmp_path, ONE_FILE), tmp_path / "killed"
    rig.drop(*FILES)
    spark_executor = executor(spark, harmed("prepare_next", once(mark, killed)))
    with Hub(rig.home, spark_executor, tasks=3, retries=Retries((0.01,) * 4)) as hub:
        hub.execute(rig.script(FEW))
        assert_as_the_reference(hub, FILES)
        assert hub.status()["failures"]["count"] <= 1
        assert mark.exists()
        assert faults_once_tidy(hub) == []


def full(task: StandingTask) -> None:
    """The disk is full when the task writes."""

    def refuse() -> None:
        from headrace.errors import StoreError

        raise StoreError("the disk of the home is full")

    task._writes.add(refuse)


def out_of_memory(task: StandingTask) -> None:
    """An error that is not Headrace's."""

    def fail() -> None:
        raise MemoryError("no room")

    task._writes.add(fail)


@pytest.mark.parametrize("harm", [full, out_of_memory])
def test_an_epoch_of_which_a_file_cannot_be_written_later_is_not_published(
    spark: SparkSession, tmp_path: Path, harm: Callable[[StandingTask], None]
) -> None:
    rig, mark = Rig(tmp_path, ONE_FILE), tmp_path / "refused"
    rig.drop(*FILES)
    assert_answers(rig, executor(spark, harmed("write_files", once(mark, harm))), failures=1)
    assert mark.exists()


@pytest.mark.parametrize(
    "phase",
    ["exchange", *(pytest.param(phase, marks=pytest.mark.soak) for phase in PHASES if phase != "exchange")],
)
def test_a_task_that_is_stopped_is_given_up_and_its_process_is_killed(
    spark: SparkSession, tmp_path: Path, phase: str
) -> None:
    rig, mark = Rig(tmp_path, ONE_FILE), tmp_path / "stopped"
    rig.drop(*FILES)
    assert_answers(rig, executor(spark, harmed(phase, once(mark, stopped)), silence_seconds=2.5), failures=1)
    assert_gone(int(mark.read_text()))


def assert_gone(process: int) -> None:
    """All of its threads have ended: the first may be a zombie while the others still hold the process's sockets."""
    until = time.monotonic() + 30
    threads = Path("/proc", str(process), "task")
    while psutil.pid_exists(process) and (
        psutil.Process(process).status() != psutil.STATUS_ZOMBIE or len(list(threads.glob("*"))) > 1
    ):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_task_that_computes_for_long_is_not_given_up(spark: SparkSession, tmp_path: Path) -> None:
    rig, mark = Rig(tmp_path, ONE_FILE), tmp_path / "slow"
    rig.drop(*FILES)
    slow = harmed("advance", once(mark, lambda _: time.sleep(4)))
    assert_answers(rig, executor(spark, slow, silence_seconds=2.5), failures=0)
    assert mark.exists()


def test_a_socket_that_closes_in_the_middle_of_a_blob_costs_one_attempt(
    spark: SparkSession, tmp_path: Path
) -> None:
    def half(task: StandingTask) -> None:
        for peer in task.peers.values():
            peer._socket.send(b"\0" * 20)
            peer._socket.shutdown(socket.SHUT_RDWR)
        time.sleep(0.5)

    rig, mark = Rig(tmp_path, ONE_FILE), tmp_path / "half"
    rig.drop(*FILES)
    assert_answers(rig, executor(spark, harmed("exchange", once(mark, half))), failures=1)


def test_half_of_a_receipt_counts_for_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def half(task: StandingTask) -> None:
        task.driver._socket.send(b"\0\0\0\0\0\0\0\1" + b"\0" * 14)
        task.driver._socket.shutdown(socket.SHUT_RDWR)

    rig, mark = Rig(tmp_path, ONE_FILE), tmp_path / "half"
    rig.drop(*FILES)
    assert_answers(rig, executor(spark, harmed("answer", once(mark, half))), failures=1)


def test_a_task_that_never_joins_leaves_epochs_to_jobs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_job, "START_SECONDS", 0.5)

    class Absent(StandingTask):
        def _join(self, opened: Any) -> None:
            if self.index == 1:
                time.sleep(1)
                raise ConnectionError("it does not find the way")
            super()._join(opened)

    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(FILES[0], FILES[1], FILES[2])
    spark_executor = executor(spark, Absent)
    assert_answers(rig, spark_executor, failures=0, queries={"some": QUERIES["some"]})
    assert spark_executor.standing.epochs == 0


def test_a_process_that_does_not_know_the_secret_is_turned_away(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bytes] = []

    def listen(*arguments: Any, **keywords: Any) -> socket.socket:
        listener = create_server(*arguments, **keywords)
        stranger = socket.create_connection(listener.getsockname())
        stranger.sendall(b"x" * 64)
        stranger.settimeout(20)

        def read() -> None:
            while part := stranger.recv(1000):
                answers.append(part)
            stranger.close()

        reader = threading.Thread(target=read)
        reader.start()
        readers.append(reader)
        return listener

    readers: list[threading.Thread] = []
    create_server = socket.create_server
    monkeypatch.setattr(standing_job.socket, "create_server", listen)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    spark_executor = executor(spark)
    assert_answers(rig, spark_executor, failures=0)
    assert spark_executor.standing.epochs >= len(FILES)
    for reader in readers:
        reader.join(20)
    assert len(b"".join(answers)) == 64 * len(readers)  # a nonce and a proof, no message


# -- errors of tasks ----------------------------------------------------------------------------------------------------


def test_a_users_mistake_found_in_a_task_keeps_its_type_and_the_tasks_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(FILES[0])
    spark_executor = executor(spark)
    with Hub(rig.home, spark_executor, tasks=3) as hub:
        hub.execute(rig.script(FEW))
        hub.catch_up()
        job, epochs = spark_executor.standing._job, spark_executor.standing.epochs
        rig.drop(FILES[1])
        hub.loop.engine.intake.listen(hub.loop.engine.plan.streams.values(), thorough=True)
        (rig.source / "000001.parquet").unlink()
        with pytest.raises(SourceChanged, match="found that it is gone"):
            hub.catch_up()
        assert spark_executor.standing._job is job
        assert spark_executor.standing.epochs == epochs
        assert job is not None
        assert job.is_ready


@pytest.mark.parametrize("phase", ["scan", "advanced"])
def test_an_error_that_is_not_headraces_is_tried_again_by_a_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    def fail(_: Any, *arguments: Any) -> Any:
        raise MemoryError("no room")

    class Failing(StandingTask):
        """It fails inside the function that catches errors."""

        def run(self, *arguments: Any) -> None:
            from headrace.runtime.spark.standing import standing_task

            before = getattr(standing_task, phase)
            setattr(standing_task, phase, fail)
            try:
                super().run(*arguments)
            finally:
                setattr(standing_task, phase, before)

    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    spark_executor = executor(spark, Failing)
    assert_answers(rig, spark_executor, failures=0)
    assert spark_executor.standing.epochs == 0


# -- cores --------------------------------------------------------------------------------------------------------------


def active_jobs(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getActiveJobsIds())


def waited(condition: Callable[[], bool], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_idle_tasks_give_their_cores_back_and_come_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_job, "_PATIENCE", 1000)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(FILES[0])
    spark_executor = executor(spark, idle_seconds=0.3)
    with Hub(rig.home, spark_executor, tasks=3) as hub:
        hub.execute(rig.script(FEW))
        hub.catch_up()
        first = spark_executor.standing._job
        assert active_jobs(spark) == 1
        waited(lambda: active_jobs(spark) == 0)
        assert spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(list).count() == 2
        rig.drop(*FILES[1:])
        assert_as_the_reference(hub, FILES)
        assert spark_executor.standing._job is not first
        assert hub.status()["failures"]["count"] == 0
    waited(lambda: active_jobs(spark) == 0)


def test_tasks_whose_driver_is_stopped_end_by_themselves(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_job, "_PATIENCE", 2)
    job = standing_job.StandingJob(spark.sparkContext, 2, idle_seconds=1, silence_seconds=20)
    assert job.wait()
    with job._lock:  # the driver does nothing
        assert job.holds_cores
        waited(lambda: not job.holds_cores)
    job.join(20)


def test_a_task_that_dies_between_epochs_costs_no_attempt(spark: SparkSession, tmp_path: Path) -> None:
    mark = tmp_path / "process"

    def note(_: StandingTask) -> None:
        mark.write_text(str(os.getpid()))

    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(FILES[0])
    spark_executor = executor(spark, harmed("scan", note))
    with Hub(rig.home, spark_executor, tasks=3, retries=Retries(())) as hub:
        hub.execute(rig.script(FEW))
        hub.catch_up()
        os.kill(int(mark.read_text()), signal.SIGKILL)
        assert_gone(int(mark.read_text()))
        rig.drop(*FILES[1:])
        assert_as_the_reference(hub, FILES)


def test_a_large_epoch_takes_the_cores_and_small_frequent_ones_get_tasks_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_tasks, "tasks_for", TASKS_FOR)
    rig = Rig(tmp_path, ONE_FILE)
    spark_executor = SparkExecutor(GivenSession(spark))
    with Hub(rig.home, spark_executor, tasks=3) as hub:
        hub.execute(rig.script({"some": QUERIES["some"]}))
        for number in range(8):
            rig.drop(ROWS[number : number + 1])
            hub.catch_up()
            if spark_executor.standing._job is not None:
                spark_executor.standing._job.wait()
        epochs, job = spark_executor.standing.epochs, spark_executor.standing._job
        assert epochs > 0
        assert spark.sparkContext.parallelize(range(4), 2).count() == 4  # a core is left
        assert job is not None
        monkeypatch.setattr(pace, "SMALL_ROWS", 0)
        rig.drop(ROWS[8:9])
        hub.catch_up()
        assert spark_executor.standing.epochs == epochs
        assert spark_executor.standing._job is None
        assert job.is_over
        assert_as_the_reference(hub, [[row] for row in ROWS[:9]])


def test_all_levels_of_a_small_epoch_run_at_once_in_one_of_the_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark_executor, second = executor(spark), 0
    with Hub(tmp_path / "home", spark_executor, tasks=3) as hub:
        hub.execute(
            "CREATE STREAM s (x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;"
            "CREATE QUERY low AS SELECT x, at FROM s WHERE x > 0;"
            "CREATE QUERY middle AS SELECT x, at FROM low WHERE x > 1;"
            "CREATE QUERY top AS SELECT COUNT(*) AS n FROM middle [RANGE TUMBLING 2 SECONDS];"
        )

        def epoch() -> int:
            """Push three rows of the next second; the number of executions that they took."""
            nonlocal second
            second += 1
            before = spark_executor.standing.epochs
            hub.push("s", [{"x": x, "at": f"2024-01-01T00:00:{second:02}Z"} for x in (1, 2, 3)])
            assert hub.loop.drain() == 1
            return spark_executor.standing.epochs - before

        executions = [epoch() for _ in range(9)]
        assert executions[3:] == [1] * 6
        assert [row["n"] for row in hub.query("top").history().to_pylist()] == [2, 4, 4, 4]


def test_a_session_without_a_core_to_spare_runs_jobs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_tasks, "tasks_for", lambda *_: 0)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    spark_executor = executor(spark)
    assert_answers(rig, spark_executor, failures=0)
    assert spark_executor.standing.epochs == 0


@pytest.mark.parametrize("slots", range(1, 12))
@pytest.mark.parametrize("states", [1, 2, 3, 8, 200])
def test_all_hubs_together_leave_a_core(slots: int, states: int) -> None:
    held = 0
    for _ in range(5):
        held += TASKS_FOR(states, slots, held)
    assert held < slots
    assert held > 0 or slots == 1
    assert TASKS_FOR(states, slots, 0) <= min(states, max(1, slots // 2))


def test_ctrl_c_in_the_middle_of_an_epoch_ends_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    rig, mark = Rig(tmp_path, ONE_FILE), tmp_path / "slow"
    rig.drop(*FILES)
    spark_executor = executor(spark, harmed("advance", once(mark, lambda _: time.sleep(3))))
    with Hub(rig.home, spark_executor, tasks=3) as hub:
        hub.execute(rig.script(FEW))

        def press() -> None:
            waited(mark.exists)
            os.kill(os.getpid(), signal.SIGINT)

        pressing = threading.Thread(target=press)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            hub.catch_up()
        pressing.join()
        assert spark_executor.standing._job is not None
        assert spark_executor.standing._job.is_over
        assert_as_the_reference(hub, FILES)


def test_a_session_can_do_without_and_a_wrong_setting_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    spark_executor = SparkExecutor(GivenSession(spark), standing="never")
    assert_answers(rig, spark_executor, failures=0)
    assert spark_executor.standing.epochs == 0
    with pytest.raises(UserError, match=r"standingTasks is 'sometimes'.*\n?.*auto, never, always"):
        SparkExecutor(GivenSession(spark), standing="sometimes")  # type: ignore[arg-type]


def test_an_epoch_whose_task_dies_every_time_fails_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    spark_executor = executor(spark, harmed("scan", killed))
    with Hub(rig.home, spark_executor, tasks=3, retries=Retries(())) as hub:
        hub.execute(rig.script(FEW))
        epoch = hub.home.latest().epoch
        with pytest.raises(EpochFailed, match=r"a standing task was lost .*\n.*Nothing of the epoch counts"):
            hub.catch_up()
        assert hub.home.latest().epoch == epoch
