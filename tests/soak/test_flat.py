"""Many small epochs in one process: the last cost what the first did. Plotted to `.soak/flat.svg` where matplotlib is installed."""

from __future__ import annotations

import gc
import resource
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.charts import Curve, Curves, Grid
from headrace.runtime.hub.opening import open_hub
from tests.runtime.epoch.test_collecting import OLD_HOME, push
from tests.runtime.epoch.work import disk_calls
from tests.runtime.rig import faults_once_tidy

EPOCHS, PARTS = 20_000, 100
PLOTS = Path(__file__).parents[2] / ".soak"
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
        plot(parts)
        assert faults_once_tidy(hub) == []
    early, late = parts[PARTS // 20 : PARTS // 4], parts[-PARTS // 5 :]
    for name, most in JUDGED.items():
        assert max(part[name] for part in late) <= most * max(part[name] for part in early), (name, parts)


def plot(parts: list[dict[str, float]]) -> None:
    """One picture of all measurements by the number of the epoch."""
    if find_spec("matplotlib") is None:
        return
    from benchmarks.plot import svg

    epochs = [part["epoch"] for part in parts]
    charts = [
        Curves(name, ("epoch", name), [Curve(name, epochs, [part[name] for part in parts], "ours")])
        for name in parts[0]
        if name != "epoch"
    ]
    PLOTS.mkdir(exist_ok=True)
    (PLOTS / "flat.svg").write_text(svg(Grid("An epoch by its age", charts)))
