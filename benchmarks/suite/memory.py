"""Memory must not grow with the input: the same query over 2 M and 20 M rows by turns, the JVM's heap fixed and touched."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.charts import Bar
from benchmarks.contenders import HEADRACE
from benchmarks.report import Report
from benchmarks.runs import Measurement, Series, run
from benchmarks.thresholds import Ratio

FIXED = replace(HEADRACE, options={**HEADRACE.options, "heap": "fixed"})
SAMPLE_SECONDS = 0.05
"""A run's rows take about a second: seen twenty times, not twice."""


def memory(rows: int, rounds: int) -> Report:
    """Peak proportional set size of the whole process tree, for a tenth of the rows and for all, run by turns."""
    counts = (rows // 10, rows)
    runs: dict[int, list[Measurement]] = {count: [] for count in counts}
    for number in range(1, rounds + 1):
        for count in counts:
            done = run(FIXED, "tumbling", count, SAMPLE_SECONDS)
            runs[count].append(done)
            print(
                f"  round {number}: {count:,} rows in {done.seconds:.2f} s, {done.peak_pss_mb:,.0f} MB"
                f" at the highest of {done.samples} looks",
                flush=True,
            )
    few, many = (
        Series(FIXED.name, "tumbling", FIXED.yardstick, count, tuple(runs[count])) for count in counts
    )
    ratio = Ratio(
        f"peak for {rows:,} rows to peak for {rows // 10:,}", many.peak_pss_mb / few.peak_pss_mb, 1.3, True
    )
    looks = min(done.samples for series in runs.values() for done in series)
    return Report(
        "memory",
        "Memory of all processes, tumbling 60 s, heap fixed at 1 GB",
        [one.as_dict() for one in (few, many)],
        [ratio],
        [Bar(_label(one), one.peak_pss_mb, "ours") for one in (few, many)],
        "MB",
        [
            (
                f"Proportional set size, summed over the process tree every {SAMPLE_SECONDS * 1000:.0f} ms, at least "
                f"{looks} times a run from its start; the peak of {rounds} runs. "
                f"Growth: {many.peak_pss_mb - few.peak_pss_mb:,.0f} MB."
            )
        ],
    )


def _label(one: Series) -> str:
    return f"{one.runs[0].rows:,} rows"
