"""A `--home` that this user may not write is a mistake in the command: reported in a sentence, exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.building import bid, headrace, put, script

PROGRAM = textwrap.dedent(
    """
    import contextlib, io, os, ssl, sys
    from headrace.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()):  # loads all modules, which a stranger may not be able to read
        assert main(["run", sys.argv[1], "--once", "--quiet"]) == 0
    if os.getuid() == 0:
        os.setuid(65534)
    sys.exit(main(["run", sys.argv[1], "--once", "--home", sys.argv[2]]))
    """
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may read, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="headrace-unwritable-") as scratch:
        Path(scratch).chmod(0o755)
        yield Path(scratch)


def as_nobody(script: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """`headrace run SCRIPT --once --home HOME` as a user who owns nothing: for root no permission is ever missing."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(script), str(home)],
        capture_output=True,
        text=True,
        env={**os.environ, "HEADRACE_EXECUTOR": "local", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
    )


def test_a_folder_without_the_right_to_write_is_reported_with_a_remedy(folder: Path) -> None:
    put(folder / "bids", "1.csv", bid(1, 2, 150))
    path = script(folder)
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    for home in (closed, closed / "home"):
        done = as_nobody(path, home)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert f"cannot open the home {home}: Permission denied" in done.stderr
        assert "Name a folder that this user may write in with --home DIR" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_home_of_another_user_is_reported_whatever_of_it_may_be_written(folder: Path) -> None:
    put(folder / "bids", "1.csv", bid(1, 2, 150))
    path, home = script(folder), folder / "home"
    assert headrace("run", path, "--once", "--home", home).returncode == 0
    for part in (home, *home.rglob("*")):
        part.chmod(0o755 if part.is_dir() else 0o644)
    home.chmod(0o777)
    (home / "LOCK").chmod(0o666)
    done = as_nobody(path, home)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Permission denied" in done.stderr
    assert "name another folder with --home DIR" in done.stderr
    assert headrace("check", "--home", home).returncode == 0


@pytest.mark.parametrize("home", ["/proc/headrace", "{folder}/file/home"])
def test_a_place_where_no_folder_can_be_is_reported(folder: Path, home: str) -> None:
    (folder / "file").write_text("")
    put(folder / "bids", "1.csv", bid(1, 2, 150))
    done = headrace("run", script(folder), "--once", "--home", home.format(folder=folder))
    assert done.returncode == 2
    assert "cannot open the home" in done.stderr
    assert "--home DIR" in done.stderr


def test_a_source_that_this_user_may_not_read_is_reported_with_what_to_do(folder: Path) -> None:
    put(folder / "bids", "1.csv", bid(1, 1, 101))
    home = folder / "home"
    home.mkdir()
    home.chmod(0o777)
    (folder / "bids").chmod(0o700 if os.getuid() == 0 else 0o000)
    ran = as_nobody(script(folder), home)
    (folder / "bids").chmod(0o700)
    assert ran.returncode == 2, ran.stderr
    assert f"'{folder}/bids' cannot be read: permission denied" in ran.stderr
    assert "Give user" in ran.stderr
    assert "Traceback" not in ran.stderr
