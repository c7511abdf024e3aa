"""Law 8 for relations that are read by their changes: rows inserted and retracted leave nothing, however long it continues."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND

QUERIES = (
    "SELECT x.k, x.v, y.v AS w FROM a x [ROWS 20], b y [ROWS 20] WHERE x.k = y.k",
    "SELECT x.k, COUNT(*) AS n FROM a x [PARTITION BY k ROWS 1], b y [RANGE 3 SECONDS] WHERE x.k = y.k GROUP BY x.k",
    "SELECT n, COUNT(*) AS c FROM (SELECT k, COUNT(*) AS n FROM a [RANGE 3 SECONDS] GROUP BY k) t GROUP BY n",
    "SELECT DISTINCT n FROM (SELECT k, COUNT(*) AS n FROM a [ROWS 20] GROUP BY k) t",
    "SELECT x.v, z.v AS u FROM a x [ROWS 5], b y [RANGE 3 SECONDS], a z [ROWS 5] WHERE x.k = y.k AND z.k = x.k",
    "SELECT k FROM a [ROWS 20] EXCEPT SELECT k FROM b [RANGE 3 SECONDS] ORDER BY k LIMIT 2",
    "SELECT k, v FROM a [ROWS 20] UNION SELECT k, v FROM b [RANGE 3 SECONDS]",
    "SELECT x.v, y.v AS w FROM a x [RANGE 3 SECONDS] FULL JOIN b y [ROWS 20] ON x.k = y.k",
    (
        "SELECT x.v, y.v AS w FROM a x [RANGE 3 SECONDS SLIDE 1 SECOND]"
        " LEFT JOIN b y [RANGE 2 SECONDS SLIDE 1 SECOND] ON x.k = y.k AND x.v < y.v"
    ),
    "SELECT v FROM a [RANGE 3 SECONDS] WHERE k NOT IN (SELECT k FROM b [ROWS 3]) AND v > (SELECT AVG(v) FROM b [ROWS 9])",
    (
        "SELECT RSTREAM(x.v, c.n) FROM a x [NOW], (SELECT k, COUNT(*) AS n FROM b [RANGE 3 SECONDS] GROUP BY k) AS c"
        " WHERE x.k = c.k"
    ),
    "SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND x.at BETWEEN y.at - INTERVAL '2' SECOND AND y.at",
    "SELECT k FROM a [NOW] UNION ALL (SELECT k FROM a [ROWS 20] INTERSECT SELECT k FROM b [ROWS 20])",
)
ROWS = 20


def part(rng: np.random.Generator, second: int) -> pa.Table:
    at = pa.array(np.sort(rng.integers(second * SECOND, (second + 1) * SECOND, ROWS)))
    keys, values = pa.array(rng.integers(0, 6, ROWS)), pa.array(rng.integers(0, 1000, ROWS))
    return pa.table({"k": keys, "v": values, "at": at.cast(pa.timestamp("us", tz="UTC"))})


def state_rows(hub: Hub) -> int:
    runs = (open_run(hub.home.store, run.name) for run in hub.home.latest().state)
    return sum(table.num_rows for run in runs for table in run.values())


def test_state_is_as_large_after_sixty_epochs_as_after_twenty(tmp_path: Path) -> None:
    """The number of runs that wait to be merged varies, so the largest of ten epochs is compared."""
    rng, seen = np.random.default_rng(5), list[int]()
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        for name in "ab":
            hub.execute(f"CREATE STREAM {name} (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        for number, query in enumerate(QUERIES):
            hub.register(query, f"query_{number}")
        for second in range(60):
            for name in "ab":
                hub.push(name, part(rng, second))
            hub.catch_up()
            seen.append(state_rows(hub))
    assert max(seen[-10:]) < 1.3 * max(seen[10:20]), seen
