"""A query whose kernel fails in Spark's Python workers: it alone is suspended, and it catches up once the kernel is repaired."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

BROKEN = textwrap.dedent(
    """
    # Run by every Python process that starts with this folder in its path: Spark's workers too.
    import os

    if os.environ.get("BROKEN_KERNEL"):
        from headrace.operators.row_windows.tuple_slides import TupleSlides

        def failing(advance):
            def fails(self, *arguments):
                if arguments[-1].max_event_time >= 100_000_000:
                    raise ValueError(f"no kernel works in a worker: {os.getpid() != int(os.environ['DRIVER'])}")
                return advance(self, *arguments)
            return fails

        TupleSlides.advance = failing(TupleSlides.advance)
        TupleSlides.advance_family = failing(TupleSlides.advance_family)
    """
)

SCRIPT = textwrap.dedent(
    """
    import os, sys
    os.environ["DRIVER"] = str(os.getpid())
    import numpy as np, pyarrow as pa
    import headrace as hr

    def rows(low, high):
        at = pa.array(np.arange(low, high) * 1_000_000).cast(pa.timestamp("us", tz="UTC"))
        return pa.table({"v": range(low, high), "at": at})

    def states(hub):
        return {row["name"]: row["state"] for row in hub.execute("SHOW QUERIES")[0].table.to_pylist()}

    with hr.open(sys.argv[1], tasks=2) as hub:
        if os.environ.get("BROKEN_KERNEL"):
            hub.execute("CREATE STREAM s (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
            hub.register("SELECT COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 1 ROW]", "bad")
            good = hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND]", "good")
            over = hub.register("SELECT SUM(n) AS n FROM good", "over")
            for low in range(0, 200, 50):
                hub.push("s", rows(low, low + 50))
                hub.catch_up()
            print(states(hub), good.history().num_rows, over.invoke().to_pylist(), hub.status()["failed"])
        else:
            hub.execute("RESUME QUERY bad")
            hub.catch_up()
            print(states(hub), hub.query("bad").history().num_rows)
    """
)


def ran(folder: Path, *, broken: bool) -> str:
    """The last line that a process of its own prints."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'src'}"}
    environment |= {"BROKEN_KERNEL": "1"} if broken else {}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "home")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.spark
def test_issue_18_on_spark_a_query_that_fails_is_suspended_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    reason = {"bad": "ValueError: no kernel works in a worker: True"}
    states = {"bad": "failed", "good": "live", "over": "live"}
    assert ran(tmp_path, broken=True) == f"{states} 199 {[{'n': 199}]} {reason}"
    assert ran(tmp_path, broken=False) == f"{dict.fromkeys(states, 'live')} 199"
