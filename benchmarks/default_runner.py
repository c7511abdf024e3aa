"""`hr.open(home)` as the README shows it: one query over Parquet files in a new process, its answer read back.

`python -m benchmarks.default_runner WAY ARCHIVE ROWS HOME OUTPUT`; see `benchmarks.suite.default`. Prints one line of JSON: the seconds
of each step.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

BEGUN = time.perf_counter()

import pyarrow as pa  # noqa: E402 - importing is a step that is measured
import pyarrow.parquet as pq  # noqa: E402

import headrace as hr  # noqa: E402

IMPORTED = time.perf_counter()
_LONGEST_SECONDS = 60.0
STATEMENTS = """
    CREATE STREAM {stream} (at TIMESTAMP, key INT, value DOUBLE)
      USING parquet OPTIONS (path '{folder}'{archive}) TIMESTAMP BY at;
    CREATE QUERY {query} AS
      SELECT window_end, key, COUNT(*) AS count, SUM(value) AS sum, MAX(value) AS max
      FROM {stream} [RANGE 60 SECONDS SLIDE 60 SECONDS] GROUP BY key;
"""


class Clock:
    """Seconds of each step since the one before."""

    def __init__(self) -> None:
        self.steps = {"import": IMPORTED - BEGUN}
        self._last = IMPORTED

    def lap(self, step: str) -> None:
        now = time.perf_counter()
        self.steps[step], self._last = now - self._last, now


def main() -> None:
    way, archived, folder, home, output = sys.argv[1:]
    archive = "" if archived == "on" else ", archive 'none'"
    clock = Clock()
    with hr.open(home, local=way == "local") as hub:
        clock.lap("open")
        hub.loop.engine.executor.ready(
            _LONGEST_SECONDS
        )  # it starts in the background: the rest of it is a step of its own
        clock.lap("start")
        hub.execute(STATEMENTS.format(stream="events", query="answer", folder=folder, archive=archive))
        clock.lap("register")
        hub.run_once()
        clock.lap("run")
        table = hub.query("answer").history()
        clock.lap("read")
        hub.execute(STATEMENTS.format(stream="events_again", query="again", folder=folder, archive=archive))
        hub.run_once()
        again = hub.query("again").history()
        clock.lap("again")
    clock.lap("close")
    if not table.equals(again):
        sys.exit("Expected the same answer again, found another.")
    ends = table["window_end"].cast(pa.int64())
    pq.write_table(table.set_column(0, "window_end", ends), Path(output) / "answer.parquet")
    print(json.dumps(clock.steps))


if __name__ == "__main__":
    main()
