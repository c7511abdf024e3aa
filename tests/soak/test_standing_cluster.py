"""Standing tasks on a real cluster: a master, two workers with executors of their own, and drivers, all as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pyspark
import pytest

from benchmarks.environments import java_home
from headrace.time import SECOND
from tests.runtime.rig import Rig, answers, cut, expected, faults_once_tidy, made_rows
from tests.runtime.victim import QUERIES_OF_VICTIM

ROOT = Path(__file__).parents[2]
SLACK = 3 * SECOND
FILES = cut(made_rows(77, 600, disorder=6 * SECOND), *range(6, 600, 6))


class Cluster:
    """A master and two workers of two cores each."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "workers"),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        opened.callback(self.end)
        self._start("master.Master", "--port", str(port))
        for _ in range(2):
            self._start("worker.Worker", "--cores", "2", "--memory", "1g", self.master)

    def _start(self, which: str, *arguments: str) -> None:
        command = [Path(pyspark.__file__).parent / "bin" / "spark-class", f"org.apache.spark.deploy.{which}"]
        own = ["--host", "127.0.0.1", "--webui-port", "0"]
        started = subprocess.Popen(
            [*command, *own, *arguments],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.processes.append(started)

    def family(self) -> list[psutil.Process]:
        found = []
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                found += [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        return found

    def executors(self) -> list[psutil.Process]:
        return [each for each in self.family() if "CoarseGrainedExecutorBackend" in command_of(each)]

    def python_workers(self) -> list[psutil.Process]:
        return [each for each in self.family() if "pyspark.daemon" in command_of(each)]

    def end(self) -> None:
        family = self.family()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        for process in self.processes:
            process.wait()


def command_of(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


class Driver:
    """A process with `tests.runtime.cluster_victim`."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.cluster_victim", str(folder), cluster.master, str(SLACK)],
            env=cluster.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        self.standing = self.failed = 0

    def wait_for(self, epochs: int) -> None:
        """Until it has published so many more epochs in standing tasks."""
        until = self.standing + epochs
        while self.standing < until:
            line = self.said()
            assert line, "the driver has ended"
            self.failed += line == "failed"
            if line[0].isdigit():
                self.standing = int(line.split()[1])

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as opened:
        yield Cluster(tmp_path, opened)


def arrive(rig: Rig, count: int) -> None:
    rig.drop(*FILES[rig.written : rig.written + count])


def assert_as_the_reference_at_last(rig: Rig) -> None:
    with rig.hub(2) as hub:
        answered = answers(hub, hub.run_once())
        assert len(answered) == len(QUERIES_OF_VICTIM)
        for name, rows in answered.items():
            assert rows == expected(hub.operator_and_query(name)[1], FILES[: rig.written], SLACK), name
        assert faults_once_tidy(hub) == []


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=40)[1]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_executors_and_drivers_that_die_change_no_answer(tmp_path: Path, cluster: Cluster) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, SLACK)
    arrive(rig, 10)
    driver = Driver(tmp_path, cluster)
    try:
        driver.wait_for(4)
        killed = cluster.executors()[0]
        assert len(cluster.executors()) == 2
        killed.kill()
        arrive(rig, 20)
        driver.wait_for(8)
        for worker in cluster.python_workers()[:3]:
            with suppress(psutil.NoSuchProcess):
                worker.kill()
            arrive(rig, 5)
            driver.wait_for(3)
    finally:
        driver.kill()
    assert gone(cluster.python_workers())
    again = Driver(tmp_path, cluster)
    try:
        arrive(rig, 5)
        again.wait_for(3)
    finally:
        again.kill()
    assert gone(cluster.python_workers())
    assert_as_the_reference_at_last(rig)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_old_driver_that_wakes_publishes_nothing_and_its_tasks_end(
    tmp_path: Path, cluster: Cluster
) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, SLACK)
    arrive(rig, 10)
    old = Driver(tmp_path, cluster)
    try:
        old.wait_for(4)
        arrive(rig, 10)
        time.sleep(0.05)
        os.kill(old.process.pid, signal.SIGSTOP)
        (rig.home / "LOCK").unlink()  # as on a shared folder without locks
        with rig.hub(2) as hub:
            arrive(rig, 5)
            hub.catch_up()
            published = hub.home.latest().epoch
        os.kill(old.process.pid, signal.SIGCONT)
        assert list(iter(old.said, ""))[-1] == "replaced"
        assert old.process.wait(60) == 0
    finally:
        old.kill()
    assert gone(cluster.python_workers())
    with rig.hub(2) as hub:
        assert hub.home.latest().epoch >= published
    assert_as_the_reference_at_last(rig)
