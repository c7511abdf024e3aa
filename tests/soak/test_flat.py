"""Many small epochs in one process: the last cost what the first did. Plotted to `.soak/flat.svg` where matplotlib is installed."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.runtime.hub.opening import open_hub
from tests.runtime.epoch.test_collecting import SCRIPT, counted, push
from tests.runtime.rig import faults_once_tidy

EPOCHS, PARTS = 20_000, 40
PLOTS = Path(__file__).parents[2] / ".soak"


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_the_last_of_many_epochs_costs_what_the_first_did(tmp_path: Path) -> None:
    """Counts of disk calls, files, bytes of a manifest and memory; the times are plotted, and not judged."""
    parts: list[dict[str, float]] = []
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(SCRIPT.replace("QUERY windows", "QUERY windows OPTIONS (retain '20 MINUTES')"))
        engine, pushed = hub.loop.engine, 0
        engine.housekeeping.readers = -1
        times: list[float] = []
        hub.on_epoch(lambda seen: times.append(1000 * (seen.seconds["execute"] + seen.seconds["publish"])))
        with engine.housekeeping.in_background():
            for part in range(PARTS):
                times.clear()
                began = time.perf_counter()
                with counted() as asked:
                    while engine.published.epoch < (part + 1) * EPOCHS // PARTS:
                        push(hub, pushed, 8)
                        pushed += 8
                parts.append(
                    {
                        "median epoch, ms": float(np.median(times)),
                        "p99 epoch, ms": float(np.percentile(times, 99)),
                        "epochs a second": len(times) / (time.perf_counter() - began),
                        "disk calls an epoch": sum(asked.values()) / len(times),
                        "files": sum(path.is_file() for path in tmp_path.rglob("*")),
                        "manifest, kB": len(engine.published.encode()) / 1000,
                        "memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
                    }
                )
        plot(parts)
        assert faults_once_tidy(hub) == []
    early, late = parts[2:10], parts[-8:]
    for name, most in (
        ("disk calls an epoch", 1.1),
        ("files", 1.2),
        ("manifest, kB", 1.3),
        ("memory, MB", 1.2),
    ):
        assert max(part[name] for part in late) <= most * max(part[name] for part in early), (name, parts)


def plot(parts: list[dict[str, float]]) -> None:
    """One picture of all measurements over the epochs."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    PLOTS.mkdir(exist_ok=True)
    figure = Figure(figsize=(8, 2.2 * len(parts[0])), layout="constrained")
    axes: Any = figure.subplots(len(parts[0]), 1, sharex=True)
    epochs = [(part + 1) * EPOCHS / PARTS for part in range(len(parts))]
    for axis, name in zip(axes, parts[0], strict=True):
        axis.plot(epochs, [part[name] for part in parts])
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("epoch")
    figure.savefig(PLOTS / "flat.svg")
