"""Many small epochs in one process: the last cost what the first did.

Where matplotlib is installed, the page and its picture are the files `flat` in `benchmarks/results`; with other work on the machine, in `.bench/results`.
"""

from __future__ import annotations

import datetime as dt
import gc
import os
import resource
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.charts import Curve, Curves, Grid
from benchmarks.thresholds import Ratio
from headrace.runtime.hub.opening import open_hub
from tests.runtime.epoch.test_collecting import OLD_HOME, push
from tests.runtime.epoch.work import disk_calls
from tests.runtime.rig import faults_once_tidy

EPOCHS, PARTS = 20_000, 100
JUDGED = {
    "disk calls an epoch": 1.1,
    "bytes read and written an epoch": 1.2,
    "files": 1.2,
    "files of rejected rows": 2,
    "manifest, kB": 1.3,
    "memory, MB": 1.2,
    "thousands of memory blocks": 1.2,
}
"""Of each measurement, how much more the last parts may have than the first ones."""


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_the_last_of_many_epochs_costs_what_the_first_did(tmp_path: Path) -> None:
    """Counts of disk calls, bytes, files, objects and memory; times and processor time are plotted, and not judged."""
    parts: list[dict[str, float]] = []
    load = os.getloadavg()[0]
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(OLD_HOME)
        engine, pushed = hub.loop.engine, 0
        engine.housekeeping.readers = -1
        times: list[float] = []
        hub.on_epoch(lambda seen: times.append(1000 * (seen.seconds["execute"] + seen.seconds["publish"])))
        with engine.housekeeping.in_background():
            for part in range(PARTS):
                times.clear()
                began, worked = time.perf_counter(), time.thread_time()
                with disk_calls() as asked:
                    while engine.published.epoch < (part + 1) * EPOCHS // PARTS:
                        push(hub, pushed, 8)
                        pushed += 8
                seen = dict(asked)  # a collection may be under way in its thread, and count bytes still
                moved = seen.pop("bytes read", 0) + seen.pop("bytes written", 0)
                gc.collect()
                parts.append(
                    {
                        "epoch": float(engine.published.epoch),
                        "median epoch, ms": float(np.median(times)),
                        "p99 epoch, ms": float(np.percentile(times, 99)),
                        "processor time an epoch, ms": 1000 * (time.thread_time() - worked) / len(times),
                        "epochs a second": len(times) / (time.perf_counter() - began),
                        "disk calls an epoch": sum(seen.values()) / len(times),
                        "bytes read and written an epoch": moved / len(times),
                        "files": sum(path.is_file() for path in tmp_path.rglob("*")),
                        "files of rejected rows": sum(
                            path.is_file() for path in tmp_path.rglob("rejects/**/*")
                        ),
                        "manifest, kB": len(engine.published.encode()) / 1000,
                        "memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
                        "thousands of memory blocks": sys.getallocatedblocks() / 1000,
                    }
                )
        assert faults_once_tidy(hub) == []
    early, late = parts[PARTS // 20 : PARTS // 4], parts[-PARTS // 5 :]
    ratios = [
        Ratio(name, max(part[name] for part in late) / max(part[name] for part in early), most, at_most=True)
        for name, most in JUDGED.items()
    ]
    write(parts, ratios, load)
    assert all(ratio.passed for ratio in ratios), (ratios, parts)


def write(parts: list[dict[str, float]], ratios: list[Ratio], load: float) -> None:
    """The page, with one picture of all measurements by the number of the epoch; `load` is that before the epochs."""
    if find_spec("matplotlib") is None:
        return
    from benchmarks.__main__ import keep
    from benchmarks.report import Report

    epochs = [part["epoch"] for part in parts]
    charts = [
        Curves(name, ("epoch", name), [Curve(name, epochs, [part[name] for part in parts], "ours")])
        for name in parts[0]
        if name != "epoch"
    ]
    table = [
        {name: round(value, 2) if value % 1 else int(value) for name, value in part.items()}
        for part in parts[PARTS // 20 - 1 :: PARTS // 20]
    ]
    title = f"An epoch by its age: {EPOCHS:,} epochs of 8 rows in one process"
    notes = [
        (
            "The greatest of the last fifth of the epochs to the greatest from the first twentieth to the first quarter. "
            "Times and processor time are shown, and not judged."
        )
    ]
    picture = Grid("An epoch by its age", charts)
    page = Report("flat", title, table, ratios, (), "", notes, picture=picture)
    keep(page, dt.datetime.now(tz=dt.UTC).date().isoformat(), load, anyway=True)
