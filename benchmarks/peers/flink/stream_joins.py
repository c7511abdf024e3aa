"""Flink SQL's window join over Parquet files; `src/peers/StreamJoins.java` does it, this starts it. Prints one line of JSON."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from benchmarks.peers.flink.runner import java, name_files
from benchmarks.protocol import cores


def main() -> None:
    source, output, streams = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    last, answer = output / "last", output / "answer"
    for of_stream in source.iterdir():
        (last / of_stream.name).mkdir(parents=True)
        shutil.copy(max(of_stream.iterdir()), last / of_stream.name)
    said = java("StreamJoins", source, last, answer, streams, cores())
    name_files(answer)
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
