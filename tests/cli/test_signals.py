"""Signals as flags: what is under way is finished, what has not begun is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from headrace.cli.signals import Interrupts
from tests.cli.building import bid, command, environment, headrace, put, script


def test_a_signal_is_remembered_not_raised_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as stop:
        assert stop.proceed()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        assert (stop.stop, stop.exit_code) == (True, 143)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_start_that_is_under_way_is_given_up_when_a_signal_comes_and_at_once_if_one_has_come() -> None:
    given_up = []
    with Interrupts() as stop:
        stop.when_requested(lambda: given_up.append("first"))
        assert given_up == []
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)
        assert given_up == ["first"]
        stop.when_requested(lambda: given_up.append("second"))
    assert given_up == ["first", "second"]


@pytest.mark.spark
@pytest.mark.parametrize(("once", "code"), [(True, 143), (False, 0)])
def test_sigterm_to_the_whole_group_takes_spark_too_and_leaves_no_trace_on_stderr(
    tmp_path: Path, once: bool, code: int
) -> None:
    """What a service manager sends reaches Java and the workers at the same moment as us."""
    for name in range(40):
        put(tmp_path / "bids", f"{name:03d}.csv", bid(name, name % 4, 101 + name))
    home, path = tmp_path / "home", script(tmp_path)
    running = subprocess.Popen(
        command("run", path, "--home", home, "--cores", "1", *(["--once"] if once else [])),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(local=False),
        start_new_session=True,
    )
    log = home / "epochs.jsonl"
    while not log.exists() or log.read_text().count("\n") < 4:
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    family = psutil.Process(running.pid).children(recursive=True)
    os.killpg(running.pid, signal.SIGTERM)
    _, err = running.communicate(timeout=100)
    assert running.returncode == code, err
    for noise in ("Traceback", "Exception", "Error", "WARN", "py4j", "SIGTERM"):
        assert noise not in err, err
    assert "Stopped" in err
    assert psutil.wait_procs(family, timeout=30)[1] == []
    assert list(home.glob("spark-*")) == []
    assert headrace("check", "--home", home).returncode == 0
    resumed = headrace("run", path, "--once", "--home", home)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == headrace("run", path, "--once").stdout
