"""Queries that are sketched in a flood: exact before and after it, within their bounds in between; the same after kills and for one that is
resumed; and how that is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.overload.floods import STREAM, Flood, by_name
from tests.overload.slow_machine import START

MEDIAN = (
    "SELECT window_end, k, COUNT(*) AS n, APPROX_PERCENTILE(v, 0.5) WITHIN 10 PERCENT AS mid, ERROR_BOUND(mid) AS bound,"
    " APPROX_COUNT_DISTINCT(v) WITHIN 10 PERCENT AS kinds, ERROR_BOUND(kinds) AS kinds_bound FROM s"
    " [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k"
)
QOS = "WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), sketches 0.9)"
COUNTED = "SELECT window_end, k, COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND] GROUP BY k"
LOSSY = f"{COUNTED} WITH SHEDDING WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), loss (1 AT 0 PERCENT, 0.3 AT 95 PERCENT))"
FLOODED = range(8, 20)
QUERIES = {"mid": f"{MEDIAN} {QOS}", "lossy": LOSSY, "exact": COUNTED}


def drive(
    path: Path, patch: pytest.MonkeyPatch, *, kills: bool
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    seen: dict[str, Any] = {"shares": [], "utility": [], "shown": []}

    def note(hub: Hub) -> None:
        status = hub.status()["overload"]
        seen["shares"].append(by_name(hub))
        seen["utility"].append(status["queries"]["mid"]["utility"])
        seen["shown"].append((status["queries"]["mid"]["sketched"], "sketched until" in explained(hub)))

    def answers(hub: Hub) -> None:
        seen["answers"] = hub.query("mid").history().to_pylist()
        manifest = hub.home.latest()
        seen["entries"] = [
            e for _, e in hub.home.list_of(manifest, "archive:s").iterate(hub.home.store.read, 0)
        ]
        seen["operator"] = hub.catalog.require_query("mid").operator_id
        seen["changes"] = hub.status()["overload"]["changes"]

    flood = Flood(QUERIES, FLOODED, 60)
    return flood.drive(path, patch, kills=kills, after_epoch=note, at_end=answers), seen


def explained(hub: Hub) -> str:
    return hub.execute("EXPLAIN QUERY mid")[0].message


@cache
def flood(path: Path, *, kills: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        return drive(path / ("kills" if kills else "home"), patch, kills=kills)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flood")


def test_the_flood_is_sketched_and_the_calm_after_it_exact(folder: Path) -> None:
    _, seen = flood(folder, kills=False)
    chosen = [shares.get("mid") for shares in seen["shares"]]
    assert chosen[0] is None
    assert (0.0,) in chosen
    assert chosen[-1] is None
    first, last = chosen.index((0.0,)), len(chosen) - chosen[::-1].index((0.0,))
    assert set(chosen[first:last]) == {(0.0,)}
    assert seen["utility"][-1] == 1
    assert max(seen["utility"][first + 1 : last]) <= 0.9
    assert [shown[0] for shown in seen["shown"]] == [shares == (0.0,) for shares in chosen]
    assert all(status == text for status, text in seen["shown"])


def test_what_is_worth_more_is_given_up_later_and_returns_first(folder: Path) -> None:
    """Sketches take a tenth of the utility, lost rows more: so they are the first step, and the last that is undone."""
    _, seen = flood(folder, kills=False)
    sketched = [number for number, shares in enumerate(seen["shares"]) if "mid" in shares]
    lossy = [number for number, shares in enumerate(seen["shares"]) if "lossy" in shares]
    assert lossy
    assert sketched[0] <= lossy[0]
    assert lossy[-1] <= sketched[-1]


def test_windows_without_a_sketched_row_are_exact_and_all_are_within_their_bounds(folder: Path) -> None:
    pushed, seen = flood(folder, kills=False)
    sketched = sketched_times(pushed, seen)
    kinds: dict[bool, int] = {False: 0, True: 0}
    for row in seen["answers"]:
        end = round(row["window_end"].timestamp()) * SECOND
        values = sorted(
            each["v"] for each in pushed if each["k"] == row["k"] and end - 6 * SECOND <= each["at"] < end
        )
        assert row["n"] == len(values)
        is_sketched = any(end - 6 * SECOND <= at < end for at in sketched)
        kinds[is_sketched] += 1
        median = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
        if not is_sketched:
            assert (row["bound"], row["kinds_bound"]) == (0, 0)
        assert abs(row["mid"] - median) <= row["bound"]
        assert abs(row["kinds"] - len(set(values))) <= row["kinds_bound"]
    assert kinds[True] > 6
    assert kinds[False] > 6


def sketched_times(pushed: Sequence[Mapping[str, Any]], seen: Mapping[str, Any]) -> list[int]:
    """Event times of the rows of epochs that were sketched, as the archive's entries have recorded."""
    rows, times = iter(pushed), list[int]()
    for entry in seen["entries"]:
        of_entry = [next(rows)["at"] for _ in range(entry["rows"])]
        if entry.get("shares", {}).get(seen["operator"]) == [0.0]:
            times += of_entry
    return times


def test_kills_and_jobs_that_fail_change_no_choice_and_no_answer(folder: Path) -> None:
    _, seen = flood(folder, kills=False)
    _, again = flood(folder, kills=True)
    assert again["shares"] == seen["shares"]
    assert again["answers"] == seen["answers"]


def test_without_an_overload_it_is_exact_and_a_later_one_reads_the_archive_exactly(tmp_path: Path) -> None:
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.execute(STREAM)
        hub.execute(f"CREATE QUERY mid AS {MEDIAN} {QOS}")
        hub.push("s", [{"at": START + n * SECOND // 4, "k": n % 2, "v": n % 7} for n in range(100)])
        hub.catch_up()
        first = hub.query("mid").history().to_pylist()
        assert len(first) > 10
        assert all((row["bound"], row["kinds_bound"]) == (0, 0) for row in first)
        hub.execute(f"CREATE QUERY later AS {MEDIAN} {QOS}")
        hub.catch_up()
        assert hub.query("later").history().to_pylist() == first
        assert "utility of answers from sketches: 0.9" in explained(hub)
        assert "panes are exact, or sketches in an overload" in explained(hub)
