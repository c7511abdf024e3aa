"""What the README's reader gets: `hr.open(home)` in a new process, and the first query over Parquet files.

No setting, no environment variable of Headrace, nothing locked in memory, no warm-up; compared with the same without a JVM (`local=True`), and DuckDB's
batch group-by in a new process. *Open* returns while Spark starts, *start* is the rest of that. *Again* is the same query once more over the same files as a new stream of the same process: what is
between it and the first is the start of Spark's workers, their imports, and code and memory that are used for the first time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks import data, expected, folders
from benchmarks.charts import Bar
from benchmarks.environments import python_of, versions_of
from benchmarks.report import Report
from benchmarks.runs import RunFailed
from benchmarks.thresholds import Ratio

STEPS = ("import", "open", "start", "register", "run", "read", "again", "close")
_KEPT = ("PATH", "HOME", "LANG", "PYTHONPATH", "JAVA_HOME")
_LONGEST_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask, by name; `arguments` are the runner's. DuckDB has none."""

    name: str
    kind: str
    arguments: tuple[str, ...] = ()


DEFAULT = Way("hr.open(home)", "ours", ("spark", "on"))
UNARCHIVED = Way("hr.open(home), archive 'none'", "ours", ("spark", "none"))
LOCAL = Way("hr.open(home, local=True)", "ours", ("local", "on"))
LOCAL_UNARCHIVED = Way("hr.open(home, local=True), archive 'none'", "ours", ("local", "none"))
DUCKDB = Way("duckdb, batch", "yardstick")
WAYS = (DEFAULT, UNARCHIVED, LOCAL, LOCAL_UNARCHIVED, DUCKDB)


def default(rows: int, rounds: int) -> Report:
    """All ways in turn, each run in a process of its own."""
    source = data.rows(rows)
    runs: dict[Way, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(1, rounds + 1):
        for way in WAYS:
            steps = _run(way, source)
            runs[way].append(steps)
            times = ", ".join(f"{step} {seconds:.2f}" for step, seconds in steps.items())
            print(f"  round {number}: {way.name}: {times}", flush=True)
    spent = {way: median(_answered(steps) for steps in processes) for way, processes in runs.items()}
    return Report(
        "default",
        f"The first query of a new process, by default: {rows:,} rows",
        [_row(way, processes, rows, spent[way]) for way, processes in runs.items()],
        [
            Ratio("default to DuckDB's batch, seconds", spent[DEFAULT] / spent[DUCKDB], 5, at_most=True),
            Ratio("local to DuckDB's batch, seconds", spent[LOCAL] / spent[DUCKDB], 5, at_most=True),
        ],
        [Bar(way.name, rows / spent[way] / 1e6, way.kind) for way in WAYS],
        "M rows/s",
        [__doc__.strip(), _NOTE],
        {"duckdb": versions_of("duckdb")},
    )


_NOTE = (
    "Count, sum and maximum of 60 s by 1000 keys. The rate is that of run and read: from the first row read to the whole answer in the "
    "caller's hands, durable. The files are in the page cache unless the machine drops them. Every answer was compared with numpy's."
)


def _answered(steps: dict[str, float]) -> float:
    """Seconds from the first row read to the answer."""
    return steps["run"] + steps["read"]


def _row(way: Way, runs: list[dict[str, float]], rows: int, spent: float) -> dict[str, Any]:
    steps = {
        f"{step}_s": round(median(one[step] for one in runs), 3) if step in runs[0] else "" for step in STEPS
    }
    return {
        "way": way.name,
        "run_and_read": [round(_answered(one), 3) for one in runs],
        "median_rows_per_second": round(rows / spent),
        **steps,
    }


def _run(way: Way, source: data.Rows) -> dict[str, float]:
    """The seconds of each step of one run, its answer checked."""
    scratch = folders.fresh("default")
    output = scratch / "output"
    output.mkdir()
    if way is DUCKDB:
        command = [str(python_of("duckdb")), "-m", "benchmarks.peers.duckdb.runner", "--task", "tumbling"]
        command += ["--rows", str(source.count), "--rows-folder", str(source.folder), "--output", str(output)]
        said = _said([*command, "--option", "warm=no"])
        steps = {"open": said["startup_seconds"], "run": said["seconds"], "read": 0.0}
    else:
        command = [sys.executable, "-m", "benchmarks.default_runner", *way.arguments]
        steps = _said([*command, str(source.folder), str(scratch / "home"), str(output)])
    expected.check(output, "tumbling", source.count)
    return steps


def _said(command: list[str]) -> dict[str, float]:
    plain = {name: os.environ[name] for name in _KEPT if name in os.environ}
    done = subprocess.run(
        command,
        cwd=folders.CHECKOUT,
        env=plain,
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RunFailed(f"Expected {' '.join(command)}\nto end well, found:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
