"""Queries over queries: what a push costs by how many queries are above each other, from ten rows to the last answer.

Chains of 1, 2, 4 and 8 queries that select rows, and of windows over windows, each in a home of its own, all in one process without
Spark and in turn, push by push. Next to the time is that of the processor, of all threads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

from benchmarks import folders
from benchmarks.charts import Curve, Curves
from benchmarks.fresh_processes import in_each
from benchmarks.report import Report
from benchmarks.suite.standing import Clocked, script
from benchmarks.thresholds import Ratio
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub

DEPTHS: Final = (1, 2, 4, 8)
KINDS: Final = {
    "selections": ("SELECT k, x, at FROM s WHERE x > -1", "SELECT k, x, at FROM q{below} WHERE x > -1"),
    "windows": (
        "SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND] GROUP BY k",
        "SELECT k, MAX(n) AS n FROM q{below} [RANGE TUMBLING 1 SECOND] GROUP BY k",
    ),
}
"""The first query of a chain, and each one above it."""
_WARM_UP: Final = 10
_PUSHES: Final = 50


def chain(kind: str, depth: int) -> list[str]:
    """Queries each over the one before, so many levels deep."""
    first, above = KINDS[kind]
    return [first, *(above.format(below=level) for level in range(depth - 1))]


def deep(kind: str) -> dict[int, tuple[float, float]]:
    """Depth → median milliseconds, and milliseconds of the processor, from ten rows to the last answer."""
    times: dict[int, list[tuple[float, float]]] = {depth: [] for depth in DEPTHS}
    with ExitStack() as opened:
        homes: Mapping[int, Clocked] = {
            depth: Clocked(
                opened.enter_context(
                    Hub(folders.fresh(f"depth-{kind}-{depth}") / "home", LocalExecutor(), tasks=1)
                )
            )
            for depth in DEPTHS
        }
        for depth, clocked in homes.items():
            clocked.hub.execute(script(chain(kind, depth)))
        for _ in range(_WARM_UP + _PUSHES):
            for depth, clocked in homes.items():
                busy = time.process_time()
                started = time.perf_counter()
                clocked.push(10, "s")
                clocked.settle()
                passed = time.perf_counter() - started
                times[depth].append((passed * 1000, (time.process_time() - busy) * 1000))
    counted = {depth: of_depth[_WARM_UP:] for depth, of_depth in times.items()}
    return {
        depth: (median(passed for passed, _ in ones), median(busy for _, busy in ones))
        for depth, ones in counted.items()
    }


def depth(rows: int, rounds: int) -> Report:
    """Each kind of chain in so many new processes; `rows` has no effect."""
    del rows
    table: list[dict[str, Any]] = []
    ratios, curves = [], []
    for kind in KINDS:
        measured = in_each(rounds, deep, kind)
        spent = {
            levels: tuple(median(one[levels][part] for one in measured) for part in (0, 1))
            for levels in DEPTHS
        }
        for number, (passed, busy) in spent.items():
            row = {"chain of": kind, "queries": number, "ms": round(passed, 2), "cpu_ms": round(busy, 2)}
            table.append(row)
            print(f"  {row}", flush=True)
        what = f"{kind}: a push through a chain of {DEPTHS[-1]} queries to one of 1"
        ratios.append(Ratio(what, spent[DEPTHS[-1]][0] / spent[1][0], 2, True))
        ratios.append(Ratio(f"{what}, of the processor", spent[DEPTHS[-1]][1] / spent[1][1], 2, True))
        curves.append(Curve(kind, DEPTHS, [spent[levels][0] for levels in DEPTHS], "ours"))
    picture = Curves("A push through queries over queries", ("queries above each other", "ms"), curves)
    return Report(
        "depth", "Depth", table, ratios, (), "ms", [" ".join(str(__doc__).split())], picture=picture
    )
