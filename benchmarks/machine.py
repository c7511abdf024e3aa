"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from benchmarks.environments import java_home

_OURS = ("headrace", "pyspark", "pyarrow", "numpy", "pandas")


def description() -> dict[str, object]:
    """Processor, cores, memory, system, and the versions of our own environment."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _java(),
        "load_average": round(os.getloadavg()[0], 2),
        "packages": {name: version(name) for name in _OURS},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def _java() -> str:
    said = subprocess.run(
        [java_home() / "bin" / "java", "-version"], capture_output=True, text=True, check=True
    )
    return said.stderr.splitlines()[0]
