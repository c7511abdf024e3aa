"""A driver of epochs in standing tasks on a cluster, until it is killed: `python -m tests.runtime.cluster_victim FOLDER MASTER SLACK`.

It prints every epoch it has published and how many of them ran in standing tasks.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import AlreadyPublished
from tests.runtime.rig import QUERIES, SEVERAL, script
from tests.runtime.victim import QUERIES_OF_VICTIM


def main() -> None:
    folder, master, slack = sys.argv[1:]
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.headrace.standingTasks", "always")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    queries = {name: (QUERIES | SEVERAL)[name] for name in QUERIES_OF_VICTIM}
    with hr.open(Path(folder) / "home", spark=spark, tasks=3) as hub:
        hub.execute(script(Path(folder) / "in", queries, {"maxFilesPerTrigger": "1"}, int(slack)))
        standing = hub.loop.engine.executor.standing
        hub.loop.engine.executor.few_rows = 0  # several state tasks, with an exchange
        print("open", flush=True)  # noqa: T201 - its report
        try:
            while True:
                before = hub.status()["failures"]["count"]
                seen = hub.loop._supervised_step(lambda: True)
                if hub.status()["failures"]["count"] > before:
                    print("failed", flush=True)  # noqa: T201
                if seen is None:
                    time.sleep(0.002)
                else:
                    print(seen.epoch, standing.epochs, flush=True)  # noqa: T201
        except AlreadyPublished:
            print("replaced", flush=True)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
