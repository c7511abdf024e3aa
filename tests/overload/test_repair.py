"""Repair over a real hub: a flood, then calm, and the answers of a hub that was never flooded; what waits is reported, and what expires first stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UserError
from headrace.runtime.backfill.backfill_scheduler import Chunk
from headrace.runtime.epoch import engine
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.repair_ledger import RepairLedger
from headrace.time import SECOND
from tests.overload.floods import STREAM, Flood, by_name
from tests.overload.slow_machine import START
from tests.overload.test_flood import BOUNDS, COUNTED, key, true_answers

COUNTS = "SELECT window_end, k, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS top FROM s"
TUMBLING = f"{COUNTS} [RANGE TUMBLING 10 SECONDS] GROUP BY k"
SLIDING = f"{COUNTS} [RANGE 10 SECONDS SLIDE 4 SECONDS] WHERE v <> 2 GROUP BY k"
REPAIR = " WITH SHEDDING (repair)"


def standing(hub: Hub, name: str) -> list[dict[str, Any]]:
    """What a query's changelog leaves; nothing is there twice, and nothing was retracted that was not there."""
    held: Counter[tuple[Any, ...]] = Counter()
    table = hub.query(name).history()
    names = [column for column in table.column_names if column not in ("__change", "__at")]
    for row in table.to_pylist():
        held[tuple(row[column] for column in names)] += row["__change"]
    assert set(held.values()) <= {0, 1}
    return [dict(zip(names, row, strict=True)) for row, count in held.items() if count]


def rows_between(first: int, last: int, of_a_second: int = 6) -> list[dict[str, Any]]:
    """Rows of some seconds, two groups."""
    return [
        {"at": START + second * SECOND, "k": number % 2, "v": (second + number) % 5}
        for second in range(first, last)
        for number in range(of_a_second)
    ]


def exact_answers(hub: Hub, name: str) -> list[tuple[Any, ...]]:
    return sorted(
        (row["window_end"], row["k"], row["n"], row["total"], row["top"]) for row in standing(hub, name)
    )


def plain_answers(hub: Hub, name: str) -> list[tuple[Any, ...]]:
    rows = hub.query(name).history().to_pylist()
    return sorted((row["window_end"], row["k"], row["n"], row["total"], row["top"]) for row in rows)


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    opened = Hub(tmp_path / "home", LocalExecutor())
    opened.execute(STREAM)
    return opened


def test_by_hand_an_estimate_is_retracted_and_the_exact_answer_inserted_once_the_share_is_one(
    hub: Hub,
) -> None:
    hub.execute(f"CREATE QUERY q AS {TUMBLING}{REPAIR}; ALTER STREAM s SET (keep '0.25')")
    hub.push("s", rows_between(0, 12))
    hub.catch_up()
    estimates = hub.query("q").history().to_pylist()
    assert [row["__change"] for row in estimates] == [1] * len(estimates)
    assert all(row["kept"] == 0.25 for row in estimates)
    assert hub.status()["repairs"] == {"q": {"waiting": 1, "repaired": 0, "lost": 0, "entries": 1}}
    shown = hub.execute("SHOW QUERIES")[0].table.to_pylist()
    assert [(row["to_repair"], row["repaired"]) for row in shown] == [(1, 0)]
    explained = hub.execute("EXPLAIN QUERY q")[0].message
    assert "repair: 1 windows wait, for which 1 entries of the archive are read; 0 are repaired" in explained
    hub.execute("ALTER STREAM s SET (keep '1')")
    hub.catch_up()
    changes = Counter(row["__change"] for row in hub.query("q").history().to_pylist())
    assert changes == {1: len(estimates) + 2, -1: len(estimates)}
    assert [(row["k"], row["n"], row["n_error"], row["kept"]) for row in standing(hub, "q")] == [
        (0, 30.0, 0.0, 1.0),
        (1, 30.0, 0.0, 1.0),
    ]
    assert hub.status()["repairs"] == {"q": {"waiting": 0, "repaired": 1, "lost": 0, "entries": 0}}
    hub.push("s", rows_between(12, 22))  # the window that was open has all rows of its first two seconds
    hub.catch_up()
    assert [(row["n"], row["kept"]) for row in standing(hub, "q")] == [(30.0, 1.0)] * 4
    assert hub.status()["repairs"]["q"]["repaired"] == 1


