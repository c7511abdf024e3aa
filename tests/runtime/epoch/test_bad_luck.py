"""Clocks that jump, full disks, dying workers, Ctrl-C: each is reported or waited for, and what is right is still answered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connectors.records.ingest_record import SourceChanged
from headrace.errors import EpochFailed, HeadraceError, StoreError, UserError
from headrace.observation import EpochFailure
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.hub.hub import Hub
from headrace.runtime.spark import spark_executor
from headrace.runtime.spark.given_session import GivenSession
from headrace.runtime.spark.spark_executor import SparkExecutor
from headrace.time import DAY, SECOND, now
from tests.runtime.rig import QUERIES, Rig, assert_as_the_reference, cut, made_rows, rows_late_rejected

FEW = {name: QUERIES[name] for name in ("tumble", "slide", "now", "some")}
ONE_FILE = {"maxFilesPerTrigger": "1"}
ROWS = made_rows(41, 40)
GOOD = [dict(row) for row in ROWS]


# -- clocks and disks ---------------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_moves_no_punctuation_back_and_loses_no_row(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    clock = iter(range(10**9))
    jumps = [now(), now() + 400 * DAY, now() - 400 * DAY, now() + DAY, 60 * SECOND, now()]
    with Hub(rig.home, LocalExecutor(), clock=lambda: jumps[next(clock) // 3 % len(jumps)], tasks=2) as hub:
        hub.execute(rig.script(FEW))
        reached = []
        for part in cut(GOOD, *range(4, 40, 4)):
            rig.drop(part)
            hub.catch_up()
            reached.append(hub.status()["streams"]["s"]["punctuation"])
        assert reached == sorted(reached)
        assert_as_the_reference(hub, cut(GOOD, *range(4, 40, 4)))
        assert rows_late_rejected(hub) == (40, 0, 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few hundred kilobytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this machine lets nobody mount a small disk: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_reported_and_the_run_goes_on_when_there_is_space(
    small_disk: Path, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(42, 300), *range(6, 300, 6))
    rig.drop(*files)
    with Hub(small_disk / "home", LocalExecutor(), tasks=2, retries=Retries(())) as hub:
        hub.execute(rig.script(FEW))
        with pytest.raises(StoreError, match=r"disk of the home .* is full.*Free some space"):
            hub.run_once()
        assert 0 < rows_late_rejected(hub)[0] < 300
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    with Hub(small_disk / "home", LocalExecutor(), tasks=3) as hub:
        assert_as_the_reference(hub, files)
        assert hub.check().faults == 0


def test_a_full_disk_that_clears_is_waited_for(small_disk: Path, tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(42, 300), *range(6, 300, 6))
    rig.drop(*files)
    with Hub(small_disk / "home", LocalExecutor(), tasks=2, retries=Retries((0.01, 0.01))) as hub:
        hub.execute(rig.script(FEW))

        def clear(failure: EpochFailure) -> None:
            assert "is full" in failure.message
            if failure.attempt == 2:
                subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)

        hub.on_failure(clear)
        assert_as_the_reference(hub, files)
        assert hub.status()["failures"]["count"] == 2
        assert (hub.path / "epochs.jsonl").read_text().count('"kind": "failure"') == 2
        assert hub.check().faults == 0


def test_a_home_that_may_not_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match=r"cannot open the home .*Not a directory"),
        Rig(tmp_path / "rig").hub(),
    ):
        Hub(tmp_path / "file" / "home", LocalExecutor())


# -- tasks and workers --------------------------------------------------------------------------------------------------


class Harmed(SparkExecutor):
    """What its tasks do first is for the test to choose; it runs in the workers, every epoch as a job of its own."""

    harm = staticmethod(lambda: None)

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark, standing="never")

    def _job(self, scans: Any, states: Any) -> Any:
        harm = self.harm

        def scan(messages: Any) -> Any:
            harm()
            yield from spark_executor._Scan(None)(messages)

        pickled = {state.task: spark_executor.pickle.dumps(state) for state in states}
        parts = self._context.parallelize(
            [spark_executor.pickle.dumps(message) for message in scans], len(scans)
        )
        blobs = parts.mapPartitions(scan).partitionBy(len(pickled), spark_executor._owner)
        return spark_executor._ended(blobs.mapPartitionsWithIndex(spark_executor._State(pickled)))


@pytest.mark.spark
def test_a_killed_worker_costs_a_retry_and_no_row(spark: SparkSession, tmp_path: Path) -> None:
    rig, marks = Rig(tmp_path, ONE_FILE), str(tmp_path / "killed")
    rig.drop(*cut(GOOD, 20))
    executor = Harmed(GivenSession(spark))

    def die_once() -> None:
        try:
            os.close(os.open(marks, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    executor.harm = die_once
    with Hub(rig.home, executor, tasks=2) as hub:
        hub.execute(rig.script(FEW))
        assert_as_the_reference(hub, cut(GOOD, 20))
        assert Path(marks).exists()
        assert rows_late_rejected(hub) == (40, 0, 0)


@pytest.mark.spark
def test_a_worker_that_always_dies_fails_the_epoch_with_a_reason_and_nothing_is_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD)
    executor = Harmed(GivenSession(spark))
    executor.harm = lambda: os.kill(os.getpid(), signal.SIGKILL)
    with Hub(rig.home, executor, tasks=2, retries=Retries(())) as hub:
        hub.execute(rig.script(FEW))
        epoch = hub.home.latest().epoch
        with pytest.raises(
            EpochFailed, match=r"a Python worker died in every attempt.*\n.*Nothing of the epoch"
        ):
            hub.run_once()
        assert hub.home.latest().epoch == epoch
        executor.harm = lambda: None
        assert_as_the_reference(hub, [GOOD])


@pytest.mark.spark
def test_an_error_nobody_expected_reaches_the_user_in_the_tasks_own_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD)
    executor = Harmed(GivenSession(spark))

    def fail() -> None:
        raise ModuleNotFoundError("No module named 'something'")

    executor.harm = fail
    with Hub(rig.home, executor, tasks=2) as hub:
        hub.execute(rig.script(FEW))
        with pytest.raises(EpochFailed, match=r"ModuleNotFoundError: No module named 'something'$"):
            hub.run_once()
        assert hub.status()["failures"]["count"] == 0  # it would fail again


@pytest.mark.spark
def test_a_users_mistake_found_in_a_task_is_not_retried_and_keeps_its_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD)
    tried = tmp_path / "tried"
    executor = Harmed(GivenSession(spark))

    def note() -> None:
        with open(tried, "a") as file:  # noqa: PTH123 - runs in a worker
            file.write("once\n")

    executor.harm = note
    with Hub(rig.home, executor, tasks=3) as hub:
        hub.execute(rig.script(FEW))
        hub.loop.engine.intake.listen(hub.loop.engine.plan.streams.values())
        (rig.source / "000000.parquet").unlink()
        with pytest.raises(SourceChanged, match="found that it is gone") as raised:
            hub.run_once()
        assert isinstance(raised.value, UserError)
        assert tried.read_text() == "once\n"


def test_a_failing_loop_reports_to_who_follows_and_who_stops(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD)
    with rig.hub(2, FEW) as hub:
        hub.loop.engine.intake.listen(hub.loop.engine.plan.streams.values())
        (rig.source / "000000.parquet").unlink()
        hub.start()
        with pytest.raises(HeadraceError, match=r"the epoch loop failed: .*found that it is gone"):
            list(hub.query("some").follow())
        with pytest.raises(SourceChanged):
            hub.stop()


def test_ctrl_c_in_the_middle_of_epochs_leaves_a_home_that_goes_on(tmp_path: Path) -> None:
    from tests.runtime.killing import Assassin

    assassin = Assassin(tmp_path, 43)
    assassin.arrive(60)
    for delay in (0.0, 0.03, 0.11):
        runner = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.victim", str(tmp_path), "2", "local", str(3 * SECOND)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert runner.stdout is not None
        for _ in range(4):
            assert runner.stdout.readline()
        time.sleep(delay)
        output = pressed_until_it_ends(runner)
        assert "KeyboardInterrupt" in output
        assert faults_of_now(tmp_path) == 0
    assassin.assert_nothing_happened()


def pressed_until_it_ends(runner: subprocess.Popen[str]) -> str:
    """Ctrl-C, again if need be: Python loses the one that meets the callback of a weak reference."""
    for _ in range(20):
        runner.send_signal(signal.SIGINT)
        try:
            return runner.communicate(timeout=5)[1]
        except subprocess.TimeoutExpired:
            continue
    runner.kill()
    raise AssertionError("it cannot be interrupted")


def faults_of_now(folder: Path) -> int:
    from headrace.runtime.hub.check import check

    return check(folder / "home").faults
