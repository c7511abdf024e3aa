"""Flink SQL with TUMBLE or HOP over Parquet files; `src/peers/Windows.java` does it, this starts it.

Readers take whole files in order of time, so watermarks have no delay and windows close while rows are still read. State is on the heap, no
checkpoints are taken. The class path is in the environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.protocol import RANGE_SECONDS, Request, answer, cores, one_row, request

HEAP = "4g"


def java(main: str, *arguments: object) -> dict[str, float]:
    """The last line that a program in Java prints. Ends this process when that fails."""
    command = [Path(os.environ["JAVA_HOME"]) / "bin" / "java", f"-Xms{HEAP}", f"-Xmx{HEAP}", f"peers.{main}"]
    done = subprocess.run(
        [*map(str, command), *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=False
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        sys.exit(f"Expected Flink to end well, found exit code {done.returncode}.")
    return json.loads(lines[-1])


def name_files(output: Path) -> None:
    """Give Flink's files, which have no ending, that of their format."""
    for path in [path for path in output.rglob("part-*") if path.is_file()]:
        path.rename(path.with_name(f"{path.name}.parquet"))


def run(asked: Request) -> dict[str, float]:
    output = asked.output / "answer"
    slides = (RANGE_SECONDS, asked.slide_seconds)
    said = java("Windows", asked.folder, one_row(asked), output, *slides, cores())
    name_files(output)
    warm_up = output.with_name(f"{output.name}.warm-up")
    warm_up.rename(asked.output.parent / "warm-up")
    return said


def main() -> None:
    asked = request()
    said = run(asked)
    answer(asked.rows, said["seconds"], said["startup_seconds"])


if __name__ == "__main__":
    main()
