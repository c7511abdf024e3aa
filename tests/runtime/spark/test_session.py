from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from headrace.runtime.spark import session
from headrace.runtime.spark.jvm import MODULE_OPTIONS
from headrace.runtime.spark.launch import SessionAlreadyOpen, _socket_settings, launch, usable_cores
from headrace.runtime.spark.session import was_interrupted
from headrace.runtime.spark.worker_daemon import PUT_OFF
from headrace.runtime.tasks.scan import rehearsal
from headrace.runtime.tasks.scan.rehearsal import rehearse

PACKAGE = Path(__file__).parents[3] / "src" / "headrace"

INTERRUPTED = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from headrace.runtime.spark.session import session

    def slow(rows):
        Path(sys_argv[1], "started").touch()
        time.sleep(600)
        yield 1

    sys_argv = sys.argv
    try:
        with session(1, scratch=Path(sys.argv[1])) as spark:
            spark.sparkContext.parallelize(range(2), 2).mapPartitions(slow).collect()
    except KeyboardInterrupt:
        print("interrupted")
    """
)


@pytest.mark.spark
def test_the_session_has_the_settings_an_epoch_relies_on(spark: SparkSession) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.master"] == "local[2,4]"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.pyspark.python"] == sys.executable
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.conf.get("spark.sql.streaming.checkpointFileManagerClass").endswith(
        ".FileSystemBasedCheckpointFileManager"
    )


@pytest.mark.spark
def test_workers_run_this_python_with_one_thread_per_library(spark: SparkSession) -> None:
    def look(_rows):
        import os as worker_os
        import sys as worker_sys

        import pyarrow as pa

        yield worker_sys.executable, pa.cpu_count(), worker_os.environ["OPENBLAS_NUM_THREADS"]

    seen = spark.sparkContext.parallelize([0, 1], 2).mapPartitions(look).collect()
    assert seen == [(sys.executable, 1, "1")] * 2


@pytest.mark.spark
def test_workers_are_forked_with_the_pipeline_imported(spark: SparkSession) -> None:
    def loaded(_):
        import sys

        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
        yield (
            parent[2].decode(),
            {"headrace.runtime.tasks.scan.scan_task", "pyarrow.parquet", "numpy"} <= sys.modules.keys(),
        )

    modules = spark.sparkContext.parallelize(range(2), 2).mapPartitions(loaded).collect()
    assert modules == [("headrace.runtime.spark.worker_daemon", True)] * 2


def test_what_tasks_put_off_importing_is_imported_before_workers_are_forked() -> None:
    """Each worker would import it by itself, in the middle of an epoch."""
    rooms = ("algebra", "archive", "connectors", "operators", "synopses", "runtime/tasks")
    put_off = {
        imported
        for room in rooms
        for path in (PACKAGE / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom) and inner.module is not None
        for imported in [inner.module.partition(".")[0] if "pandas" in inner.module else inner.module]
    }
    assert {"pandas", "headrace.operators.scalar.evaluation.kernels"} <= put_off
    assert put_off - {"IPython.display"} <= set(PUT_OFF)  # of notebooks, in which no task runs


def test_a_rehearsal_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(threading.enumerate())
    rehearse()
    assert set(threading.enumerate()) <= before
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_spark_has_forked_rehearses(monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsals = list[str]()
    monkeypatch.setattr(session, "_HOLD_SECONDS", 0)
    monkeypatch.setattr(rehearsal, "rehearse", lambda: rehearsals.append("one"))
    assert list(session._rehearsed(iter([7]))) == [7]
    assert rehearsals == ["one"]


REHEARSED = textwrap.dedent(
    """
    import os, sys, psutil
    import headrace as hr

    def worker(_):
        import sys
        yield os.getpid(), "headrace.runtime.tasks.scan.rehearsal" in sys.modules, "pandas" in sys.modules

    with hr.open(sys.argv[1], cores=2) as hub:
        context = hub.session().sparkContext
        hub.loop.engine.executor._session._start._thread.join()  # the start ends with the rehearsal
        before = {process.pid for process in psutil.Process().children(recursive=True)}
        workers = context.parallelize(range(2), 2).mapPartitions(worker).collect()
        print([pid in before for pid, *_ in workers], [loaded for _, *loaded in workers])
    """
)


@pytest.mark.spark
def test_workers_rehearse_before_the_first_epoch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REHEARSED, str(tmp_path / "home")], capture_output=True, text=True, timeout=200
    )
    assert done.stdout == "[True, True] [[True, True], [True, True]]\n", done.stderr


@pytest.mark.spark
def test_a_task_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    def fails_once(rows):
        mark = tmp_path / "failed"
        if not mark.exists():
            mark.touch()
            raise OSError("the first attempt fails")
        yield sum(rows)

    assert spark.sparkContext.parallelize([1, 2], 1).mapPartitions(fails_once).collect() == [3]
    assert (tmp_path / "failed").exists()


@pytest.mark.spark
def test_a_second_session_in_one_process_is_refused_with_a_remedy(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(SessionAlreadyOpen, match=r"found one\.\n.*hr\.open\(home, spark=spark\)"):
        launch(scratch=tmp_path)


LAUNCHED = textwrap.dedent(
    """
    import sys, psutil
    from pathlib import Path
    from headrace.runtime.spark.launch import launch

    asked = {
        "spark.driver.defaultJavaOptions": "-Xms300m -XX:+AlwaysPreTouch",
        "spark.driver.extraJavaOptions": "-Dasked='two words'",
    }
    launched = launch(1, scratch=Path(sys.argv[1]), heap="300m", extra=asked)
    process = psutil.Process(launched.jvm.process.pid)
    while not "".join((line := process.cmdline())[:1]).endswith("java"):  # a copy of Python, then a shell, become Java
        pass
    launched.end()
    print([option for option in ("-Xmx300m", "-Xms300m", "-XX:+AlwaysPreTouch", "-Dasked=two words") if option not in line])
    """
)


@pytest.mark.spark
def test_options_of_java_among_the_settings_are_on_its_command_line(tmp_path: Path) -> None:
    """The benchmark of memory fixes its heap by them."""
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHED, str(tmp_path / "scratch")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.spark
def test_starting_spark_leaves_signals_and_environment_as_they_were(spark: SparkSession) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "SPARK_LAUNCHER_OPTS" not in os.environ
    assert "headrace" not in os.environ.get("JAVA_HOME", "")


@pytest.mark.spark
def test_the_jvm_gets_what_spark_submit_would_pass(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    theirs = jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions().split()
    assert set(theirs) - set(MODULE_OPTIONS) == {"--add-modules=jdk.incubator.vector"}
    assert set(MODULE_OPTIONS) <= set(theirs)


def test_sockets_move_to_a_short_path_when_the_scratch_folder_is_deep(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    with ExitStack() as folders:
        moved = _socket_settings(deep, folders)
        folder = Path(moved["spark.python.unix.domain.socket.dir"])
        assert moved["spark.python.unix.domain.socket.enabled"] == "true"
        assert not folder.is_relative_to(deep)
        assert folder.is_dir()
        assert len(str(folder)) <= 60
    assert not folder.exists()


def test_workers_are_reached_by_tcp_when_no_socket_path_is_short_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.spark.launch._LONGEST_SOCKET_FOLDER", 3)
    assert _socket_settings(tmp_path, ExitStack()) == {"spark.python.unix.domain.socket.enabled": "false"}


def test_an_interrupt_is_recognised_behind_the_error_it_caused() -> None:
    def unwinding() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise ConnectionError("Answer from Java side is empty")

    with pytest.raises(ConnectionError) as caught:
        unwinding()
    assert was_interrupted(caught.value)
    assert not was_interrupted(ConnectionError("the cable was pulled"))


def test_at_least_one_core_is_usable() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@pytest.mark.spark
def test_ctrl_c_in_the_middle_of_a_job_ends_every_process_of_the_session(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (tmp_path / "started").exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)
    family = psutil.Process(child.pid).children(recursive=True)
    assert any("java" in process.name() for process in family)
    os.killpg(child.pid, signal.SIGINT)  # what a terminal does: to the whole foreground group
    out, err = child.communicate(timeout=120)
    assert (child.returncode, out, err) == (0, "interrupted\n", "")
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []


@pytest.mark.spark
@pytest.mark.parametrize(
    ("wrong", "opening", "quoted"),
    [
        ("heap='3x'", "Expected Java to start Spark, but it ended. Its last output:\n", "3x"),
        ("extra={'spark.driver.maxResultSize': 'junk'}", "Expected Spark to accept these settings", "junk"),
    ],
)
def test_a_start_that_fails_quotes_why_and_leaves_nothing_running(
    tmp_path: Path, wrong: str, opening: str, quoted: str
) -> None:
    program = textwrap.dedent(
        f"""
        import psutil, sys
        from pathlib import Path
        from headrace.runtime.spark.session import SessionFailed, session
        try:
            with session(1, scratch=Path(sys.argv[1]), {wrong}):
                pass
        except SessionFailed as failure:
            print(failure)
        assert psutil.Process().children(recursive=True) == []
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(opening)
    assert quoted in done.stdout


@pytest.mark.spark
def test_a_session_can_follow_another_with_a_heap_and_folders_of_its_own(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from headrace.runtime.spark.session import session
        for number in (1, 2):
            with session(1, scratch=Path(sys.argv[1], str(number)), heap=f"{number}g", brief=True) as spark:
                heap = spark.sparkContext._jvm.Runtime.getRuntime().maxMemory() / 2**30
                print(spark.range(5).count(), round(heap), Path(spark.conf.get("spark.local.dir")).parent.name)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5 1 1\n5 2 2\n", "")
