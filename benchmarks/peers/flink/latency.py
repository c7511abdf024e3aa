"""Flink from a batch's arrival to its followed result; `src/peers/Latency.java` does it, this starts it. Prints one line of JSON.

`python -m benchmarks.peers.flink.latency ROWS A_BATCH DUES QUERIES COMMIT_MS UNTIL_MS FOLDER`: without COMMIT_MS (0) there are neither
checkpoints nor transactions.
"""

from __future__ import annotations

import json
import sys

from benchmarks.peers.flink.runner import java

TASKS = 2
"""Of the windows. The source and what it selects have one: more would only add hops."""


def main() -> None:
    print(json.dumps(java("Latency", *sys.argv[1:], TASKS)), flush=True)


if __name__ == "__main__":
    main()
