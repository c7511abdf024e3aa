"""A flood over a real hub, on a machine whose rows cost what the test defines: shares follow what answers are worth, the archive is
whole, estimates are those of the recorded shares, intervals are honest, and kills change nothing.
"""

from __future__ import annotations

import hashlib
import shutil
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.archive.runs import POSITION
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.laws.test_shedding import hashed
from tests.overload.floods import FLOOD, Flood, by_name
from tests.overload.slow_machine import CHEAP, FOLD, READ, START, SlowMachine, flooded_hub

COUNTED = "SELECT window_end, k, COUNT(*) AS n, SUM(v) AS total, AVG(v) AS mean FROM s [RANGE TUMBLING 1 SECOND] GROUP BY k"
TOLERANT = "WITH SHEDDING WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), loss (1 AT 0 PERCENT, 0.8 AT 95 PERCENT))"
VALUED = (
    "WITH SHEDDING WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), loss (1 AT 0 PERCENT, 0.7 AT 90 PERCENT),"
    " value v (0.05 BELOW 10, 0.3 BELOW 70, 1 OTHERWISE))"
)
BOUNDS = (10, 70)
QUERIES = {
    "tolerant": f"{COUNTED} {TOLERANT}",
    "valued": f"{COUNTED} {VALUED}",
    "exact": COUNTED,
}
PER_ROW = READ + CHEAP + 2 * FOLD
MANY_ENOUGH = 30
"""Rows read of a group, from which on intervals of a normal distribution are not rough."""
FLOODED = range(10, 30)
"""Seconds."""
SECONDS = 75


def drive(
    path: Path, patch: pytest.MonkeyPatch, *, kills: bool
) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """All rows that were pushed, and what the hub reports in the end; with `kills` it is opened again and again, and jobs fail."""
    seen: dict[str, Any] = {"shares": [], "utility": []}

    def note(hub: Hub) -> None:
        seen["shares"].append(by_name(hub))
        seen["utility"].append(hub.status()["overload"]["utility"])

    flooded = Flood(QUERIES, FLOODED, SECONDS)
    pushed = flooded.drive(
        path, patch, kills=kills, after_epoch=note, at_end=lambda hub: seen.update(report(hub))
    )
    return pushed, seen


def report(hub: Hub) -> dict[str, Any]:
    manifest = hub.home.latest()
    operators = {query.definition.name: query.operator_id for query in hub.catalog.queries.values()}
    entries = [entry for _, entry in hub.home.list_of(manifest, "archive:s").iterate(hub.home.store.read, 0)]
    return {
        "answers": {name: hub.query(name).history().to_pylist() for name in QUERIES},
        "entries": entries,
        "operators": operators,
        "archived": archived(hub, entries),
        "status": hub.status()["overload"],
        "shown": hub.execute("SHOW QUERIES")[0].table.to_pylist(),
        "explained": hub.execute("EXPLAIN QUERY valued")[0].message,
        "all": hub.execute("EXPLAIN ALL")[0].message,
    }


