"""Expressions that fail on rows of a relation, and on pairs of rows: each is counted once, as it came, and is shown where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.loss_report import loss_report
from headrace.time import SECOND

LAST = "(SELECT k, v FROM a [ROWS 1]) c"
QUERIES = {
    "condition": (f"SELECT b.v FROM b [ROWS 5], {LAST} WHERE 10 / c.v > 0 AND b.k = c.k", 2),
    "key": (f"SELECT b.v FROM b [ROWS 5], {LAST} WHERE 10 / c.v = b.v", 2),
    "one row": ("SELECT COUNT(*) AS n FROM a x [ROWS 1], b y [ROWS 1] WHERE 10 / x.v > 0 AND x.k = y.k", 2),
    "window": ("SELECT x.v FROM a x [ROWS 1], b y [ROWS 1] WHERE 10 / x.v > 0 AND x.k = y.k", 2),
    "pair": ("SELECT x.v FROM a x [ROWS 1], b y [ROWS 1] WHERE 10 / (x.v - y.v) > 0 AND x.k = y.k", 3),
    "in": ("SELECT v FROM a [ROWS 1] WHERE 10 / v IN (SELECT v FROM b [ROWS 1])", 2),
    "select": (f"SELECT 10 / c.v AS w FROM {LAST}", 2),
}
"""Each with the rows on which it fails: `a` holds 0 twice, and a pair of equal ones three times before the last instant."""
ROWS = {"a": [(1, 0), (3, 1), (5, 0), (7, 2)], "b": [(2, 0), (4, 1), (6, 0), (8, 2)]}


def table(rows: list[tuple[int, int]]) -> pa.Table:
    at = pa.array([second * SECOND for second, _ in rows]).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"k": ["k"] * len(rows), "v": pa.array([v for _, v in rows], pa.int64()), "at": at})


def counted(hub: Hub) -> int:
    return int(sum(hub.home.latest().facts.get("rejected", {}).values()))


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_row_and_a_pair_fail_once_however_they_are_cut_into_epochs(
    tmp_path: Path, name: str, step: int
) -> None:
    text, wanted = QUERIES[name]
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        for stream in "ab":
            hub.execute(
                f"CREATE STREAM {stream} (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at"
            )
        hub.register(text, "q")
        before: Any = hub.home.latest()
        for start in range(0, 4, step):
            for stream in "ab":
                hub.push(stream, table(ROWS[stream][start : start + step]))
            hub.catch_up()
        assert counted(hub) == wanted
        (warning,) = loss_report(hub.home, before, hub.home.latest(), persistent=True)
        assert warning.startswith(
            f"q: its expressions failed on {wanted} rows, for instance: division by zero; see "
        )
        folder = Path(warning.removesuffix(".").rpartition("see ")[2])
        assert list(folder.iterdir())
        assert not list(loss_report(hub.home, hub.home.latest(), hub.home.latest(), persistent=True))


def test_failures_below_a_query_are_kept_as_long_as_its_own(tmp_path: Path) -> None:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM a (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register("SELECT k, COUNT(*) AS n FROM (SELECT k, 10 / v AS w FROM a [ROWS 1]) c GROUP BY k", "q")
        for second in range(1, 40):
            hub.push("a", table([(second, min(second - 1, 1))]))
            hub.catch_up()
        lists = hub.home.latest().lists
        (failures,) = (name for name in lists if name.startswith("failures:"))
        assert lists[failures].length - lists[failures].start == 1
