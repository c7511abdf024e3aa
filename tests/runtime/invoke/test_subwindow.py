"""INVOKE of a part of a window, through statements and programs: as a query registered with that window, after a restart too."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.invoke.home_reader import Reader
from headrace.time import SECOND
from tests.runtime.rig import Rig, cut, made_rows

SLIDING = "SELECT k, COUNT(*) AS n, MAX(y) AS top, window_start FROM s [RANGE {} SECONDS SLIDE 2 SECONDS] WHERE x > {} GROUP BY k"
RELATION = "SELECT g, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE {} SECONDS] GROUP BY g HAVING COUNT(*) > 1"
ABOUT = "SELECT k, APPROX_COUNT(*) WITHIN 25 PERCENT AS n, ERROR_BOUND(n) AS b FROM s [RANGE {} SECONDS{}] GROUP BY k"
EXACT = "SELECT k, COUNT(*) AS n FROM s [RANGE {} SECONDS{}] GROUP BY k"
PARTS = (8, 38)

QUERIES = {
    **{f"slides_{low}": SLIDING.format(40, low) for low in (0, 3)},
    **{f"slides_{low}_{part}": SLIDING.format(part, low) for low in (0, 3) for part in PARTS},
    "relation": RELATION.format(40),
    **{f"relation_{part}": RELATION.format(part) for part in PARTS},
    "about": ABOUT.format(40, " SLIDE 1 SECOND"),
    "about_now": ABOUT.format(40, ""),
    **{f"about_{part}": EXACT.format(part, " SLIDE 1 SECOND") for part in PARTS},
    **{f"about_now_{part}": EXACT.format(part, "") for part in PARTS},
    "rows": "SELECT COUNT(*) AS n FROM s [ROWS 5]",
}


def canonical(table: Any) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def check(hub: Hub) -> None:
    for name in ("slides_0", "slides_3", "relation"):
        for part in PARTS:
            answer = hub.query(name).invoke(last=f"{part} SECONDS")
            assert canonical(answer) == canonical(hub.query(f"{name}_{part}").invoke()), (name, part)
        assert canonical(hub.query(name).invoke(last="40 SECONDS")) == canonical(hub.query(name).invoke())
    for name in ("about", "about_now"):
        for part in PARTS:
            exact = {row["k"]: row["n"] for row in hub.query(f"{name}_{part}").invoke().to_pylist()}
            (outcome,) = hub.execute(f"INVOKE {name} [RANGE {part} SECONDS]")
            about = outcome.table.to_pylist()
            assert {row["k"] for row in about} == exact.keys()
            for row in about:
                assert abs(row["n"] - exact[row["k"]]) <= row["b"] <= exact[row["k"]] / 4


def test_parts_of_windows_are_what_queries_with_these_windows_answer(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, slack=3 * SECOND)
    files = cut(made_rows(3, 400, disorder=3 * SECOND), *range(30, 400, 30))
    rig.drop(*files[:7])
    with rig.hub(queries=QUERIES) as hub:
        assert hub.query("slides_0").invoke(last="8 SECONDS").num_rows == 0, "nothing yet"
        hub.run_once()
        check(hub)
    rig.drop(*files[7:])
    with rig.hub(tasks=3) as hub:
        check(hub)
        hub.run_once()
        check(hub)
        for last in (dt.timedelta(seconds=8), 8 * SECOND, "INTERVAL 8 SECONDS"):
            assert canonical(hub.query("slides_0").invoke(last=last)) == canonical(
                hub.query("slides_0_8").invoke()
            )
        of_last = hub.query("about").invoke(last="8 SECONDS")
        assert any(hub.query("about").history().column("b").to_pylist()), "something is approximate"
    assert Reader.at(rig.home).invoke("about", 8 * SECOND).equals(of_last)


def test_a_window_that_is_not_kept_is_refused_with_what_can_be_asked(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.drop(made_rows(3, 40))
    with rig.hub(queries=QUERIES) as hub:
        hub.run_once()
        for query, last, said in (
            ("slides_0", "3 SECONDS", "does not begin at one of its slides"),
            ("slides_0", "1 MINUTE", "keeps 40 SECONDS: a window of 1 MINUTE cannot be asked of it"),
            ("rows", "3 SECONDS", "rows has no window of which a shorter one can be asked"),
        ):
            with pytest.raises(UserError, match=said):
                hub.query(query).invoke(last=last)
        with pytest.raises(UserError, match="such as 10 MINUTES"):
            hub.query("slides_0").invoke(last="soon")
