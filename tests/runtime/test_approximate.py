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
