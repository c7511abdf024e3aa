"""The process that imports the pipeline while Java starts, for Spark's workers to be forked from: its start and its end.

See `headrace.runtime.spark.worker_daemon` for what it does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NURSERY: Final = "HEADRACE_NURSERY"
"""The variable that names the nursery's socket."""
NURSE: Final = "nurse"
"""The argument of the module `worker_daemon` for one that others fork from."""


class Nursery:
    """A started nursery; it ends with this process, whose end breaks a pipe."""

    def __init__(self, path: Path, environment: Mapping[str, str], output: Path) -> None:
        """Start it: it listens at the socket `path`, and its output is added to a file."""
        with output.open("ab") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace.runtime.spark.worker_daemon", NURSE, str(path)],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                env=dict(environment),
                start_new_session=True,  # Ctrl-C at a terminal is for this process alone
            )

    def end(self) -> None:
        """End it and what was forked from it, for after the JVM; returns when it has ended."""
        self._process.terminate()
        self._process.communicate()
