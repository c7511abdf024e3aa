"""Where the benchmarks keep what they make: rows, peers' environments, homes, outputs.

Everything is below one folder: `.bench` in the checkout, which git ignores, or `$HEADRACE_BENCH_DATA`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "results"


def cache() -> Path:
    """The folder of everything that can be made again; it hides itself from git."""
    folder = Path(os.environ.get("HEADRACE_BENCH_DATA") or CHECKOUT / ".bench").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / ".gitignore"
    if not hidden.exists():
        hidden.write_text("*\n", encoding="utf-8")
    return folder


def fresh(name: str) -> Path:
    """An empty folder below the cache, whatever was there before."""
    folder = cache() / name
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder
