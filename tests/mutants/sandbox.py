"""A copy of the checkout in which one module at a time has a mistake, and in which pytest runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.mutants import executed_lines, observing
from tests.mutants.operators import Mutant

ROOT = Path(__file__).parents[2]
CODE = ("src/headrace", "benchmarks")
"""Folders whose modules get mistakes."""
_NOT_COPIED = (".git", ".venv", ".bench", ".soak", ".hypothesis", "__pycache__", ".*_cache")
_START_SECONDS = 60
_FAILED, _NO_TESTS = 1, 5


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant.

    `how` is `survived`, `wrong answer` (an assertion failed), `error` (the code raised), `hang`, or `broken`: pytest could not run
    the tests, which shows nothing.
    """

    how: str
    test: str = ""
    said: str = ""

    @property
    def noticed(self) -> bool:
        """Whether a test failed."""
        return self.how in ("wrong answer", "error", "hang")


class Sandbox:
    """The copy of a checkout, in a folder of its own."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.root, self.copy = root, folder / "checkout"
        self.lines = folder / "lines"
        """Where `executed_lines` writes."""
        self._hooks = folder / "hooks"
        self._report = folder / "report"
        self._environment = {
            "PYTHONPATH": f"{self._hooks}:{self.copy / 'src'}:{self.copy}",
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
            observing.REPORT: str(self._report),
        }
        self._moments = count(1)
        shutil.copytree(root, self.copy, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        self.lines.mkdir()
        self._hooks.mkdir()
        shutil.copy(executed_lines.__file__, self._hooks / "sitecustomize.py")
        shutil.copy(observing.__file__, self._hooks / "observing.py")

    def fate(self, module: Path, mutant: Mutant, tests: Sequence[str], seconds: int, marks: str) -> Fate:
        """The result of the tests of a module with a mistake in it; each has so many seconds."""
        place = self.copy / module
        usual, original = place.stat(), place.read_bytes()
        place.write_text(mutant.source, encoding="utf-8")
        later = usual.st_mtime + next(
            self._moments
        )  # compiled code is found by this time, and must not be another mutant's
        os.utime(place, (later, later))
        try:
            code, ended = self.run([*tests, "-x"], seconds, marks)
        finally:
            place.write_bytes(original)
            os.utime(place, (usual.st_atime, usual.st_mtime))
        if code is None:
            return Fate("hang", said=f"ended after {_START_SECONDS + 2 * seconds} s")
        failed = next((report for report in ended if report["failed"]), None)
        if failed is None:
            return Fate("survived" if code in (0, _NO_TESTS) else "broken")
        said = f"{failed['error']}: {failed['message']}".splitlines()[0]
        if failed["message"].startswith("Timeout"):
            return Fate("hang", failed["test"], said)
        wrong = failed["error"] in ("AssertionError", "Failed")
        return Fate("wrong answer" if wrong else "error", failed["test"], said)

    def run(
        self, arguments: Sequence[str], seconds: int, marks: str, more: Mapping[str, str] | None = None
    ) -> tuple[int | None, list[dict[str, Any]]]:
        """Pytest's exit code (none: it did not end in time), and what `observing` recorded of each test."""
        self._report.write_text("", encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "observing",
        ]
        command += [f"--timeout={seconds}", "-m", marks, *arguments]
        environment = {**os.environ, **self._environment, **(more or {})}
        quiet: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        run = subprocess.Popen(command, cwd=self.copy, env=environment, start_new_session=True, **quiet)
        try:
            code = run.wait(_START_SECONDS + 2 * seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(run)
        lines = self._report.read_text(encoding="utf-8").splitlines()
        return code, [json.loads(line) for line in lines]


def _end(run: subprocess.Popen[bytes]) -> None:
    """End what a run has left: Java, and processes that a test started and a mistake kept alive."""
    try:
        os.killpg(run.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        run.wait()


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    """A sandbox, and nothing left of it."""
    with tempfile.TemporaryDirectory(prefix="headrace-mutants-", ignore_cleanup_errors=True) as folder:
        yield Sandbox(Path(folder))
