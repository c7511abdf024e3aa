"""The price of an epoch: 2000 rows through the whole epoch, beside the bare job it rests on, in turn in one process.

The bare job has the same two stages with kernels that do nothing: its scan task reads the same file and sends one Arrow
blob per state task, its state tasks count rows. It keeps no state, writes no file and publishes nothing.
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


def epoch(rows: int, rounds: int) -> Report:
    """Medians over `20 * rounds` epochs; `rows` has no say."""
    del rows
    command = [sys.executable, "-m", "benchmarks.epoch_runner", str(20 * rounds)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Expected {' '.join(command)} to end well, found:\n{done.stderr[-3000:]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    names = {"epoch": "headrace, a whole epoch", "bare": "two stages with identity kernels"}
    table = [{"what": names[name], **found[name]} for name in ("epoch", "bare")]
    ratio = Ratio(
        "median epoch to median bare job", found["epoch"]["median_ms"] / found["bare"]["median_ms"], 2, True
    )
    drawn = [
        Bar(names[name], found[name]["median_ms"], kind)
        for name, kind in (("epoch", "ours"), ("bare", "yardstick"))
    ]
    return Report(
        "epoch", f"An epoch of {ROWS_AN_EPOCH} rows", table, [ratio], drawn, "ms", [__doc__.strip()]
    )
