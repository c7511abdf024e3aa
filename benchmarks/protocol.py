"""What every runner is asked, and what it answers.

A runner is a module started as `python -m <module> --task … --rows-folder … --rows … --output …`. It reads the folder's
files, writes its complete answer below `--output` (Parquet files, or CSV without a header) with the columns of
`COLUMNS`, and prints one line of JSON last: what `answer` makes. It imports nothing of Headrace's own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = ("window_end", "key", "count", "sum", "max")  # window_end in microseconds since 1970 UTC
RANGE_SECONDS = 60
SLIDES = {"tumbling": 60, "sliding": 1}


@dataclass(frozen=True, slots=True)
class Request:
    """One run: `task` is a key of `SLIDES`, `options` are the runner's own."""

    task: str
    folder: Path
    rows: int
    output: Path
    options: dict[str, str]

    @property
    def slide_seconds(self) -> int:
        return SLIDES[self.task]


def request() -> Request:
    """The request on this process's command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=sorted(SLIDES), required=True)
    parser.add_argument("--rows-folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    settings = dict(option.split("=", 1) for option in arguments.option)
    arguments.output.mkdir(parents=True, exist_ok=True)
    return Request(arguments.task, arguments.rows_folder, arguments.rows, arguments.output, settings)


def one_row(asked: Request) -> Path:
    """A folder with the one row of the last file: what everyone warms up on, with the measured query itself."""
    folder = asked.output.parent / "one-row"
    folder.mkdir(exist_ok=True)
    shutil.copy(max(asked.folder.iterdir()), folder)
    return folder


def cores() -> int:
    """How many processors this process may use; everyone gets as many threads, tasks or processes."""
    return len(os.sched_getaffinity(0))


def answer(rows: int, seconds: float, startup_seconds: float, **more: Any) -> None:
    """Print the measurement: `seconds` from the first row read to the last result written."""
    print(
        json.dumps({"rows": rows, "seconds": seconds, "startup_seconds": startup_seconds, **more}), flush=True
    )
