"""One run of a contender, and runs of several in turn: A B C A B C …, each answer checked before its time counts."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks import data, expected, folders
from benchmarks.contenders import Contender
from benchmarks.costs import Costs, costs
from benchmarks.environments import NotHere, java_home, python_of, settings_of
from benchmarks.memory import EVERY_SECONDS, PeakMemory

Entry = tuple[Contender, str]
"""A contender and a task."""

LONGEST_SECONDS = 900
_LIBC = ctypes.CDLL(None)


class RunFailed(Exception):
    """A contender ended with an error; the message holds the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run: `seconds` from the first row read to the last result written, memory at its peak."""

    rows: int
    seconds: float
    startup_seconds: float
    peak_pss_mb: float
    result_rows: int
    samples: int = 0
    """How often memory was measured."""

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


@dataclass(frozen=True, slots=True)
class Series:
    """All runs of one contender at one task, over all `wanted` rows or over several parts of them."""

    contender: str
    task: str
    yardstick: bool
    wanted: int
    runs: tuple[Measurement, ...]
    wrong: int = 0
    """Runs that do not count because the answer was wrong."""

    @property
    def sizes(self) -> list[int]:
        """The numbers of rows it was measured at."""
        return sorted({run.rows for run in self.runs})

    @property
    def costs(self) -> Costs | None:
        """What a row costs and what it costs without any; None where all rows were measured."""
        if self.sizes == [self.wanted]:
            return None
        return costs([(run.rows, run.seconds) for run in self.runs])

    @property
    def seconds(self) -> float:
        """Median seconds for all wanted rows, or what follows from the costs."""
        if (fitted := self.costs) is not None:
            return fitted.seconds(self.wanted)
        return median(run.seconds for run in self.runs)

    @property
    def rate(self) -> float:
        """Rows a second of all wanted rows."""
        return self.wanted / self.seconds

    @property
    def peak_pss_mb(self) -> float:
        return max(run.peak_pss_mb for run in self.runs)

    def as_dict(self) -> dict[str, Any]:
        fitted = self.costs
        return {
            "contender": self.contender,
            "task": self.task,
            "yardstick": self.yardstick,
            "rows": self.sizes if fitted else self.wanted,
            "runs_with_wrong_answers": self.wrong,
            "result_rows": max(run.result_rows for run in self.runs),
            "seconds": [round(run.seconds, 3) for run in self.runs],
            "fixed_seconds": "" if fitted is None else round(fitted.fixed, 3),
            "extrapolated": "" if fitted is None else f"{self.wanted / self.sizes[-1]:.3g}x",
            "median_rows_per_second": round(self.rate),
            "median_startup_seconds": round(median(run.startup_seconds for run in self.runs), 2),
            "peak_pss_mb": round(self.peak_pss_mb),
        }


def present(entries: Iterable[Entry]) -> tuple[list[Entry], list[str]]:
    """The entries whose contender this machine can run, and a sentence on each other one with the reason."""
    missing: dict[str, str] = {}
    here: list[Entry] = []
    for who, task in entries:
        try:
            python_of(who.peer), settings_of(who.peer)
        except NotHere as reason:
            missing[who.name] = f"{who.name} is left out: {reason}"
            print(f"  {missing[who.name]}", flush=True)
        else:
            here.append((who, task))
    return here, list(missing.values())


def in_turn(entries: list[Entry], wanted: int, rounds: int) -> list[Series]:
    """Run every (contender, task) `rounds` times, interleaved; one that is named several times runs as often in each round.

    A wrong answer of Headrace raises `WrongAnswer`. A peer's run with a wrong answer does not count, and is reported: some drop rows
    when a machine stalls. A peer without a right answer at each of its sizes has no series.
    """
    wrong: dict[tuple[str, str], int] = {}
    runs: dict[tuple[str, str], list[Measurement]] = {(who.name, task): [] for who, task in entries}
    for number in range(1, rounds + 1):
        for who, task in entries:
            for size in who.sizes(task, wanted):
                try:
                    done = run(who, task, size)
                except expected.WrongAnswer as error:
                    if who.peer is None:
                        raise
                    wrong[who.name, task] = wrong.get((who.name, task), 0) + 1
                    print(
                        f"  round {number}: {who.name}, {task}: not counted, its answer is wrong: {error}",
                        flush=True,
                    )
                    continue
                runs[who.name, task].append(done)
                print(
                    f"  round {number}: {who.name}, {task}: {done.rows:,} rows in {done.seconds:.2f} s, "
                    f"{done.rows / done.seconds / 1e6:.3f} M rows/s, {done.peak_pss_mb:,.0f} MB",
                    flush=True,
                )
    return [
        Series(
            who.name,
            task,
            who.yardstick,
            wanted,
            tuple(runs[who.name, task]),
            wrong.get((who.name, task), 0),
        )
        for who, task in {(who.name, task): (who, task) for who, task in entries}.values()
        if _enough(who, task, wanted, runs[who.name, task])
    ]


def _enough(who: Contender, task: str, wanted: int, runs: list[Measurement]) -> bool:
    """Whether every size has a right answer: else nothing is extrapolated from the others."""
    return {run.rows for run in runs} == set(who.sizes(task, wanted))


def run(who: Contender, task: str, count: int, sample_seconds: float = EVERY_SECONDS) -> Measurement:
    """Run `who` once in its own process and check what it answered; its memory is measured every `sample_seconds`."""
    rows = data.rows(count, who.form)
    scratch = folders.fresh("run")
    output = scratch / "output"
    command = [str(python_of(who.peer)), "-m", who.module, "--task", task, "--rows", str(count)]
    command += ["--rows-folder", str(rows.folder), "--output", str(output)]
    for option, value in who.options.items():
        command += ["--option", f"{option}={value}"]
    with _in_memory(rows.folder):
        said, memory = run_watched(
            command, scratch, sample_seconds, {**settings_of(who.peer), **who.environment}
        )
    result_rows = expected.check(output, task, count)
    peak = memory.peak_kb / 1024
    return Measurement(count, said["seconds"], said["startup_seconds"], peak, result_rows, memory.samples)


@contextmanager
def _in_memory(folder: Path) -> Iterator[None]:
    """Read the rows once, so that the first contender does not pay for the disk, and keep them there while a contender starts.

    Some kernels take pages back within seconds in which no process reads them. Where locking is not allowed that may happen.
    """
    with ExitStack() as held:
        for file in folder.iterdir():
            file.read_bytes()
            if file.stat().st_size:
                mapped = held.enter_context(_mapped(file))
                _LIBC.mlock(ctypes.c_void_p(np.frombuffer(mapped, np.uint8).ctypes.data), len(mapped))
        yield


@contextmanager
def _mapped(file: Path) -> Iterator[mmap.mmap]:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        yield mapped


def run_watched(
    command: list[str],
    scratch: Path,
    sample_seconds: float = EVERY_SECONDS,
    environment: Mapping[str, str] = MappingProxyType({}),
    longest_seconds: float = LONGEST_SECONDS,
) -> tuple[dict[str, Any], PeakMemory]:
    """The runner's report, which is its last line, and its processes' memory at its peak. Raises `RunFailed`."""
    python = command[0]
    settings = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": python,
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(scratch),
        "TZ": "UTC",
        **environment,
    }
    with (scratch / "stdout").open("wb") as out, (scratch / "stderr").open("wb") as err:
        process = subprocess.Popen(
            command, cwd=folders.CHECKOUT, env=settings, stdout=out, stderr=err, start_new_session=True
        )
        try:
            with PeakMemory(process.pid, sample_seconds) as memory:
                code = process.wait(longest_seconds)
        finally:
            _end(process)
    lines = (scratch / "stdout").read_text().strip().splitlines()
    if code != 0 or not lines:
        last = "\n".join((scratch / "stderr").read_text(errors="replace").splitlines()[-20:])
        raise RunFailed(f"Expected {' '.join(command)}\nto end well, found exit code {code}:\n{last}")
    return json.loads(lines[-1]), memory


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a run and wait for it: a peer's JVM that still cleans up would disturb the next one."""
    with suppress(ProcessLookupError):
        for _ in range(100):  # not without end: a zombie that no parent reaps can be signalled too
            os.killpg(process.pid, signal.SIGKILL)
            process.poll()
            time.sleep(0.05)
