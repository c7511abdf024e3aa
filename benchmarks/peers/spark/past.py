"""Spark's exact answers to questions over Parquet files, as batch queries: seconds and rows of each, after a scan of one file to warm up.

The files pack doubles by BYTE_STREAM_SPLIT. Where Spark's vectorised reader refuses that, its reader by rows takes the same files.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.protocol import cores


def session() -> SparkSession:
    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores()),
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master(f"local[{cores()}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def asked(spark: SparkSession, files: list[str], text: str) -> list[dict[str, Any]]:
    """The rows of the answer."""
    spark.read.parquet(*files).createOrReplaceTempView("s")
    return [row.asDict() for row in spark.sql(text).collect()]


def takes_files(spark: SparkSession, files: list[str], texts: dict[str, str]) -> bool:
    """Whether the files can be read with these settings; this warms up."""
    try:
        for text in texts.values():
            asked(spark, files[:1], text)
    except Exception as error:  # noqa: BLE001 - of the JVM, whose classes differ by version
        print(f"refused: {str(error).splitlines()[0]}", file=sys.stderr)
        return False
    return True


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    files, texts = request["files"], request["texts"]
    spark = session()
    if not takes_files(spark, files, texts):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", "false")
        if not takes_files(spark, files, texts):
            raise SystemExit("Spark cannot read the files")
    answers = {}
    for name, text in texts.items():
        started = time.perf_counter()
        rows = asked(spark, files, text)
        answers[name] = {"seconds": time.perf_counter() - started, "rows": rows}
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
