"""Approximate aggregates end to end: language to results, over many epochs, a kill in between, and in little state."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.runtime.hub import Hub
from headrace.time import SECOND
from tests.runtime.rig import Rig, Row, cut, made_rows

APPROXIMATE = (
    "SELECT k, window_end, APPROX_COUNT(*) WITHIN 20 PERCENT AS n, ERROR_BOUND(n) AS n_bound, "
    "APPROX_SUM(ABS(x)) WITHIN 50 PERCENT AS total, ERROR_BOUND(total) AS total_bound "
    "FROM s [RANGE 40 SECONDS SLIDE 1 SECOND] GROUP BY k"
)
EXACT = "SELECT k, window_end, COUNT(*) AS n, SUM(ABS(x)) AS total FROM s [RANGE 40 SECONDS SLIDE 1 SECOND] GROUP BY k"


@pytest.fixture
def files() -> list[list[Row]]:
    return cut(made_rows(5, 600, disorder=2 * SECOND), *range(25, 600, 25))


def check(hub: Hub) -> float:
    """All windows so far within their bounds; the largest relative error."""
    found, true = (
        {(row["k"], row["window_end"]): row for row in hub.query(name).history().to_pylist()}
        for name in ("about", "exactly")
    )
    assert found.keys() == true.keys()
    worst = 0.0
    for place, row in found.items():
        for name, part in (("n", 0.2), ("total", 0.5)):
            right = true[place][name]
            if right is None:
                assert row[name] is None
                continue
            assert abs(row[name] - right) <= row[f"{name}_bound"] <= part * right
            worst = max(worst, abs(row[name] - right) / max(right, 1))
    return worst


def test_windows_stay_within_their_bounds_over_a_restart(tmp_path: Path, files: list[list[Row]]) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    queries = {"about": APPROXIMATE, "exactly": EXACT}
    rig.drop(*files[:12])
    with rig.hub(queries=queries) as hub:
        hub.run_once()
        check(hub)
    rig.drop(*files[12:])
    with rig.hub() as hub:
        hub.run_once()
        assert check(hub) > 0, "something was approximated"


SKETCHED = (
    "SELECT k, window_end, COUNT(*) AS rows, APPROX_DISTINCT(x) WITHIN 5 PERCENT AS d, ERROR_BOUND(d) AS d_bound, "
    "APPROX_PERCENTILE(x, 0.8) WITHIN 10 PERCENT AS p, ERROR_BOUND(p) AS p_bound, "
    "COUNT(*) FILTER (WHERE x > AVG(x)) WITHIN 10 PERCENT AS above, ERROR_BOUND(above) AS above_bound, "
    "SUM(y) FILTER (WHERE x BETWEEN AVG(x) - 2 AND AVG(x) + 2) BUCKETS 4 AS near, ERROR_BOUND(near) AS near_bound, "
    "APPROX_TOP_K(x, 2) WITHIN 40 PERCENT AS top, ERROR_BOUND(top) AS top_bound "
    "FROM s [RANGE 40 SECONDS SLIDE 1 SECOND] GROUP BY k"
)
PLAIN = (
    "SELECT k, window_end, COUNT(*) AS rows, COUNT(DISTINCT x) AS d, PERCENTILE(x, 0.8) AS p, "
    "COUNT(*) FILTER (WHERE x > AVG(x)) AS above, SUM(y) FILTER (WHERE x BETWEEN AVG(x) - 2 AND AVG(x) + 2) AS near "
    "FROM s [RANGE 40 SECONDS SLIDE 1 SECOND] GROUP BY k"
)


def test_sketches_over_a_restart_are_within_their_bounds_and_the_same_as_without_one(
    tmp_path: Path, files: list[list[Row]]
) -> None:
    told = []
    for name, stops in (("once", (len(files),)), ("twice", (9, len(files)))):
        rig = Rig(tmp_path / name, {"maxFilesPerTrigger": "1"})
        done = 0
        for stop in stops:
            rig.drop(*files[done:stop])
            with rig.hub(queries=None if done else {"about": SKETCHED, "exactly": PLAIN}) as hub:
                hub.run_once()
                found = hub.query("about").history().to_pylist()
                true = {
                    (row["k"], row["window_end"]): row for row in hub.query("exactly").history().to_pylist()
                }
            done = stop
        told.append(sorted(map(repr, found)))
        assert {(row["k"], row["window_end"]) for row in found} == true.keys()
        for row in found:
            right = true[row["k"], row["window_end"]]
            assert row["rows"] == right["rows"]
            for each in ("d", "p", "above", "near"):
                exact = right[each] or 0
                assert abs((row[each] or 0) - exact) <= (row[f"{each}_bound"] or 0) + 1e-9 * abs(exact)
    assert told[0] == told[1]
