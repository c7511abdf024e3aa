"""Memory must not grow with the input: the same query over 2 M and 20 M rows, the JVM's heap fixed and touched."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.contenders import HEADRACE
from benchmarks.plot import Bar
from benchmarks.report import Report
from benchmarks.runs import Series, in_turn
from benchmarks.thresholds import Ratio

FIXED = replace(HEADRACE, options={**HEADRACE.options, "heap": "fixed"})


def memory(rows: int, rounds: int) -> Report:
    """Peak proportional set size of the whole process tree, for a tenth of the rows and for all."""
    few, many = (in_turn([(FIXED, "tumbling")], count, rounds)[0] for count in (rows // 10, rows))
    ratio = Ratio(
        f"peak for {rows:,} rows to peak for {rows // 10:,}", many.peak_pss_mb / few.peak_pss_mb, 1.3, True
    )
    return Report(
        "memory",
        "Memory of all processes, tumbling 60 s, heap fixed at 1 GB",
        [one.as_dict() for one in (few, many)],
        [ratio],
        [Bar(_label(one), one.peak_pss_mb, "ours") for one in (few, many)],
        "MB",
        [
            (
                "Proportional set size, summed over the process tree twice a second; its peak. "
                f"Growth: {many.peak_pss_mb - few.peak_pss_mb:,.0f} MB."
            )
        ],
    )


def _label(one: Series) -> str:
    return f"{one.runs[0].rows:,} rows"
