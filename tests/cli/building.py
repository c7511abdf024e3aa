"""A small bids stream in files, and the command line as a person would call it, without a JVM unless asked."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from headrace.cli.main import main

SCRIPT = """
CREATE STREAM bids (auction BIGINT, price DOUBLE, at TIMESTAMP)
  USING csv OPTIONS (path '{folder}/bids', header 'true', maxFilesPerTrigger '1', order 'name')
  TIMESTAMP BY at SLACK INTERVAL 5 SECONDS;
CREATE QUERY dear AS
  SELECT COUNT(*) AS n, auction, MAX(price) AS top
  FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE price > 100 GROUP BY auction;
"""
HEADER = "auction,price,at\n"


def command(*arguments: str | Path, local: bool = True) -> list[str]:
    return [sys.executable, "-m", "headrace.cli.main", *map(str, arguments)]


def environment(*, local: bool = True) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "HEADRACE_EXECUTOR"}
    return inherited | ({"HEADRACE_EXECUTOR": "local"} if local else {})


def apart(*arguments: str | Path, local: bool = True):
    """The command in a process of its own."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(local=local))


def headrace(*arguments: str | Path, typed: str = "", cwd: Path | None = None):
    """The command in this process, which saves its start; what it prints and exits with as of a process."""
    out, err = io.StringIO(), io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        stack.enter_context(patch.object(sys, "stdin", io.StringIO(typed)))
        stack.enter_context(patch.dict(os.environ, {"HEADRACE_EXECUTOR": "local"}))
        if cwd is not None:
            stack.enter_context(chdir(cwd))
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:  # what argparse does after a mistake
            code = ended.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def bid(second: int, auction: int | str, price: float | str) -> str:
    return f"{auction},{price},2024-01-01T00:{second // 60:02d}:{second % 60:02d}Z\n"


def put(folder: Path, name: str, *lines: str) -> None:
    """A file that appears whole, as a careful producer writes it."""
    folder.mkdir(exist_ok=True)
    unfinished = folder / f".{name}"
    unfinished.write_text(HEADER + "".join(lines))
    unfinished.rename(folder / name)


def script(folder: Path, *more: str) -> Path:
    path = folder / "script.cql"
    path.write_text(SCRIPT.format(folder=folder) + "\n".join(more))
    (folder / "bids").mkdir(exist_ok=True)
    return path
