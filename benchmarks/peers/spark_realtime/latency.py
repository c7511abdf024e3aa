"""Spark's real-time mode from a batch's arrival in one topic of Kafka to its followed result in another; `src/peers/RealTime.java` does it.

`python -m benchmarks.peers.spark_realtime.latency ROWS A_BATCH DUES QUERIES COMMIT_MS UNTIL_MS FOLDER`, with the class path of
the peer `kafka` in KAFKA_CLASSPATH: its broker syncs every append, its program sends the rows and follows. One query only; results are there
at least once, as the mode has no transactions. Prints one line of JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.kafka.latency import broker, followed, java

_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
    "jdk.internal.ref",
)
"""Packages of Java that Spark's launcher opens to it."""


def main() -> None:
    *arguments, name = sys.argv[1:]
    folder, kafka = Path(name), {**os.environ, "CLASSPATH": os.environ["KAFKA_CLASSPATH"]}
    folder.mkdir(parents=True)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    with broker(folder, durable=True, environment=kafka) as address:
        spark = [*java(), *opened, "peers.RealTime", address, str(folder)]
        with subprocess.Popen(spark, stdout=sys.stderr) as process:
            try:
                print(followed([*arguments, str(folder), address, "spark"], kafka), flush=True)
            finally:
                process.kill()


if __name__ == "__main__":
    main()
