"""Opening of a home for a command, and the end of the process when a signal comes first."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from headrace.cli.signals import Interrupts
from headrace.runtime.home.file_names import SPARK_SCRATCH
from headrace.runtime.hub.hub import Hub
from headrace.server.opening import open_hub


def open_unless_stopped(
    home: Path, stop: Interrupts, *, cores: int | None = None, local: bool = False, brief: bool = False
) -> Hub | None:
    """The hub of a home, for a command that signals may end while Spark starts; then None, and the process should `leave`."""
    pa.enable_signal_handlers(
        False
    )  # what Arrow is reading is part of the epoch under way, and is finished with it
    if local:
        return open_hub(home, local=True)
    return stop.first(lambda: open_hub(home, cores=cores, brief=brief))


def leave(home: Path, code: int) -> NoReturn:
    """End the process while Spark is still starting in it: no epoch is under way, and Java ends when its pipe breaks."""
    for left in home.glob(f"{SPARK_SCRATCH}{os.getpid()}-*"):
        shutil.rmtree(left, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
