"""The price of an epoch: 2000 rows through the whole epoch, as a Spark job, in standing tasks and in this process.

With them the bare job and the bare standing tasks that they rest on, with kernels that do nothing: the scan task reads the same
file and sends one Arrow blob per state task, the state tasks count rows. They keep no state, write no file and publish nothing.
All in one process and one Spark session, in turn; what is left of a whole epoch in standing tasks is the work itself, as
the one in this process shows.
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.charts import Bar
from benchmarks.folders import CHECKOUT
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

ROWS_AN_EPOCH = 2000
NAMES = {
    "epoch": ("headrace, an epoch as a job", "ours"),
    "standing": ("headrace, an epoch in standing tasks", "ours"),
    "local": ("headrace, an epoch in this process", "ours"),
    "bare": ("identity kernels as a job", "yardstick"),
    "bare_standing": ("identity kernels in standing tasks", "yardstick"),
}


def epoch(rows: int, rounds: int) -> Report:
    """Medians over `20 * rounds` jobs, and five times as many epochs in standing tasks; `rows` has no effect."""
    del rows
    command = [sys.executable, "-m", "benchmarks.epoch_runner", str(20 * rounds)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Expected {' '.join(command)} to end well, found:\n{done.stderr[-3000:]}")
    measured = json.loads(done.stdout.strip().splitlines()[-1])
    table = [{"what": words, **measured[name]} for name, (words, _) in NAMES.items()]

    def ratio(what: str, one: str, other: str, bound: float, of: str = "median_ms") -> Ratio:
        return Ratio(what, measured[one][of] / measured[other][of], bound, True)

    ratios = [
        ratio("median epoch as a job to median bare job", "epoch", "bare", 2),
        ratio("identity kernels: median in standing tasks to median as a job", "bare_standing", "bare", 0.15),
        ratio(
            "identity kernels: p99 in standing tasks to p99 as a job", "bare_standing", "bare", 0.3, "p99_ms"
        ),
        ratio("median epoch in standing tasks to median epoch as a job", "standing", "epoch", 0.6),
        ratio("median epoch in standing tasks to median epoch in this process", "standing", "local", 1.2),
        ratio("median epoch in standing tasks to median bare job", "standing", "bare", 0.15),
    ]
    drawn = [Bar(words, measured[name]["median_ms"], kind) for name, (words, kind) in NAMES.items()]
    return Report("epoch", f"An epoch of {ROWS_AN_EPOCH} rows", table, ratios, drawn, "ms", [__doc__.strip()])
