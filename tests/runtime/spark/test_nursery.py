"""The process that workers are forked from, and work without it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

WITHOUT = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from headrace.runtime.spark import launch, session
    {before}
    launched = launch.launch(1, scratch=Path(sys.argv[1]), brief=True)
    {after}
    context = session.begin(launched)
    print(context.parallelize(range(5), 1).sum())
    session.close(launched, context)
    import psutil; assert psutil.Process().children(recursive=True) == []
    """
)


@pytest.mark.spark
def test_workers_are_forked_from_the_process_that_imported_while_java_started(spark: SparkSession) -> None:
    def parents(_):
        import psutil

        daemon = psutil.Process().parent()
        yield daemon.parent().pid, os.environ["OPENBLAS_NUM_THREADS"], os.environ.get("SPARK_BUFFER_SIZE")

    context = spark.sparkContext
    seen = set(context.parallelize(range(2), 2).mapPartitions(parents).collect())
    ((nursery, threads, buffer),) = seen
    assert psutil.Process(nursery).ppid() == os.getpid()
    assert "nurse" in psutil.Process(nursery).cmdline()
    assert (threads, buffer) == ("1", "65536"), "the environment is that of Spark's own daemon"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("launch._LONGEST_SOCKET_FOLDER = 3", "assert launched.nursery is None"),
        ("", "launched.nursery._process.kill(); launched.nursery._process.wait()"),
    ],
)
def test_without_a_nursery_workers_run_as_well(tmp_path: Path, before: str, after: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(before=before, after=after), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")