def test_while_rows_are_shed_nothing_is_repaired_and_other_queries_are_never_read_again(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY q AS {TUMBLING}{REPAIR}; CREATE QUERY other AS {TUMBLING} WITH SHEDDING")
    hub.execute("ALTER STREAM s SET (keep '0.25')")
    for second in range(0, 30, 6):
        hub.push("s", rows_between(second, second + 6))
        hub.catch_up()
    assert all(row["__change"] == 1 for row in hub.query("q").history().to_pylist())
    before = hub.query("other").history()
    hub.execute("ALTER STREAM s SET (keep '1')")
    kinds = []
    while (seen := hub.loop.step()) is not None:
        kinds.append((seen.kind, sorted(seen.operators)))
    operator = hub.catalog.require_query("q").operator_id
    assert [named for kind, named in kinds if kind == "repair"] == [[operator]]
    assert hub.query("other").history() == before


def test_until_then_it_answers_as_without_repair_and_as_soon(hub: Hub) -> None:
    """Also by epochs of which no row was kept: windows close that hold samples alone."""
    hub.execute(f"CREATE QUERY q AS {SLIDING}{REPAIR}; CREATE QUERY other AS {SLIDING} WITH SHEDDING")
    hub.execute("ALTER STREAM s SET (keep '0.25')")
    for second in range(0, 60, 2):
        hub.push("s", rows_between(second, second + 1, 2))
        hub.catch_up()
        estimates = hub.query("other").history().to_pylist()
        assert sorted(map(repr, standing(hub, "q"))) == sorted(map(repr, estimates))
    assert len(estimates) > 10


def in_parts(rows: int, patch: pytest.MonkeyPatch) -> None:
    """Repairs, and backfills, read so many rows an epoch."""
    patch.setattr(engine, "Chunk", lambda: Chunk(rows))


def test_entries_are_read_in_slices_between_live_epochs_and_a_restart_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = " OPTIONS (blocks '8')"
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.execute(STREAM.replace("push", f"push{options}"))
        hub.execute(f"CREATE QUERY q AS {SLIDING}{REPAIR}; CREATE QUERY exact AS {SLIDING}")
        hub.execute("ALTER STREAM s SET (keep '0.25')")
        for second in range(0, 40, 20):
            hub.push("s", rows_between(second, second + 20, 40))
            hub.catch_up()
        hub.execute("ALTER STREAM s SET (keep '1')")
    in_parts(100, monkeypatch)
    kinds, second = [], 40
    while True:
        with Hub(tmp_path / "home", LocalExecutor()) as hub:
            seen = hub.loop.step()
            kinds += [] if seen is None else [seen.kind]
            if seen is None:
                break
            assert seen.kind != "repair" or seen.rows <= 800 // 2
            if second < 52:
                hub.push("s", rows_between(second, second + 4, 4))
                hub.loop.engine._run(hub.loop.engine._live())
                second += 4
    assert kinds.count("repair") > 8
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        assert exact_answers(hub, "q") == plain_answers(hub, "exact")
        assert hub.status()["repairs"]["q"]["lost"] == 0


def test_floods_one_after_another_are_repaired_each_and_windows_between_them_stay(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY q AS {SLIDING}{REPAIR}; CREATE QUERY exact AS {SLIDING}")
    for number, keep in enumerate((0.5, 1, 0.25, 1, 0.5, 0.25)):
        hub.execute(f"ALTER STREAM s SET (keep '{keep}')")
        for second in (24 * number, 24 * number + 12):
            hub.push("s", rows_between(second, second + 12))
            hub.catch_up()
    hub.execute("ALTER STREAM s SET (keep '1')")
    hub.catch_up()
    assert exact_answers(hub, "q") == plain_answers(hub, "exact")
    changed = Counter(
        (row["window_end"], row["k"]) for row in hub.query("q").history().to_pylist() if row["__change"] < 0
    )
    assert set(changed.values()) == {1}


def test_windows_between_two_floods_that_wait_together_are_emitted_once(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY q AS {SLIDING}{REPAIR}; CREATE QUERY exact AS {SLIDING}")
    for number, keep in enumerate((0.5, 1, 1, 0.25, 1)):
        hub.execute(f"ALTER STREAM s SET (keep '{keep}')")
        hub.push("s", rows_between(30 * number, 30 * number + 30))
        hub.loop.engine.find_out()
        hub.loop.engine.intake.listen(())
        live = hub.loop.engine._live()
        assert live is not None
        hub.loop.engine._run(live)
    assert hub.status()["repairs"]["q"]["entries"] == 2
    waiting = hub.status()["repairs"]["q"]["waiting"]
    hub.catch_up()
    assert exact_answers(hub, "q") == plain_answers(hub, "exact")
    assert 0 < hub.status()["repairs"]["q"]["repaired"] == waiting < 30


def test_the_span_of_a_flood_has_the_times_of_all_its_epochs_in_whatever_order_rows_came() -> None:
    ledger = RepairLedger().shedding(0).damaged(3, 5, 9).damaged(4, 3, 6)
    assert (ledger.ranges, ledger.spans) == (((3, 5),), ((3, 9),))
    assert ledger.damaged(7, 20, 30).damaged(8, 1, 2).spans == ((1, 2), (3, 9), (20, 30))
    assert RepairLedger.from_json(ledger.as_json()) == ledger


def test_a_stream_that_has_ended_is_repaired_too(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY q AS {SLIDING}{REPAIR}; CREATE QUERY exact AS {SLIDING}")
    hub.execute("ALTER STREAM s SET (keep '0.25')")
    hub.push("s", rows_between(0, 25))
    hub.run_once(seal=True)
    hub.execute("ALTER STREAM s SET (keep '1')")
    hub.catch_up()
    assert exact_answers(hub, "q") == plain_answers(hub, "exact")


def test_a_paused_query_is_repaired_once_it_is_resumed(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY q AS {SLIDING}{REPAIR}; CREATE QUERY exact AS {SLIDING}")
    hub.execute("ALTER STREAM s SET (keep '0.25')")
    hub.push("s", rows_between(0, 25))
    hub.catch_up()
    hub.execute("PAUSE QUERY q")
    for second in range(25, 40):  # runs of state are merged meanwhile
        hub.push("s", rows_between(second, second + 1))
        hub.catch_up()
    hub.execute("ALTER STREAM s SET (keep '1')")
    hub.catch_up()
    assert hub.status()["repairs"]["q"]["repaired"] == 0
    hub.execute("RESUME QUERY q")
    hub.push("s", rows_between(40, 50))
    hub.catch_up()
    hub.catch_up()
    assert exact_answers(hub, "q") == plain_answers(hub, "exact")


def test_what_the_archive_has_lost_before_it_is_repaired_stays_an_estimate_and_is_counted(
    tmp_path: Path,
) -> None:
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.execute(STREAM.replace("push", "push OPTIONS (retain '20 seconds')"))
        hub.execute(f"CREATE QUERY q AS {TUMBLING}{REPAIR}; CREATE QUERY exact AS {TUMBLING}")
        hub.execute(f"CREATE QUERY long AS {COUNTS} [RANGE 40 SECONDS SLIDE 10 SECONDS] GROUP BY k{REPAIR}")
        hub.execute("ALTER STREAM s SET (keep '0.5')")
        for second in range(0, 60, 5):
            hub.push("s", rows_between(second, second + 5))
            hub.catch_up()
        before = {(row["window_end"], row["k"]): row for row in standing(hub, "q")}
        hub.execute("ALTER STREAM s SET (keep '1')")
        hub.catch_up()
        exact = {(end, k): rest for end, k, *rest in plain_answers(hub, "exact")}
        status, kinds = hub.status()["repairs"]["q"], Counter[str]()
        assert status["waiting"] == status["entries"] == 0
        for row in standing(hub, "q"):
            place = row["window_end"], row["k"]
            if row["kept"] == 1:
                assert [row["n"], row["total"], row["top"]] == exact[place]
                kinds["repaired"] += 1
            else:
                assert row == before[place]
                kinds["lost"] += 1
        assert kinds == {"lost": 2 * status["lost"], "repaired": 2 * status["repaired"]}
        assert (status["lost"], status["repaired"]) == (4, 1)
        assert "stay estimates, their rows have expired" in hub.execute("EXPLAIN QUERY q")[0].message
        hub.push("s", rows_between(60, 75))
        hub.catch_up()
        later = [row for row in standing(hub, "q") if row["window_end"] > max(end for end, _ in before)]
        assert len(later) == 4
        assert all(row["kept"] == 1 for row in later)
        counts = {(row["window_end"], row["k"]): row["n"] for row in standing(hub, "q")}
        after = max(end for end, _ in before)
        windows = [row for row in standing(hub, "long") if row["window_end"] > after]
        assert any(row["kept"] < 1 for row in windows)  # they hold panes whose samples are all that is left
        for row in windows:
            parts = [counts[row["window_end"] - timedelta(seconds=10 * part), row["k"]] for part in range(4)]
            assert row["n"] == sum(parts)


def test_landmark_windows_are_corrected_from_the_flood_on_and_lost_rows_are_counted(tmp_path: Path) -> None:
    ever = f"{COUNTS} [LANDMARK SLIDE 5 SECONDS] GROUP BY k"
    for retain, lost in (("1 HOUR", 0), ("20 SECONDS", 7)):
        with Hub(tmp_path / f"{lost}", LocalExecutor()) as hub:
            hub.execute(STREAM.replace("push", f"push OPTIONS (retain '{retain}')"))
            hub.execute(f"CREATE QUERY q AS {ever}{REPAIR}; CREATE QUERY exact AS {ever}")
            hub.push("s", rows_between(0, 15))
            hub.catch_up()
            hub.execute("ALTER STREAM s SET (keep '0.5')")
            for second in range(15, 55, 5):
                hub.push("s", rows_between(second, second + 5))
                hub.catch_up()
            status = hub.status()["repairs"]["q"]
            assert (
                status["waiting"] + status["lost"] == 7
            )  # those that end from 20 to 50 seconds after the start
            hub.execute("ALTER STREAM s SET (keep '1')")
            hub.push("s", rows_between(55, 66))
            hub.catch_up()
            status = hub.status()["repairs"]["q"]
            assert status["waiting"] == status["entries"] == 0
            assert (status["lost"], status["repaired"]) == ((lost, 0) if lost else (0, 7))
            exact = {(end, k): rest for end, k, *rest in plain_answers(hub, "exact")}
            answers = standing(hub, "q")
            assert len(answers) == len(exact)
            for row in answers:
                is_exact = [row["n"], row["total"], row["top"]] == exact[row["window_end"], row["k"]]
                assert is_exact or lost
                assert (row["kept"] == 1) or lost
            after = {row["window_end"] for row in answers if row["kept"] < 1}
            assert len(after) == (
                0 if not lost else 10
            )  # all that hold what was lost, also those that ended later


def test_a_query_over_it_reads_each_window_once_when_it_is_exact(tmp_path: Path) -> None:
    above = "SELECT k, SUM(n) AS n, MAX(top) AS top FROM {} [RANGE TUMBLING 20 SECONDS] GROUP BY k"
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.execute(STREAM)
        hub.execute(f"CREATE QUERY q AS {TUMBLING}{REPAIR}; CREATE QUERY exact AS {TUMBLING}")
        hub.execute(
            f"CREATE QUERY above AS {above.format('q')}; CREATE QUERY true AS {above.format('exact')}"
        )
        hub.execute("CREATE QUERY rows AS SELECT window_end, n, kept FROM q")
        hub.push("s", rows_between(0, 22))
        hub.catch_up()
        assert hub.query("rows").history().num_rows == 4
        hub.execute("ALTER STREAM s SET (keep '0.25')")
        hub.push("s", rows_between(22, 43))
        hub.catch_up()
        hub.push("s", rows_between(43, 65))
        hub.catch_up()
        assert len(standing(hub, "q")) == 12
        assert hub.query("rows").history().num_rows == 4  # the others wait
        assert "to_repair" in hub.execute("SHOW QUERIES")[0].table.column_names
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.catch_up()
        assert hub.query("rows").history().num_rows == 4
        hub.execute("ALTER STREAM s SET (keep '1')")
        hub.catch_up()
        rows = hub.query("rows").history().to_pylist()
        assert len(rows) == 12
        assert all(row["kept"] == 1 for row in rows)
        hub.push("s", rows_between(65, 90))
        hub.catch_up()
        assert hub.query("rows").history().num_rows == 16
        read = {name: hub.query(name).history().to_pylist() for name in ("above", "true")}
        assert read["above"] == read["true"]
        assert len(read["true"]) == 8
        assert "emitted once these were read in the archive" in explained(hub, "above")
        with pytest.raises(UserError, match="above"):
            hub.execute("DROP QUERY q")


def explained(hub: Hub, name: str) -> str:
    (outcome,) = hub.execute(f"EXPLAIN QUERY {name}")
    return outcome.message or "\n".join(outcome.table["plan"].to_pylist())


# ------------------------------------------------------------------------------------------------- a flood, by the clock

TOLERANT = "WITH SHEDDING (repair) WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), loss (1 AT 0 PERCENT, 0.8 AT 95 PERCENT))"
VALUED = (
    "WITH SHEDDING (repair) WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), loss (1 AT 0 PERCENT, 0.7 AT 90 PERCENT),"
    f" value v (0.05 BELOW {BOUNDS[0]}, 0.3 BELOW {BOUNDS[1]}, 1 OTHERWISE))"
)
QUERIES = {"tolerant": f"{COUNTED} {TOLERANT}", "valued": f"{COUNTED} {VALUED}", "exact": COUNTED}
SECONDS = 80


def drive(
    path: Path, patch: pytest.MonkeyPatch, *, kills: bool
) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """All rows pushed in twelve seconds of flood and then calm, and what the hub has answered and reports in the end."""
    seen: dict[str, Any] = {"shares": [], "waiting": []}

    def note(hub: Hub) -> None:
        seen["shares"].append(by_name(hub))
        seen["waiting"].append(hub.status()["repairs"]["tolerant"]["waiting"])

    def answers(hub: Hub) -> None:
        seen["repairs"] = hub.status()["repairs"]
        seen["answers"] = {name: standing(hub, name) for name in ("tolerant", "valued")}
        seen["changes"] = Counter(row["__change"] for row in hub.query("tolerant").history().to_pylist())

    flooded = Flood(QUERIES, range(6, 18), SECONDS, epochs_of_a_life=9)
    return flooded.drive(path, patch, kills=kills, after_epoch=note, at_end=answers), seen


@cache
def flood(path: Path, *, kills: bool) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        return drive(path / ("kills" if kills else "home"), patch, kills=kills)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flood")


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("name", ["tolerant", "valued"])
def test_after_a_flood_all_answers_are_the_exact_ones(folder: Path, name: str, kills: bool) -> None:
    """With kills the hub is opened again every few seconds, and every other job fails."""
    pushed, seen = flood(folder, kills=kills)
    truth, answers = true_answers(pushed), seen["answers"][name]
    assert len(answers) > 140
    assert len({key(row) for row in answers}) == len(answers)
    assert {key(row) for row in answers} == {
        place for place in truth if place[0] < max(key(row)[0] for row in answers) + 1
    }
    assert all((row["n"], row["total"]) == truth[key(row)] for row in answers)
    assert all((row["kept"], row["n_error"], row["total_error"]) == (1, 0, 0) for row in answers)


def test_it_waits_while_rows_are_dropped_and_is_done_soon_after(folder: Path) -> None:
    _, seen = flood(folder, kills=False)
    shed = [bool(shares.get("tolerant")) for shares in seen["shares"]]
    assert sum(shed) > 10
    waits = [waiting for waiting, is_shed in zip(seen["waiting"], shed, strict=True) if is_shed]
    assert waits == sorted(waits)
    assert seen["waiting"][-1] == 0
    assert seen["repairs"]["tolerant"]["repaired"] > 5
    assert 0 < seen["changes"][-1] < seen["changes"][1]
