"""What the README's reader gets: `hr.open(home)` in a new process, one query over Parquet files, its answer read back.

No setting, no environment variable, nothing kept in memory, and no query before the measured one. Prints one line of JSON: the seconds of
each step. `local` keeps the whole pipeline in this process, without a JVM.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

BEGUN = time.perf_counter()

import pyarrow.parquet as pq  # noqa: E402 - importing is a step that is measured

import headrace as hr  # noqa: E402

IMPORTED = time.perf_counter()
STATEMENTS = """
    CREATE STREAM events (at TIMESTAMP, key INT, value DOUBLE)
      USING parquet OPTIONS (path '{folder}'{archive}) TIMESTAMP BY at;
    CREATE QUERY answer AS
      SELECT window_end, key, COUNT(*) AS n, SUM(value) AS total, MAX(value) AS top
      FROM events [RANGE 60 SECONDS SLIDE 60 SECONDS] GROUP BY key;
"""


def main() -> None:
    way, archive, folder, scratch = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    steps = {"import": IMPORTED - BEGUN}
    clock = Clock(steps)
    with hr.open(scratch / "home", local=way == "local") as hub:
        clock.lap("open")
        hub.execute(STATEMENTS.format(folder=folder, archive="" if archive == "on" else ", archive 'none'"))
        clock.lap("register")
        hub.run_once()
        clock.lap("run")
        pq.write_table(hub.query("answer").history(), scratch / "answer.parquet")
        clock.lap("read")
    clock.lap("close")
    print(json.dumps(steps))


class Clock:
    """Seconds since the lap before."""

    def __init__(self, steps: dict[str, float]) -> None:
        self._steps, self._last = steps, time.perf_counter()

    def lap(self, step: str) -> None:
        now = time.perf_counter()
        self._steps[step], self._last = now - self._last, now


if __name__ == "__main__":
    main()
