"""`python -m benchmarks [names]`: measure, compare with the thresholds, write results/ and the figures of the README.

Exit code 1 when a threshold is missed; 3 when results were not written: the machine was not quiet before the run, or lacks a program.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from functools import partial

from benchmarks import data, folders, quiet, readme, report
from benchmarks.environments import NotHere
from benchmarks.suite.adapt import adapt
from benchmarks.suite.adaptive_counts import adaptive_counts
from benchmarks.suite.adaptive_filters import adaptive_filters
from benchmarks.suite.alerts import alerts
from benchmarks.suite.backfill import backfill
from benchmarks.suite.caches import caches
from benchmarks.suite.churn import churn
from benchmarks.suite.console import console
from benchmarks.suite.constraints import constraints
from benchmarks.suite.correlated import correlated
from benchmarks.suite.correlated_sliding import correlated_sliding
from benchmarks.suite.crossover import crossover
from benchmarks.suite.default import default
from benchmarks.suite.depth import depth
from benchmarks.suite.epoch import epoch
from benchmarks.suite.flood import MINUTES, flood
from benchmarks.suite.history import history
from benchmarks.suite.instants import instants
from benchmarks.suite.invoke import invoke
from benchmarks.suite.join_core import join_core
from benchmarks.suite.join_orders import join_orders
from benchmarks.suite.joins import joins
from benchmarks.suite.joins_costs import joins_costs
from benchmarks.suite.joins_trees import joins_trees
from benchmarks.suite.joins_unions import late_joins, skewed_joins
from benchmarks.suite.latency import latency
from benchmarks.suite.many_ranges import many_ranges
from benchmarks.suite.memory import memory
from benchmarks.suite.oscar import oscar
from benchmarks.suite.oscar_history import oscar_history
from benchmarks.suite.oscar_reads import load, skips
from benchmarks.suite.overload import overload
from benchmarks.suite.past import past
from benchmarks.suite.psoup import figure_7, figure_9
from benchmarks.suite.psoup_joins import figure_8, figure_11
from benchmarks.suite.punctuation import bounded, disordered, overhead, punctuation
from benchmarks.suite.queries import queries
from benchmarks.suite.query_index import query_index
from benchmarks.suite.ranges import ranges
from benchmarks.suite.saturation import saturation
from benchmarks.suite.server import server
from benchmarks.suite.shedding import shedding
from benchmarks.suite.sketches import sketches
from benchmarks.suite.skew import late_union, skew
from benchmarks.suite.slack import band, blocks
from benchmarks.suite.split_merge import split_merge
from benchmarks.suite.standing import standing
from benchmarks.suite.startup import startup
from benchmarks.suite.stream_joins import stream_joins
from benchmarks.suite.synopses import synopses
from benchmarks.suite.two_level import two_level
from benchmarks.suite.updates import updates
from benchmarks.suite.window_id import buffering, panes
from benchmarks.suite.windows import shared, sliding, tumbling

SUITE = {
    "default": default,
    "startup": startup,
    "tumbling": tumbling,
    "sliding": sliding,
    "shared": shared,
    "ranges": ranges,
    "many-ranges": many_ranges,
    "buffering": buffering,
    "band": band,
    "blocks": blocks,
    "panes": panes,
    "join-core": join_core,
    "joins": joins,
    "stream-joins": stream_joins,
    "joins-trees": joins_trees,
    "joins-costs": joins_costs,
    "skewed-joins": skewed_joins,
    "late-joins": late_joins,
    "skew": skew,
    "late-union": late_union,
    "split-merge": split_merge,
    "query-index": query_index,
    "queries": queries,
    "alerts": alerts,
    "churn": churn,
    "invoke": invoke,
    "backfill": backfill,
    "past": past,
    "oscar": oscar,
    "oscar-skips": skips,
    "oscar-load": load,
    "oscar-history": oscar_history,
    "psoup": figure_7,
    "psoup-rate": figure_9,
    "psoup-joins": figure_8,
    "composites": figure_11,
    "depth": depth,
    "epoch": epoch,
    "latency": latency,
    "history": history,
    "instants": instants,
    "memory": memory,
    "punctuation": punctuation,
    "overhead": overhead,
    "disorder": disordered,
    "bounded": bounded,
    "adapt": adapt,
    "crossover": crossover,
    "adaptive-filters": adaptive_filters,
    "adaptive-counts": adaptive_counts,
    "constraints": constraints,
    "join-orders": join_orders,
    "caches": caches,
    "two-level": two_level,
    "synopses": synopses,
    "updates": updates,
    "correlated": correlated,
    "correlated-sliding": correlated_sliding,
    "sketches": sketches,
    "shedding": shedding,
    "overload": overload,
    "flood": flood,
    "saturation": saturation,
    "standing": standing,
    "server": server,
    "console": console,
}
EXPERIMENTS = {
    "E1": "buffering",
    "E2": "band",
    "E3": "blocks",
    "E4": "panes",
    "E5": "adapt",
    "E6": "adapt",
    "E7": "joins",
    "E8": "joins",
    "E9": "two-level",
    "E10": "skew",
    "E11": "skewed-joins",
    "E12": "late-joins",
    "E13": "late-union",
}
"""Experiments of Li, Window Queries over Data Streams (2008), by the benchmark that repeats them."""
BARS = {
    **dict.fromkeys(("B1", "B4", "B5", "B10", "B11", "B17"), "adaptive-counts"),
    **dict.fromkeys(("B2", "B3", "B6"), "adaptive-filters"),
    **dict.fromkeys(("B7", "B8", "B9"), "caches"),
    **dict.fromkeys(("B12", "B13", "B14", "B15", "B16", "B18"), "constraints"),
}
"""Bars from the experiments of Babu, Adaptive Query Processing in Data Stream Management Systems (2005), by the benchmark that measures them."""

QUICK_ROWS, QUICK_MINUTES = 50_000, 1 / 3
MISSED, REFUSED = 1, 3
"""Exit codes."""
_PATIENCE_SECONDS = 180.0
"""How long the load of one benchmark may take to fade before the next."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help=f"of {', '.join((*SUITE, *EXPERIMENTS, *BARS))} (default: all)"
    )
    default = int(os.environ.get("HEADRACE_BENCH_ROWS", data.ROWS))
    parser.add_argument("--rows", type=int, default=default, help="at most, for every contender")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of `flood`")
    parser.add_argument(
        "--repaired", type=float, default=MINUTES, help="minutes of the `flood` whose answers are repaired"
    )
    parser.add_argument("--date", default=dt.datetime.now(tz=dt.UTC).date().isoformat())
    parser.add_argument("--dry", action="store_true", help="print, but leave benchmarks/results as it is")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"one round of {QUICK_ROWS:,} rows, a third of a minute, as --dry",
    )
    parser.add_argument(
        "--anyway", action="store_true", help="where the load is too high: write to .bench/results"
    )
    options = parser.parse_args()
    names = [(EXPERIMENTS | BARS).get(name, name) for name in options.names]
    if unknown := set(names) - SUITE.keys():
        parser.error(f"expected names of {', '.join(SUITE)}, found {', '.join(sorted(unknown))}")
    if options.quick:
        options.rows, options.rounds, options.dry = QUICK_ROWS, 1, True
        options.minutes = QUICK_MINUTES
    suite = SUITE | {"flood": partial(flood, minutes=options.minutes, repaired=options.repaired)}
    missed = refused = 0
    for index, name in enumerate(dict.fromkeys(names or SUITE)):
        before = quiet.load_before(_PATIENCE_SECONDS if index and not options.dry else 0)
        print(f"{name}, at load {before:.2f}:", flush=True)
        try:
            page = suite[name](options.rows, options.rounds)
        except NotHere as reason:
            print(f"  LEFT OUT: {reason}", flush=True)
            refused += 1
            continue
        for ratio in page.ratios:
            print(f"  {ratio}", flush=True)
        missed += sum(not ratio.passed for ratio in page.ratios)
        if not options.dry:
            refused += not keep(page, options.date, before, anyway=options.anyway)
    return REFUSED if refused else MISSED if missed else 0


def keep(page: report.Report, date: str, before: float, *, anyway: bool) -> bool:
    """Write the results if the machine was quiet before the run; else print them, or write them aside. Whether they count."""
    if quiet.is_quiet(before):
        report.write(page, date, before, folders.RESULTS)
        if page.name in readme.PAGES:
            readme.main()
        return True
    print(
        f"  NOT WRITTEN: the load average before the run was {before:.2f}, at most {quiet.HIGHEST:g} counts."
    )
    if anyway:
        aside = folders.cache() / "results"
        report.write(page, date, before, aside)
        print(f"  It is in {aside}, and does not count.", flush=True)
    else:
        print(report.text(page, date, before), flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
