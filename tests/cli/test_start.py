"""When Java starts, and what is left of a start that is cut short: real processes, by their children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.building import bid, command, environment, headrace, put, script

OPEN_AND_RUN = """
import sys
import headrace as hr
hub = hr.open(sys.argv[1])
hub.execute("CREATE STREAM s (k BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
hub.register("SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]", "q")
hub.push("s", [{"k": 1, "at": __import__("datetime").datetime(2024, 1, 1)}])
print(hub.status()["engine"]["state"], hub.query("q").invoke().num_rows, flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    headrace("run", script(tmp_path), "--once", "--home", tmp_path / "home")
    return tmp_path / "home"


def a_java_that_leaves_a_mark(folder: Path, *, version: str = "17.0.1", then: str = "exec sleep 600") -> Path:
    """A JAVA_HOME whose Java prints its version, and else leaves a mark and does something."""
    launcher = folder / "java" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(
        f'#!/bin/sh\ncase "$*" in *-version*) echo \'openjdk version "{version}"\' >&2; exit 0;; esac\n'
        f"touch {folder}/started\n{then}\n"
    )
    launcher.chmod(0o755)
    return launcher.parents[1]


def ended(family: list[psutil.Process]) -> bool:
    return psutil.wait_procs(family, timeout=30)[1] == []


def when_started(process: subprocess.Popen[str], mark: Path) -> list[psutil.Process]:
    """The children of a process, as soon as Java has left its mark."""
    while not mark.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("shell", "-e", "SHOW STREAMS; SHOW QUERIES; DESCRIBE bids; EXPLAIN QUERY dear; INVOKE dear"),
        (
            "shell",
            "-e",
            "CREATE QUERY more AS SELECT COUNT(*) AS n FROM bids [ROWS 10]; DROP QUERY more; SHOW QUERIES",
        ),
        ("explain",),
        ("explain", "dear"),
        ("fetch", "dear"),
        ("check",),
    ],
)
def test_what_reads_or_changes_the_catalog_starts_no_java(home: Path, tmp_path: Path, arguments) -> None:
    java = a_java_that_leaves_a_mark(tmp_path)
    done = subprocess.run(
        command(*arguments, "--home", home),
        env={**environment(local=False), "JAVA_HOME": str(java)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not (tmp_path / "started").exists()


def test_a_run_on_the_local_engine_and_hr_test_start_no_java(tmp_path: Path) -> None:
    java = a_java_that_leaves_a_mark(tmp_path)
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    program = "import headrace as hr; print(hr.test('SELECT k FROM s', s=[{'k': 1, 'at': __import__('datetime').datetime(2024, 1, 1)}]))"
    for arguments in (
        command("run", script(tmp_path), "--once", "--engine", "local"),
        [sys.executable, "-c", program],
    ):
        done = subprocess.run(
            arguments,
            env={**environment(local=False), "JAVA_HOME": str(java)},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
    assert not (tmp_path / "started").exists()


def test_a_mistake_in_a_script_is_found_before_java_starts_and_makes_no_home(tmp_path: Path) -> None:
    java = a_java_that_leaves_a_mark(tmp_path)
    path = tmp_path / "script.cql"
    path.write_text("SELEC;")
    done = subprocess.run(
        command("run", path, "--home", tmp_path / "home"),
        env={**environment(local=False), "JAVA_HOME": str(java)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 2
    assert not (tmp_path / "started").exists()
    assert not (tmp_path / "home").exists()


def test_a_hub_works_while_java_starts_and_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """The Java of this test never starts Spark: what does not need it has to work nevertheless."""
    java = a_java_that_leaves_a_mark(tmp_path)
    program = (
        OPEN_AND_RUN + "try:\n    with hub: hub.run_once()\nexcept KeyboardInterrupt: print('interrupted')"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "home")],
        env={**environment(local=False), "JAVA_HOME": str(java)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "starting 0\n"
    family = when_started(child, tmp_path / "started")
    assert len(family) > 1
    time.sleep(0.5)  # into run_once, which waits for Spark
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "interrupted\n", "")
    assert ended(family)
    assert list((tmp_path / "home").glob("spark-*")) == []


def test_a_running_hub_takes_statements_and_rows_while_java_starts_and_can_be_stopped(tmp_path: Path) -> None:
    java = a_java_that_leaves_a_mark(tmp_path)
    program = OPEN_AND_RUN + (
        "import time\n"
        "with hub:\n"
        "    hub.start()\n"
        "    time.sleep(0.3)\n"
        "    hub.register('SELECT k FROM s', 'r')\n"
        "    hub.push('s', [{'k': 2, 'at': __import__('datetime').datetime(2024, 1, 1)}])\n"
        "    hub.stop()\n"
        "    print(hub.status()['epoch'], hub.status()['engine']['state'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "home")],
        env={**environment(local=False), "JAVA_HOME": str(java)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "starting 0\n0 starting\n", "")


@pytest.mark.parametrize(("once", "code"), [(True, 143), (False, 0)])
def test_a_signal_while_java_starts_ends_a_run_and_what_it_started(
    tmp_path: Path, once: bool, code: int
) -> None:
    java = a_java_that_leaves_a_mark(tmp_path)
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    home = tmp_path / "home"
    running = subprocess.Popen(
        command("run", script(tmp_path), "--home", home, *(["--once"] if once else [])),
        env={**environment(local=False), "JAVA_HOME": str(java)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    family = when_started(running, tmp_path / "started")
    assert running.stderr is not None
    while "registered" not in running.stderr.readline():
        assert running.poll() is None
    time.sleep(1.5)  # into the first epoch, which waits for Spark
    running.terminate()
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (code, ""), err
    assert "Stopped" in err
    assert "Traceback" not in err
    assert ended(family)
    assert list(home.glob("spark-*")) == []
    assert headrace("check", "--home", home).returncode == 0


@pytest.mark.spark
@pytest.mark.parametrize("after", [0.0, 0.3, 1.0, 2.0])
def test_a_killed_driver_leaves_no_process_of_a_start_at_any_moment(tmp_path: Path, after: float) -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            OPEN_AND_RUN + "hub.run_once()\nimport time; time.sleep(600)",
            str(tmp_path / "home"),
        ],
        env=environment(local=False),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(after)
    family = psutil.Process(child.pid).children(recursive=True)
    assert family
    child.kill()
    child.communicate()
    assert ended(family)


def test_a_java_that_ends_is_an_error_of_the_first_epoch_and_of_the_status(tmp_path: Path) -> None:
    java = a_java_that_leaves_a_mark(tmp_path, then="echo no room for a heap >&2; exit 3")
    program = OPEN_AND_RUN + (
        "import time\n"
        "while hub.status()['engine']['state'] == 'starting': time.sleep(0.01)\n"
        "print(hub.status()['engine'])\n"
        "for _ in range(2):\n"
        "    try: hub.run_once()\n"
        "    except hr.HeadraceError as error: print(type(error).__name__, error)\n"
        "hub.close()\n"
        "import psutil; assert psutil.Process().children() == []\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "home")],
        env={**environment(local=False), "JAVA_HOME": str(java)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "'state': 'failed'" in done.stdout
    assert (
        done.stdout.count(
            "SessionFailed Expected Java to start Spark, but it ended. Its last output:\n    no room"
        )
        == 2
    )
    run = subprocess.run(
        command("run", script(tmp_path), "--once"),
        env={**environment(local=False), "JAVA_HOME": str(java)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 1
    assert "headrace: Expected Java to start Spark, but it ended." in run.stderr


def test_the_local_engine_needs_no_java_and_spark_names_what_it_needs(tmp_path: Path) -> None:
    path = script(tmp_path)
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    empty = tmp_path / "empty"
    (empty / "bin").mkdir(parents=True)
    hidden = "import headrace.runtime.spark.java as j; j.find_spec = lambda _: None; from headrace.cli.main import main; "
    for engine, code in (("local", 0), ("spark", 2)):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                hidden
                + f"import sys; sys.exit(main(['run', {str(path)!r}, '--once', '--engine', {engine!r}]))",
            ],
            env={**environment(local=False), "JAVA_HOME": str(empty), "PATH": str(empty)},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == code, done.stderr
        assert ("Spark needs Java 17 to 25" in done.stderr) == (code == 2)


LOADED = """
import json, sys
from headrace.cli.main import main
code = main(["run", sys.argv[1], "--once", "--engine", "local"])
from headrace.constructors import constructor_code
print(json.dumps([code, sorted(sys.modules), constructor_code.cache_info().misses]), file=sys.stderr)
"""


def test_a_run_on_the_local_engine_loads_few_modules(tmp_path: Path) -> None:
    """Loading modules is most of the time of a small run: none that it does not need may come back."""
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(script(tmp_path))],
        env=environment(local=False),
        capture_output=True,
        text=True,
        timeout=100,
    )
    code, loaded, compiled = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    assert compiled <= 8
    others = {name.partition(".")[0] for name in loaded}
    assert not others & {"pandas", "pyspark", "py4j", "fastapi", "starlette", "uvicorn", "matplotlib"}
    assert "headrace.reference" not in loaded
    assert not {"ssl", "pyarrow.parquet"} & set(loaded)
    assert not [
        name
        for name in loaded
        if name.startswith(("headrace.server.app", "headrace.planner.explain.diagram"))
    ]
    assert not others & {"asyncio", "difflib", "threadpoolctl"}
    assert not [name for name in loaded if name.startswith("headrace.operators.row_windows.")]
    assert sum(name.startswith("headrace") for name in loaded) <= 641
    assert len(loaded) <= 913


SYNCED = """
import json, os, sys
files, fsync = [], os.fsync
def noted(descriptor):
    files.append(os.fstat(descriptor).st_ino)
    fsync(descriptor)
os.fsync = noted
from headrace.cli.main import main
code = main(["run", *sys.argv[1:], "--once", "--engine", "local"])
print(json.dumps([code, files]), file=sys.stderr)
"""


@pytest.mark.parametrize("kept", [True, False])
def test_only_a_home_that_is_kept_waits_for_the_disk(tmp_path: Path, kept: bool) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    options = ["--home", str(tmp_path / "home")] if kept else []
    done = subprocess.run(
        [sys.executable, "-c", SYNCED, str(script(tmp_path)), *options],
        env=environment(local=False),
        capture_output=True,
        text=True,
        timeout=100,
    )
    code, files = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    assert bool(files) == kept
