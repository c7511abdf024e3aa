"""Questions over the archive that name the error they accept: the least is read that gives it, and the rest is refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.statements.outcome import Outcome
from headrace.time import SECOND

START = 1_700_000_000 * SECOND
ROWS = 120_000


@contextmanager
def opened(path: Path, blocks: int = 16) -> Iterator[Hub]:
    with open_hub(path, local=True) as hub:
        hub.execute(
            "CREATE STREAM s (at TIMESTAMP, k STRING, v DOUBLE, n BIGINT) USING push"
            f" OPTIONS (blocks '{blocks}') TIMESTAMP BY at"
        )
        yield hub


def rows(first: int, count: int, seed: int = 1) -> pa.Table:
    """Rows in order of time: two large groups and a rare one; v grows, so that runs differ."""
    rng, number = np.random.default_rng(seed + first), np.arange(first, first + count)
    return pa.table(
        {
            "at": pa.array(START + number * 1000).cast(pa.timestamp("us", tz="UTC")),
            "k": np.where(rng.random(count) < 0.0005, "rare", np.where(rng.random(count) < 0.3, "a", "b")),
            "v": rng.gamma(2.0, 10.0, count) + number / 20_000,
            "n": pa.array(number % 7, mask=number % 11 == 0),
        }
    )


def filled(hub: Hub, runs: int = 4) -> pa.Table:
    tables = [rows(number * (ROWS // runs), ROWS // runs) for number in range(runs)]
    for table in tables:
        hub.push("s", table)
        hub.catch_up()
    return pa.concat_tables(tables)


def ask(hub: Hub, text: str) -> Outcome:
    (outcome,) = hub.execute(text)
    assert outcome.table is not None
    return outcome


@pytest.fixture(scope="module")
def asked_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, pa.Table]]:
    with opened(tmp_path_factory.mktemp("past") / "home") as hub:
        yield hub, filled(hub)


WITH_ALL = (
    "SELECT k, COUNT(*) AS c, SUM(v) AS total, AVG(v) AS mean, AVG(n) FILTER (WHERE v > 15) AS high FROM s"
)


def test_all_that_is_asked_exactly_is_exact(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, past = asked_of
    outcome = ask(hub, f"{WITH_ALL} WHERE v > 5 GROUP BY k WITHIN 0 PERCENT")
    assert f"read {ROWS:,} of {ROWS:,} archived rows" in outcome.message
    frame = past.to_pandas()
    frame = frame[frame.v > 5]
    found = {row["k"]: row for row in outcome.table.to_pylist()}
    assert set(found) == {"a", "b", "rare"}
    for k, of in frame.groupby("k"):
        row = found[k]
        assert row["c"] == len(of)
        assert row["total"] == pytest.approx(of.v.sum(), rel=1e-9)
        assert row["mean"] == pytest.approx(of.v.mean(), rel=1e-9)
        assert row["high"] == pytest.approx(of[of.v > 15].n.mean(), rel=1e-9)
        assert [row[f"{name}_error"] for name in ("c", "total", "mean", "high")] == [0, 0, 0, 0]
        assert row["kept"] == 1


@pytest.mark.parametrize("percent", [20, 5, 2])
def test_the_answer_has_the_error_and_fewer_rows_would_not_give_it(
    asked_of: tuple[Hub, pa.Table], percent: int
) -> None:
    hub, past = asked_of
    outcome = ask(hub, f"SELECT SUM(v) AS total, AVG(v) AS mean FROM s WHERE v > 25 WITHIN {percent} PERCENT")
    (row,) = outcome.table.to_pylist()
    v = past["v"].to_numpy()
    v = v[v > 25]
    for name, truth in (("total", v.sum()), ("mean", v.mean())):
        assert 0 < row[f"{name}_error"] <= percent / 100 * row[name]
        assert abs(row[name] - truth) <= 2 * row[f"{name}_error"]
    assert row["kept"] < {20: 0.07, 5: 0.13, 2: 0.5}[percent]
    if percent < 20:  # half as much would have had too great an error
        assert row["total_error"] * 2 > percent / 100 * row["total"]


def test_a_rare_group_makes_it_read_all(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, _ = asked_of
    outcome = ask(hub, "SELECT k, COUNT(*) AS c FROM s GROUP BY k WITHIN 1 PERCENT")
    found = {row["k"]: row for row in outcome.table.to_pylist()}
    assert found["rare"]["kept"] == 1
    assert found["rare"]["c_error"] == 0


def test_between_two_instants_other_runs_are_not_read(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, past = asked_of
    outcome = ask(
        hub,
        "SELECT COUNT(*) AS c, AVG(v) AS mean FROM s"
        " BEGIN TIMESTAMP '2023-11-14 22:13:40' END TIMESTAMP '2023-11-14 22:13:44.999' WITHIN 3 PERCENT",
    )
    (row,) = outcome.table.to_pylist()
    assert f"of {ROWS // 4:,} archived rows" in outcome.message
    assert row["c"] == pytest.approx(5000, abs=2 * row["c_error"] + 1e-9)
    assert row["mean"] == pytest.approx(past["v"].to_numpy()[20_000:25_000].mean(), abs=2 * row["mean_error"])
    exact = ask(hub, "SELECT COUNT(*) AS c FROM s BEGIN NOW - INTERVAL 1 SECOND END NOW WITHIN 0 PERCENT")
    assert exact.table.to_pylist() == [{"c": 1001.0, "c_error": 0.0, "kept": 1.0}]


def test_without_rows_there_is_nothing_to_read(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        values = ask(hub, "SELECT COUNT(*) AS c, AVG(v) AS mean FROM s WITHIN 2 PERCENT").table.to_pylist()
        assert values == [{"c": 0.0, "c_error": 0.0, "mean": None, "mean_error": None, "kept": 1.0}]
        assert ask(hub, "SELECT k, COUNT(*) AS c FROM s GROUP BY k WITHIN 2 PERCENT").table.num_rows == 0


def test_an_archive_in_one_piece_is_read_whole_and_late_rows_are_in_no_answer(tmp_path: Path) -> None:
    with opened(tmp_path / "home", blocks=1) as hub:
        hub.push("s", rows(10_000, 20_000))
        hub.catch_up()
        hub.push("s", rows(0, 500))  # late
        hub.catch_up()
        (row,) = ask(hub, "SELECT COUNT(*) AS c FROM s WITHIN 50 PERCENT").table.to_pylist()
        assert row == {"c": 20_000.0, "c_error": 0.0, "kept": 1.0}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT MAX(v) AS m FROM s WITHIN 2 PERCENT", "for MAX"),
        ("SELECT COUNT(DISTINCT k) AS m FROM s WITHIN 2 PERCENT", "for COUNT DISTINCT"),
        ("SELECT v FROM s WITHIN 2 PERCENT", "WITHIN is not available"),
        ("SELECT SUM(v) / 2 AS m FROM s WITHIN 2 PERCENT", "error of an expression"),
        (
            "SELECT COUNT(*) AS m FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] WITHIN 2 PERCENT",
            "window that slides",
        ),
        ("SELECT COUNT(*) AS m FROM s [RANGE 1 MINUTE] WITHIN 2 PERCENT", "window of its own"),
        ("SELECT COUNT(*) AS m FROM s LATE WITHIN 2 PERCENT", "late"),
        ("SELECT k, COUNT(*) AS m FROM s GROUP BY k HAVING COUNT(*) > 1 WITHIN 2 PERCENT", "HAVING"),
        ("SELECT COUNT(*) AS m FROM s x, s y WHERE x.k = y.k WITHIN 2 PERCENT", "joins of two streams"),
        ("SELECT COUNT(*) AS m FROM s WITHIN 200 PERCENT", "at most 100"),
        ("SELECT COUNT(*) AS m FROM s WITHIN two PERCENT", "a number of percent"),
        ("SELECT COUNT(*) AS m FROM s", "not a statement of its own"),
    ],
)
def test_what_a_part_of_the_rows_does_not_answer_is_refused(
    asked_of: tuple[Hub, pa.Table], text: str, reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        asked_of[0].execute(text)


def test_a_stream_without_a_copy_has_no_past_to_ask(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            "CREATE STREAM s (at TIMESTAMP, v INT) USING push OPTIONS (archive 'none') TIMESTAMP BY at"
        )
        with pytest.raises(UserError, match="keeps no copy"):
            hub.execute("SELECT COUNT(*) AS c FROM s WITHIN 2 PERCENT")


def test_within_after_a_function_of_the_last_clause_is_the_questions(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, _ = asked_of
    text = "SELECT upper(k) AS u, COUNT(*) AS c FROM s WHERE k <> 'rare' GROUP BY upper(k) WITHIN 5 PERCENT"
    assert sorted(ask(hub, text).table["u"].to_pylist()) == ["A", "B"]
