"""`headrace run` that follows its sources: signals, resuming, files kept current."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.building import bid, command, environment, headrace, put, script


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def eventually(condition, process: subprocess.Popen[str]) -> None:
    """Wait for something that must happen; a process that ended first shows why."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.02)


def ended(process: subprocess.Popen[str], number: int) -> tuple[str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out, err


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_output_is_kept_current_while_it_follows(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101))
    target = tmp_path / "out" / "dear.csv"
    running = started("run", script(tmp_path), "--home", tmp_path / "home", "--output", tmp_path / "out")
    eventually(lambda: text_of(target) == "n,auction,top\n", running)
    put(tmp_path / "bids", "2.csv", bid(70, 1, 102))
    eventually(lambda: text_of(target) == "n,auction,top\n1,1,101.0\n", running)
    put(tmp_path / "bids", "3.csv", bid(140, 2, 103))
    eventually(lambda: text_of(target) == "n,auction,top\n1,1,101.0\n1,1,102.0\n", running)
    ended(running, signal.SIGINT)
    assert (
        text_of(target) == "n,auction,top\n1,1,101.0\n1,1,102.0\n"
    )  # nothing provisional: the stream continues


def test_rows_appear_as_windows_close_and_the_next_run_resumes(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    home = tmp_path / "home"
    running = started("run", script(tmp_path), "--home", home)
    eventually((home / "results").exists, running)
    out, err = ended(running, signal.SIGTERM)
    assert out == "n,auction,top\n1,1,101.0\n"
    assert "the home is" in err
    put(tmp_path / "bids", "2.csv", bid(140, 3, 103))
    running = started("run", script(tmp_path), "--home", home)
    eventually(lambda: len(list((home / "results").iterdir())) > 1, running)
    out, _ = ended(running, signal.SIGINT)
    assert out == "n,auction,top\n1,2,102.0\n"


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupt_at_any_moment_leaves_a_home_that_the_next_run_finishes(tmp_path, seed) -> None:
    dice = random.Random(seed)
    for name in range(12):
        put(tmp_path / "bids", f"{name:02d}.csv", *(bid(30 * name + i, i % 4, 90 + 3 * i) for i in range(20)))
    path, home = script(tmp_path), tmp_path / "home"
    running = started("run", path, "--home", home, "--output", tmp_path / "out")
    eventually((home / "epochs.jsonl").exists, running)
    time.sleep(dice.random() * 1.5)
    ended(running, dice.choice([signal.SIGINT, signal.SIGTERM]))
    resumed = headrace("run", path, "--once", "--home", home)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == headrace("run", path, "--once").stdout
    assert headrace("check", "--home", home).returncode == 0


def test_an_interrupted_once_run_shows_no_answers_and_says_so(tmp_path) -> None:
    for name in range(2000):
        put(tmp_path / "bids", f"{name:04d}.csv", bid(60 * (name // 8), 1, 101))
    home = tmp_path / "home"
    running = started("run", script(tmp_path), "--once", "--home", home)
    eventually(lambda: text_of(home / "epochs.jsonl").count("\n") > 3, running)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, ""), err
    assert "Stopped before all input was read" in err


def test_a_signal_while_arrow_reads_is_not_arrows_to_answer(tmp_path) -> None:
    """Arrow would end a read at a signal with an error of its own, and the epoch with it."""
    program = """
import os, signal, sys, threading, time
from pathlib import Path
import pyarrow, pyarrow.csv
from headrace.cli.signals import Interrupts
from headrace.cli.signals import let_arrow_finish
rows = pyarrow.py_buffer(b"a,b\\n" + b"1,2\\n" * 5_000_000)
reading = threading.Event()
def interrupt():
    reading.wait()
    time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
let_arrow_finish()
with Interrupts() as stop:
    reading.set()
    print(pyarrow.csv.read_csv(rows).num_rows)
    assert stop.wait(10)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "home"], capture_output=True, text=True, env=environment()
    )
    assert ran.stdout == "5000000\n", ran.stderr


def test_only_one_process_writes_a_home_but_others_may_look(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    home = tmp_path / "home"
    running = started("run", script(tmp_path), "--home", home)
    eventually(lambda: text_of(home / "epochs.jsonl").count("\n") > 0, running)
    second = headrace("run", script(tmp_path), "--home", home, "--output", tmp_path / "out")
    assert second.returncode == 2
    assert f"another process runs the home {home}" in second.stderr
    sent = headrace("run", script(tmp_path), "--home", home)
    assert (sent.returncode, running.poll()) == (0, None)
    assert f"The hub on {home} follows the sources" in sent.stderr
    looked = headrace(
        "shell", "--home", home, "-e", "INVOKE dear; SHOW QUERIES; EXPLAIN QUERY dear; DESCRIBE bids"
    )
    assert looked.returncode == 0, looked.stderr
    assert "# dear\nn,auction,top\n1,1,101.0\n" in looked.stdout
    assert (
        "name,state,answered_to,complete_since,owner,tags,query\ndear,live,2024-01-01T00:01:05Z,,,,"
        in looked.stdout
    )
    changed = headrace(
        "shell", "--home", home, "-e", "DROP QUERY dear;"
    )  # sent to the process that runs the home
    assert changed.returncode == 0, changed.stderr
    assert "there is no query 'dear'" in headrace("shell", "--home", home, "-e", "INVOKE dear").stderr
    ended(running, signal.SIGINT)
