"""From typing a command to its answer: hourly counts of 10,000 rows of CSV, each time in a new process.

`headrace run SCRIPT --once` on Spark, compared with a bare PySpark session that counts the rows of the same file; and with `--engine local`, with
DuckDB's package with the same hourly counts. All in turn, after one round that does not count: it reads every program from the disk,
and leaves the archive of Spark's classes that a first session makes (decision 27).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import folders
from benchmarks.charts import Bar
from benchmarks.environments import java_home, python_of, versions_of
from benchmarks.report import Report
from benchmarks.runs import RunFailed
from benchmarks.thresholds import Ratio
from headrace.runtime.spark.class_sharing import class_sharing
from headrace.runtime.spark.java import find_java

ROWS = 10_000
_LONGEST_SECONDS = 120
_ARCHIVE_SECONDS = 120
_COUNTS = [3600, 3600, 2800]
_SCRIPT = """
CREATE STREAM rows (at TIMESTAMP, key BIGINT, value DOUBLE)
  USING csv OPTIONS (path '{file}', header 'true') TIMESTAMP BY at;
CREATE QUERY counted AS SELECT COUNT(*) AS n FROM rows [RANGE 1 HOUR SLIDE 1 HOUR];
"""
_PYSPARK = """
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "4").config("spark.log.level", "OFF").getOrCreate())
print(spark.read.schema("at TIMESTAMP, key BIGINT, value DOUBLE").option("header", True).csv({file!r}).count())
spark.stop()
"""
_DUCKDB = """
import duckdb
print("n", *(n for n, in duckdb.sql(
    "SELECT count(*) FROM read_csv({file!r}) GROUP BY time_bucket(INTERVAL '1 hour', \\"at\\") ORDER BY min(\\"at\\")"
).fetchall()), sep="\\n")
"""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask, by name: a command, and the lines of its answer."""

    name: str
    kind: str
    command: tuple[str, ...]
    answer: tuple[str, ...]


def startup(_: int, rounds: int) -> Report:
    """All ways in turn; the number of rows is what a person tries first, whatever is asked for."""
    scratch = folders.fresh("startup")
    ways = _ways(scratch)
    for way in ways:
        _seconds(way, scratch)
    _wait_for_archive(scratch)
    runs: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(1, rounds + 1):
        for way in ways:
            runs[way.name].append(_seconds(way, scratch))
            print(f"  round {number}: {way.name}: {runs[way.name][-1]:.2f} s", flush=True)
    spent = {name: median(times) for name, times in runs.items()}
    spark, pyspark, local, duckdb = (way.name for way in ways)
    return Report(
        "startup",
        f"From a command to its answer: {ROWS:,} rows of CSV",
        [
            {"way": name, "seconds": [round(one, 2) for one in times], "median": round(spent[name], 2)}
            for name, times in runs.items()
        ],
        [
            Ratio("on Spark to a bare session that counts", spent[spark] / spent[pyspark], 1.2, at_most=True),
            Ratio("local to DuckDB's package", spent[local] / spent[duckdb], 2, at_most=True),
        ],
        [Bar(way.name, spent[way.name], way.kind) for way in ways],
        "seconds",
        [__doc__.strip()],
        {"duckdb": versions_of("duckdb")},
    )


def _ways(scratch: Path) -> tuple[Way, ...]:
    file, script = scratch / "rows.csv", scratch / "script.cql"
    lines = (f"{_at(second)},{second % 100},{second / 2}" for second in range(ROWS))
    file.write_text("\n".join(["at,key,value", *lines]) + "\n", encoding="utf-8")
    script.write_text(_SCRIPT.format(file=file), encoding="utf-8")
    run = (sys.executable, "-m", "headrace.cli.main", "run", str(script), "--once", "--quiet")
    counts = ("n", *map(str, _COUNTS))
    bare = (sys.executable, "-c", _PYSPARK.format(file=str(file)))
    duck = (str(python_of("duckdb")), "-c", _DUCKDB.format(file=str(file)))
    return (
        Way("headrace run --once", "ours", run, counts),
        Way("pyspark, count()", "yardstick", bare, (str(ROWS),)),
        Way("headrace run --once --engine local", "ours", (*run, "--engine", "local"), counts),
        Way("duckdb", "yardstick", duck, counts),
    )


def _at(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def _seconds(way: Way, scratch: Path) -> float:
    """Seconds of the whole process, its answer checked."""
    theirs = {"JAVA_HOME": str(java_home())} if way.kind == "yardstick" else {}
    begun = time.perf_counter()
    done = subprocess.run(
        way.command,
        cwd=scratch,
        env={**os.environ, **theirs},
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
    )
    spent = time.perf_counter() - begun
    if done.returncode != 0 or tuple(done.stdout.split()) != way.answer:
        raise RunFailed(
            f"Expected {way.name} to answer {way.answer}, found:\n{done.stdout}{done.stderr[-2000:]}"
        )
    return spent


def _wait_for_archive(scratch: Path) -> None:
    archive = class_sharing(find_java(), scratch).archive
    for _ in range(_ARCHIVE_SECONDS):
        if archive is None or archive.exists():
            return
        time.sleep(1)