def archived(hub: Hub, entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The archive's rows in the order of their positions."""
    files = dict.fromkeys(name for entry in entries for name in entry["files"])
    tables = [pq.read_table(pa.BufferReader(hub.home.store.map(name))) for name in files]
    read = [
        table.select([POSITION, "k", "v"]).append_column("at", table["at"].cast(pa.int64()))
        for table in tables
    ]
    rows = pa.concat_tables(read, promote_options="default")  # columns may be declared without NULL, or with
    return sorted(rows.to_pylist(), key=lambda row: row[POSITION])


@cache
def flood(path: Path, *, kills: bool) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        return drive(path / ("kills" if kills else "home"), patch, kills=kills)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flood")


def checksum(rows: Sequence[Mapping[str, Any]]) -> str:
    text = "\n".join(f"{row['at']} {row['k']} {row['v']}" for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()


def test_rows_are_dropped_while_the_flood_lasts_and_all_return(folder: Path) -> None:
    _, seen = flood(folder, kills=False)
    assert seen["shares"][0] == seen["shares"][-1] == {}
    least = {name: min((shares.get(name, (1.0,)) for shares in seen["shares"]), key=sum) for name in QUERIES}
    assert least["exact"] == (1.0,)
    assert least["tolerant"][0] < 0.5
    low, middle, high = least["valued"]
    assert low < middle <= high or low <= middle < high
    assert min(seen["utility"]) < 1.5
    assert seen["utility"][-1] == pytest.approx(2)
    assert 2 <= seen["status"]["changes"] <= 12


def test_a_spike_of_two_seconds_drops_nothing(tmp_path: Path) -> None:
    seen = list[dict[str, tuple[float, ...]]]()
    spike = Flood(QUERIES, range(5, 7), 25)
    with pytest.MonkeyPatch.context() as patch:
        spike.drive(
            tmp_path / "home",
            patch,
            kills=False,
            after_epoch=lambda hub: seen.append(by_name(hub)),
            at_end=lambda hub: seen.append({"changes": (hub.status()["overload"]["changes"],)}),
        )
    assert seen[-1] == {"changes": (0,)}
    assert not any(seen[:-1])


def test_the_archive_is_whole_by_count_and_checksum(folder: Path) -> None:
    pushed, seen = flood(folder, kills=False)
    assert len(seen["archived"]) == len(pushed)
    assert checksum(seen["archived"]) == checksum(pushed)


def test_a_query_without_shedding_stays_exact(folder: Path) -> None:
    pushed, seen = flood(folder, kills=False)
    exact, truth = seen["answers"]["exact"], true_answers(pushed)
    assert len(exact) > 120
    assert all(row["n"] == truth[key(row)][0] and row["total"] == truth[key(row)][1] for row in exact)


@pytest.mark.parametrize("name", ["tolerant", "valued"])
def test_estimates_are_those_of_the_shares_that_each_epoch_recorded(folder: Path, name: str) -> None:
    pushed, seen = flood(folder, kills=False)
    weights = recorded_weights(seen, name)
    sums: dict[tuple[int, int], list[float]] = {}
    for row, weight in zip(seen["archived"], weights, strict=True):
        if weight:
            n, total, variance = sums.setdefault((row["at"] // SECOND, row["k"]), [0.0, 0.0, 0.0])
            sums[row["at"] // SECOND, row["k"]] = [
                n + weight,
                total + weight * row["v"],
                variance + weight * (weight - 1) * row["v"] ** 2,
            ]
    assert len(pushed) == len(weights)
    assert any(weight > 1 for weight in weights)
    for row in seen["answers"][name]:
        n, total, variance = sums[key(row)]
        assert row["n"] == pytest.approx(n)
        assert row["total"] == pytest.approx(total)
        assert row["total_error"] == pytest.approx(1.959963984540054 * variance**0.5, abs=1e-6)


@pytest.mark.parametrize("name", ["tolerant", "valued"])
def test_nine_of_ten_intervals_of_estimates_hold_the_truth_and_other_answers_are_exact(
    folder: Path, name: str
) -> None:
    pushed, seen = flood(folder, kills=False)
    truth, held = true_answers(pushed), list[bool]()
    for row in seen["answers"][name]:
        count, total = truth[key(row)]
        if row["kept"] == 1:
            assert (row["n"], row["total"], row["n_error"], row["total_error"]) == (count, total, 0, 0)
        elif row["kept"] * row["n"] >= MANY_ENOUGH:
            held.append(abs(row["n"] - count) <= row["n_error"] + 1e-9)
            held.append(abs(row["total"] - total) <= row["total_error"] + 1e-9)
    assert len(held) > 50
    assert sum(held) / len(held) >= 0.85


def test_epochs_take_no_more_of_what_waits_than_is_soon_done(folder: Path) -> None:
    """Half of the good delay is a second; without that, epochs would take all that waits, and soon the whole flood."""
    _, seen = flood(folder, kills=False)
    assert max(entry["rows"] for entry in seen["entries"]) < 3 * FLOOD


def test_kills_and_jobs_that_fail_change_no_share_and_no_answer(folder: Path) -> None:
    """An epoch that is run again drops the same rows, and the next process continues from what was recorded."""
    _, seen = flood(folder, kills=False)
    _, again = flood(folder, kills=True)
    assert again["shares"] == seen["shares"]
    assert again["answers"] == seen["answers"]
    recorded = [(entry["rows"], entry.get("shares", {})) for entry in seen["entries"]]
    assert [(entry["rows"], entry.get("shares", {})) for entry in again["entries"]] == recorded


def test_status_show_and_explain_say_what_answers_are_worth(folder: Path) -> None:
    _, seen = flood(folder, kills=False)
    status = seen["status"]
    assert status["queries"].keys() == {"tolerant", "valued"}
    assert status["best"] == 2
    assert status["load"] == status["demand"] < status["headroom"]
    assert status["saturation"] == pytest.approx(1 / PER_ROW, rel=0.2)
    shown = {row["name"]: row["utility"] for row in seen["shown"]}
    assert shown == {"tolerant": pytest.approx(1), "valued": pytest.approx(1), "exact": None}
    assert "utility by loss: 1 at 0 %, 0.7 at 90 %" in seen["explained"]
    assert "importance: 0.05 where v < 10, 0.3 where v < 70, 1 where v >= 70" in seen["explained"]
    assert "now: utility 1.00" in seen["explained"]
    assert "WITH QOS its share of the rows is its own" in seen["explained"]
    assert "utility 2.00 of 2; load: " in seen["all"]


def test_a_query_that_is_registered_after_the_flood_is_exact_from_the_archive(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the archived rows nor the panes of a flooded query are a sample for it."""
    pushed, _ = flood(folder, kills=False)
    shutil.copytree(folder / "home", tmp_path / "home")
    machine = SlowMachine()
    machine.seconds = SECONDS + 100
    with flooded_hub(tmp_path / "home", machine, monkeypatch) as hub:
        hub.execute(f"CREATE QUERY repaired AS {COUNTED} WITH SHEDDING")
        hub.catch_up()
        truth = true_answers(pushed)
        repaired = hub.query("repaired").history().to_pylist()
        assert len(repaired) == len(hub.query("exact").history()) > 120
        assert all((row["n"], row["kept"]) == (truth[key(row)][0], 1) for row in repaired)


def true_answers(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], tuple[int, int]]:
    """Count and sum by second and group."""
    truth: dict[tuple[int, int], tuple[int, int]] = {}
    for row in rows:
        count, total = truth.get((row["at"] // SECOND, row["k"]), (0, 0))
        truth[row["at"] // SECOND, row["k"]] = count + 1, total + row["v"]
    return truth


def key(row: Mapping[str, Any]) -> tuple[int, int]:
    """The second and the group of an answer."""
    return round(row["window_end"].timestamp()) - 1, row["k"]


def recorded_weights(seen: Mapping[str, Any], name: str) -> list[float]:
    """How many rows each archived row represents, by a hash of its own and the shares of its epoch; 0 when it was dropped."""
    seed, weights = zlib.crc32(b"s"), list[float]()
    rows = iter(seen["archived"])
    for entry in seen["entries"]:
        shares = entry.get("shares", {}).get(seen["operators"][name], [1.0])
        for _ in range(entry["rows"]):
            row = next(rows)
            interval = sum(row["v"] >= bound for bound in BOUNDS) if len(shares) > 1 else 0
            is_used = hashed(row[POSITION], seed) < shares[interval] * 2**64
            weights.append(1 / shares[interval] if is_used else 0.0)
    return weights


def test_the_flood_is_one() -> None:
    """Of five times what the machine can take."""
    assert FLOOD * PER_ROW > 5
    assert START % SECOND == 0
