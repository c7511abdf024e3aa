"""Approximate aggregates end to end: language to results, over many epochs, a kill in between, and in little state."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.synopses.histograms.canonical_form import Form
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
    answered, true = (
        {(row["k"], row["window_end"]): row for row in hub.query(name).history().to_pylist()}
        for name in ("about", "exactly")
    )
    assert answered.keys() == true.keys()
    worst = 0.0
    for key, row in answered.items():
        for name, part in (("n", 0.2), ("total", 0.5)):
            right = true[key][name]
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
    runs = []
    for name, stops in (("once", (len(files),)), ("twice", (9, len(files)))):
        rig = Rig(tmp_path / name, {"maxFilesPerTrigger": "1"})
        done = 0
        for stop in stops:
            rig.drop(*files[done:stop])
            with rig.hub(queries=None if done else {"about": SKETCHED, "exactly": PLAIN}) as hub:
                hub.run_once()
                rows = hub.query("about").history().to_pylist()
                true = {
                    (row["k"], row["window_end"]): row for row in hub.query("exactly").history().to_pylist()
                }
            done = stop
        runs.append(sorted(map(repr, rows)))
        assert {(row["k"], row["window_end"]) for row in rows} == true.keys()
        for row in rows:
            right = true[row["k"], row["window_end"]]
            assert row["rows"] == right["rows"]
            for column in ("d", "p", "above", "near"):
                exact = right[column] or 0
                assert abs((row[column] or 0) - exact) <= (row[f"{column}_bound"] or 0) + 1e-9 * abs(exact)
    assert runs[0] == runs[1]


def test_windows_without_panes_are_answered_exactly_with_bounds_of_0() -> None:
    start = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    rows = [{"at": start + dt.timedelta(seconds=index), "x": index * index % 7} for index in range(30)]
    for window in ("[RANGE 20 SECONDS]", "[ROWS 20]"):
        (about,) = hr.test(
            "SELECT APPROX_DISTINCT(x) AS d, ERROR_BOUND(d) AS db, APPROX_TOP_K(x, 1) AS t, ERROR_BOUND(t) AS tb, "
            f"APPROX_PERCENTILE(x, 0.5) AS p, ERROR_BOUND(p) AS pb, L2_NORM(x) WITHIN 5 PERCENT AS l FROM s {window}",
            s=rows,
        )
        (exact,) = hr.test(
            "SELECT COUNT(DISTINCT x) AS d, 0 AS db, TOP_K(x, 1) AS t, 0 AS tb, MEDIAN(x) AS p, 0.0D AS pb, L2_NORM(x) AS l "
            f"FROM s {window}",
            s=rows,
        )
        assert about == exact


def test_counts_and_sums_of_the_last_rows_are_exact_with_bounds_of_0() -> None:
    start = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    rows = [{"at": start + dt.timedelta(seconds=index), "x": index * index % 7} for index in range(30)]
    (answer,) = hr.test(
        "SELECT APPROX_COUNT(*) WITHIN 20 PERCENT AS n, ERROR_BOUND(n) AS nb, "
        "APPROX_SUM(x) WITHIN 20 PERCENT AS s, ERROR_BOUND(s) AS sb FROM s [ROWS 20]",
        s=rows,
    )
    assert answer == {"n": 20, "nb": 0, "s": sum(row["x"] for row in rows[10:]), "sb": 0}


def test_status_shows_how_much_each_synopsis_may_take_for_a_group(tmp_path: Path) -> None:
    relation = APPROXIMATE.replace(" SLIDE 1 SECOND", "").replace(" window_end,", "")
    queries = {"about": SKETCHED, "exactly": PLAIN, "counts": APPROXIMATE, "always": relation}
    with Rig(tmp_path).hub(queries=queries) as hub:
        synopses = hub.status()["synopses"]
    assert synopses.keys() == {"about", "counts", "always"}
    assert synopses["always"]["count(*)"] == synopses["counts"]["count(*)"], (
        "at every instant as over windows"
    )
    assert synopses["about"]["distinctsketch(x)"] == 2112
    assert synopses["counts"]["count(*)"] == 2 * Form.within(Fraction(1, 5)).most_buckets(1_000_000)


KEYS: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "integer": [-1, 0, 2**62],
    "double": [float("nan"), -0.0, 0.0, float("inf"), None],
    "decimal": [Decimal("1.50"), Decimal("-7.25"), None],
    "string": ["", "a", "ä", None],
    "binary": [b"", b"\0", b"a"],
    "date": [dt.date(1969, 1, 1), dt.date(2024, 2, 29), None],
    "timestamp": [dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, tzinfo=dt.UTC), None],
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", range(2))
def test_groups_of_every_key_type_are_within_their_bounds(kind: str, seed: int) -> None:
    drawn = random.Random(f"{kind}{seed}")
    start = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    rows = [
        {
            "at": start + dt.timedelta(seconds=index),
            "k": drawn.choice(KEYS[kind]),
            "x": int(drawn.paretovariate(0.7)),
        }
        for index in range(900)
    ]
    over = "FROM s [RANGE 600 SECONDS SLIDE 100 SECONDS] GROUP BY k ORDER BY k"
    slow, fast = "FROM s [RANGE 600 SECONDS SLIDE 4 SECONDS] GROUP BY k ORDER BY k", "WITHIN 10 PERCENT"
    about = hr.test(
        f"SELECT k, APPROX_DISTINCT(k) AS one, APPROX_PERCENTILE(x, 0.5) {fast} AS m, ERROR_BOUND(m) AS m_bound, "
        f"COUNT(*) FILTER (WHERE x > AVG(x)) {fast} AS n, ERROR_BOUND(n) AS n_bound {over}",
        s=rows,
    )
    exact = hr.test(
        f"SELECT k, COUNT(DISTINCT k) AS one, MEDIAN(x) AS m, COUNT(*) FILTER (WHERE x > AVG(x)) AS n {over}",
        s=rows,
    )
    counted = hr.test(f"SELECT k, APPROX_COUNT(*) {fast} AS n, ERROR_BOUND(n) AS n_bound {slow}", s=rows)
    plain = hr.test(f"SELECT k, COUNT(*) AS n {slow}", s=rows)
    held = "FROM s [RANGE 600 SECONDS] GROUP BY k ORDER BY k"
    now = hr.test(f"SELECT k, APPROX_COUNT(*) {fast} AS n, ERROR_BOUND(n) AS n_bound {held}", s=rows)
    held_now = hr.test(f"SELECT k, COUNT(*) AS n {held}", s=rows)
    pairs = ((about, exact, ("m", "n")), (counted, plain, ("n",)), (now, held_now, ("n",)))
    for answered, true, names in pairs:
        assert [repr(row["k"]) for row in answered] == [repr(row["k"]) for row in true]
        for row, right in zip(answered, true, strict=True):
            assert row.get("one") == right.get("one")
            assert all(abs(row[name] - right[name]) <= row[f"{name}_bound"] for name in names)


def test_a_budget_chooses_the_accuracy_of_what_says_none_and_writes_it_down(tmp_path: Path) -> None:
    without = "SELECT k, APPROX_DISTINCT(x) AS d, ERROR_BOUND(d) AS b FROM s [RANGE 60 SECONDS SLIDE 20 SECONDS] GROUP BY k"
    asked = without.replace("(x)", "(x) WITHIN 10 PERCENT")
    rows = [{"at": dt.datetime(2024, 5, 1, 0, 0, n, tzinfo=dt.UTC), "k": 1, "x": n} for n in range(50)]

    def opened(budget: int | None) -> Hub:
        return hr.open(tmp_path / "home", local=True, synopsis_bytes=budget)

    with opened(3000) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, k INT, x INT) USING push TIMESTAMP BY at")
        hub.register(asked, name="asked")
        hub.register(without, name="chosen")
        hub.register(without, name="chosen")  # registered again, nothing changes
        assert hub.status()["synopses"] == {
            "asked": {"distinctsketch(x)": 576},
            "chosen": {"distinctsketch(x)": 2112},
        }
        assert hub.status()["synopsis_budget"] == 3000
        hub.register(
            "SELECT k, COUNT(*) AS n FROM s [RANGE 60 SECONDS SLIDE 20 SECONDS] GROUP BY k", name="exact"
        )
        with pytest.raises(UserError, match="of 3,000 there are 312 left"):
            hub.register(asked.replace("10 PERCENT", "1 PERCENT"), name="greedy")
        with pytest.raises(UserError, match="no column 'z'"):
            hub.register(without.replace("(x)", "(z)"), name="wrong")
        hub.push("s", rows[:30])
        hub.run_once()
    with opened(None) as hub:
        assert hub.status()["synopses"]["chosen"] == {"distinctsketch(x)": 2112}
        hub.register(without, name="chosen")  # with another budget too
        text = hub.catalog.require_query("chosen").definition.text
        assert text == without.replace("(x)", "(x) WITHIN 5 PERCENT")
        hub.push("s", rows[30:])
        hub.run_once()
        assert [row["d"] for row in hub.query("chosen").history().to_pylist()] == [20, 40]
