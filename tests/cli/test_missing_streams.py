"""The command without standard input, output or error, as `>&-` of a shell starts it."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from tests.cli.building import bid, command, environment, put, script


def closed(streams: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    words = shlex.join(command(*map(str, arguments)))
    return subprocess.run(
        ["sh", "-c", f"{words} {streams}"], capture_output=True, text=True, env=environment()
    )


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_without_a_standard_stream_does_its_work(tmp_path, streams: str) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 2, 150), bid(70, 1, 150))
    home = tmp_path / "home"
    done = closed(streams, "run", script(tmp_path), "--once", "--home", home, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("n,auction,top\n1,2,150.0\n1,1,150.0\n" if streams == "2>&-" else "")
    shown = closed("", "shell", "--home", home, "-e", "INVOKE dear")
    assert shown.stdout == "# dear\nn,auction,top\n1,2,150.0\n"


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&-"])
def test_a_mistake_without_a_standard_stream_has_its_exit_code(tmp_path, streams: str) -> None:
    path = tmp_path / "mistake.cql"
    path.write_text("bogus;")
    done = closed(streams, "run", path, "--once")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert closed(streams, "shell", "--home", tmp_path / "home").returncode == 0
