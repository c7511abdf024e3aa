"""One writer at a time; a killed writer is no obstacle."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import HomeInUse, StoreError
from headrace.store.files.lock import HomeLock


def test_a_second_writer_learns_who_is_the_first(tmp_path: Path) -> None:
    with (
        HomeLock(tmp_path / "home"),
        pytest.raises(
            HomeInUse, match=rf"is in use by process {os.getpid()} on .*Stop it, or name another home"
        ),
    ):
        HomeLock(tmp_path / "home").acquire()
    with HomeLock(tmp_path / "home") as again:
        again.release()
        again.release()
        with HomeLock(tmp_path / "home"):
            pass


def test_a_killed_writer_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, time; from headrace.store.files.lock import HomeLock\n"
        "HomeLock(sys.argv[1]).acquire(); print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(HomeInUse, match=f"process {holder.pid} "):
            HomeLock(tmp_path).acquire()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with HomeLock(tmp_path):
        pass


def test_a_home_that_cannot_be_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=r"cannot open the home .*file: File exists"):
        HomeLock(tmp_path / "file").acquire()


def test_a_lock_that_cannot_be_written_is_reported_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(StoreError, match="No space left"):
            HomeLock(tmp_path).acquire()
    with HomeLock(tmp_path):
        pass
