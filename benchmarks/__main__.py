"""`python -m benchmarks [names]`: measure, compare with the thresholds, write results/. Exit code 1 when one is missed."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys

from benchmarks import data, report
from benchmarks.suite.epoch import epoch
from benchmarks.suite.memory import memory
from benchmarks.suite.punctuation import bounded, disordered, overhead, punctuation
from benchmarks.suite.query_index import query_index
from benchmarks.suite.ranges import ranges
from benchmarks.suite.slack import band, blocks
from benchmarks.suite.synopses import synopses
from benchmarks.suite.window_id import buffering, panes
from benchmarks.suite.windows import shared, sliding, tumbling

SUITE = {
    "tumbling": tumbling,
    "sliding": sliding,
    "shared": shared,
    "ranges": ranges,
    "buffering": buffering,
    "band": band,
    "blocks": blocks,
    "panes": panes,
    "query-index": query_index,
    "epoch": epoch,
    "memory": memory,
    "punctuation": punctuation,
    "overhead": overhead,
    "disorder": disordered,
    "bounded": bounded,
    "synopses": synopses,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SUITE)} (default: all)")
    default = int(os.environ.get("HEADRACE_BENCH_ROWS", data.ROWS))
    parser.add_argument("--rows", type=int, default=default, help="at most, for every contender")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--date", default=dt.datetime.now(tz=dt.UTC).date().isoformat())
    parser.add_argument("--dry", action="store_true", help="print, but leave benchmarks/results as it is")
    given = parser.parse_args()
    if unknown := set(given.names) - SUITE.keys():
        parser.error(f"expected names of {', '.join(SUITE)}, found {', '.join(sorted(unknown))}")
    missed = 0
    for name in given.names or SUITE:
        print(f"{name}:", flush=True)
        found = SUITE[name](given.rows, given.rounds)
        for ratio in found.ratios:
            print(f"  {ratio}", flush=True)
        missed += sum(not ratio.passed for ratio in found.ratios)
        if not given.dry:
            report.write(found, given.date)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
