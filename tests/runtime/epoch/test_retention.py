"""OPTIONS (retain '…'): the archive drops what is older, never what an operator still has to read."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, StoreError
from headrace.runtime.epoch.retention import EVERY, RetentionPass
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.epoch_log import EpochLog
from headrace.runtime.results.result_log import retained_entries
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.maintenance.retention_classes import PART
from tests.examples import examples
from tests.runtime.rig import faults_once_tidy
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
COUNT = "SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"


def minutes(hub: Hub, wanted: range) -> None:
    """One row a minute, each an epoch."""
    for minute in wanted:
        hub.push("s", [{"at": START + dt.timedelta(minutes=minute), "v": minute}])
        hub.loop.drain()


def archived(hub: Hub) -> tuple[int, int]:
    """First kept and next index of the archive list."""
    entries = hub.home.list_of(hub.home.latest(), "archive:s")
    return entries.start, entries.length


def prepared(path: Path) -> Hub:
    """A stream that keeps five minutes."""
    hub = open_hub(path, local=True)
    hub.execute(
        "CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push OPTIONS (retain '5 MINUTES') TIMESTAMP BY at"
    )
    return hub


@examples(5, shares_fixtures=True)
@given(
    passed=st.integers(9, 24),
    length=st.integers(1, 4),
    slide=st.integers(1, 3),
    gone=st.integers(0, 3),
)
def test_old_entries_go_and_a_late_query_answers_from_what_is_kept_as_one_that_was_first(
    tmp_path_factory: pytest.TempPathFactory, passed: int, length: int, slide: int, gone: int
) -> None:
    """Windows inside what is kept are the same rows, to the last; of others there is what is left in them."""
    text = (
        "SELECT window_start, window_end, v % 2 AS odd, COUNT(*) AS n, SUM(v) AS total, MIN(v) AS low"
        f" FROM s [RANGE {length} MINUTES SLIDE {slide} MINUTES] WHERE v % 5 <> {gone} GROUP BY v % 2"
    )
    with prepared(tmp_path_factory.mktemp("home")) as hub:
        hub.register(text, "first")
        minutes(hub, range(passed))
        kept_minutes, written = archived(hub)
        assert written == passed
        assert kept_minutes == passed - 6
        hub.register(text, "late")
        hub.loop.drain()
        horizon = START + dt.timedelta(minutes=kept_minutes)
        first, late = (hub.query(name).history().to_pylist() for name in ("first", "late"))
        inside = [row for row in first if row["window_start"] >= horizon]
        assert inside or length + slide > 3
        assert [row for row in late if row["window_start"] >= horizon] == inside
        for row in late:
            start, end = (
                (row[name] - START).total_seconds() // 60 for name in ("window_start", "window_end")
            )
            values = [
                v
                for v in range(max(kept_minutes, int(start)), int(end))
                if v % 5 != gone and v % 2 == row["odd"]
            ]
            assert (row["n"], row["total"], row["low"]) == (len(values), sum(values), min(values))


def test_a_paused_query_holds_back_what_it_has_not_seen(tmp_path: Path) -> None:
    """RESUME finds everything; then the archive catches up with its retention."""
    with prepared(tmp_path / "home") as hub:
        hub.register(COUNT, "q")
        minutes(hub, range(3))
        hub.execute("PAUSE QUERY q")
        minutes(hub, range(3, 20))
        assert archived(hub) == (3, 20)
        hub.execute("RESUME QUERY q")
        hub.loop.drain()
        assert hub.query("q").history().num_rows == 19
        minutes(hub, range(20, 21))
        assert archived(hub)[0] == 15


def counting(path: Path, *queries: str) -> Hub:
    """A stream that keeps five minutes, and queries over it by their statements."""
    hub = prepared(path)
    for query in queries:
        hub.execute(query)
    return hub


def tidied(hub: Hub) -> dict[str, int]:
    """Files by folder, after garbage was collected as if the grace had passed; `headrace check` finds nothing."""
    faults = faults_once_tidy(hub)  # the plan of a home that was only opened is in no manifest yet
    assert [fault for fault in faults if not fault.startswith("FAULT plans/")] == []
    folders = [folder for folder in hub.path.iterdir() if folder.is_dir()]
    return {folder.name: sum(file.is_file() for file in folder.rglob("*")) for folder in folders}


KEPT = f"CREATE QUERY kept OPTIONS (retain '5 MINUTES') AS {COUNT}"
WHOLE = f"CREATE QUERY whole AS {COUNT}"


def test_results_older_than_a_query_retains_go_and_those_of_others_stay(tmp_path: Path) -> None:
    """Forty windows: one query keeps five minutes (and what the check at every eighth epoch has not seen), one keeps all."""
    with counting(tmp_path / "home", KEPT, WHOLE) as hub:
        minutes(hub, range(41))
        assert hub.query("whole").history().num_rows == 40
        retained = hub.query("kept").history().num_rows
        assert 5 <= retained <= 5 + EVERY
        assert hub.query("kept").invoke().to_pylist() == hub.query("whole").invoke().to_pylist() == [{"n": 1}]
        listed = hub.home.list_of(hub.home.latest(), "results")
        older = {entry["name"] for _, entry in retained_entries(hub.home, hub.home.latest()) if PART in entry}
        # Of the others those of the tail; the last eight manifests keep more.
        assert len(older) <= tidied(hub)["results"] - retained <= len(older) + len(listed.tail) + 2 * EVERY
        assert sum(PART in entry for _, entry in retained_entries(hub.home, hub.home.latest())) <= 32 + EVERY
    with open_hub(tmp_path / "home", local=True) as hub:
        assert hub.query("whole").history().num_rows == 40
        hub.execute("DROP QUERY whole")
        minutes(hub, range(41, 60))
        files = tidied(hub)
        assert files["results"] <= 5 + 2 * EVERY
        results = hub.home.list_of(hub.home.latest(), "results")
        assert len(results) <= 5 + 2 * EVERY


@pytest.mark.parametrize("openings", [0, 1])
def test_a_home_that_is_opened_for_one_epoch_at_a_time_drops_and_joins_all_the_same(
    tmp_path: Path, openings: int
) -> None:
    """Openings have numbers too, so the epochs may have the odd ones alone."""
    with counting(tmp_path / "home", KEPT, WHOLE):
        pass
    for _ in range(openings):
        open_hub(tmp_path / "home", local=True).close()
    for minute in range(68):
        with open_hub(tmp_path / "home", local=True) as hub:
            minutes(hub, range(minute, minute + 1))
    with open_hub(tmp_path / "home", local=True) as hub:
        assert 5 <= hub.query("kept").history().num_rows <= 5 + EVERY
        assert hub.query("whole").history().num_rows == 67
        assert hub.home.ingest_log.length - hub.home.ingest_log.start <= 64 + EVERY
        facts = hub.home.latest().facts
        assert facts["merged results"][0] >= 64 == facts["joined archives"]["s"]
        assert faults_once_tidy(hub) == []


def test_a_retention_is_set_and_taken_away_while_the_query_goes_on(tmp_path: Path) -> None:
    """SET (retain …) counts from the next look on; 'ALL' keeps what is there and all that comes."""
    with counting(tmp_path / "home", WHOLE) as hub:
        minutes(hub, range(20))
        assert hub.query("whole").history().num_rows == 19
        hub.execute("ALTER QUERY whole SET (retain '5 MINUTES')")
        minutes(hub, range(20, 30))
        retained = hub.query("whole").history().num_rows
        assert 5 <= retained <= 5 + EVERY
        hub.execute("ALTER QUERY whole SET (retain 'all')")
        minutes(hub, range(30, 50))
        assert hub.query("whole").history().num_rows == retained + 20


def test_a_relation_still_answers_with_the_sum_of_the_changes_that_went(tmp_path: Path) -> None:
    """INVOKE of a relation is the same whether its query keeps five minutes of changes or all."""
    text = "SELECT v % 7 AS k, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY v % 7"
    with counting(
        tmp_path / "home",
        f"CREATE QUERY kept OPTIONS (retain '5 MINUTES') AS {text}",
        f"CREATE QUERY whole AS {text}",
    ) as hub:
        for low in range(0, 120, 40):
            minutes(hub, range(low, low + 40))
            assert hub.query("kept").invoke().to_pylist() == hub.query("whole").invoke().to_pylist()
        assert hub.query("kept").history().num_rows < hub.query("whole").history().num_rows // 2
        assert "sums" in hub.home.latest().facts
        before = tidied(hub)["results"]
    with open_hub(tmp_path / "home", local=True) as hub:
        assert hub.query("kept").invoke().to_pylist() == hub.query("whole").invoke().to_pylist()
        assert tidied(hub)["results"] == before


def test_a_query_over_a_query_holds_back_what_it_has_not_read(tmp_path: Path) -> None:
    """Paused for longer than its source retains, it still sees every result; a late one sees what is retained."""
    over = "SELECT SUM(n) AS total FROM kept [RANGE 1 MINUTE SLIDE 1 MINUTE]"
    with counting(tmp_path / "home", KEPT, f"CREATE QUERY over AS {over}") as hub:
        minutes(hub, range(5))
        hub.execute("PAUSE QUERY over")
        minutes(hub, range(5, 40))
        assert hub.query("kept").history().num_rows == 39 - 4
        hub.execute("RESUME QUERY over")
        hub.loop.drain()
        minutes(hub, range(40, 60))
        assert sum(row["total"] for row in hub.query("over").history().to_pylist()) == 59
        retained = hub.query("kept").history().num_rows
        assert retained <= 6 + 2 * EVERY
        hub.execute(f"CREATE QUERY late AS {over}")
        hub.loop.drain()
        assert 5 <= hub.query("late").history().num_rows <= retained


def test_a_sink_that_is_behind_holds_back_what_it_has_not_delivered(tmp_path: Path) -> None:
    """Its receiver fails; nothing of what it missed has gone when it works again."""

    def fails(epoch: int, rows: pa.Table) -> None:
        raise OSError("not now")

    got: list[int] = []

    def live() -> None:
        with counting(tmp_path / "home", KEPT) as hub:
            hub.sink("kept", fails, name="mine")
            minutes(hub, range(40))
            assert hub.query("kept").history().num_rows == 39

    with pytest.raises(HeadraceError, match="the sink of query 'kept' failed: not now"):
        live()
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.sink("kept", lambda _, rows: got.extend(row["n"] for row in rows.to_pylist()), name="mine")
    assert got == [1] * 39


def test_versions_of_a_relation_go_when_no_row_that_is_kept_met_them(tmp_path: Path) -> None:
    """Twelve refreshes, each met by some rows: those go that only expired rows had met."""
    source = tmp_path / "names.json"
    with prepared(tmp_path / "home") as hub:
        for advance in range(12):
            source.write_text(f'{{"id": 1, "name": "{advance}"}}\n')
            if advance:
                hub.execute("REFRESH RELATION names")
            else:
                hub.execute(
                    f"CREATE RELATION names (id BIGINT, name STRING) USING json OPTIONS (path '{source}')"
                )
            minutes(hub, range(2 * advance, 2 * advance + 2))
        tidied(hub)  # old manifests go, then what only they needed
        assert (
            3 <= tidied(hub)["relations"] <= 8
        )  # what five minutes of rows met, and the last eight manifests
        minutes(hub, range(24, 40))
        tidied(hub)
        assert tidied(hub)["relations"] == 1


def test_the_ingest_log_is_summed_up_and_files_are_not_read_again(tmp_path: Path) -> None:
    """Two hundred files, each an epoch; the home is opened again and again and reads each once."""
    folder = tmp_path / "in"
    folder.mkdir()
    seen = 0
    for advance in range(4):
        with open_hub(tmp_path / "home", local=True) as hub:
            if not advance:
                hub.execute(
                    f"CREATE STREAM s (v BIGINT, at TIMESTAMP) USING json OPTIONS (path '{folder}', order 'name',"
                    " retain '5 MINUTES', maxFilesPerTrigger '1') TIMESTAMP BY at"
                )
                hub.execute("CREATE QUERY q AS SELECT COUNT(*) AS n FROM s")
            for number in range(seen, seen + 50):
                at = (START + dt.timedelta(minutes=number)).isoformat()
                (folder / f"{number:04}.json").write_text(json.dumps({"v": number, "at": at}) + "\n")
                hub.loop.step()  # each is listed, and logged, by itself
            seen += 50
            hub.loop.drain()
            assert hub.query("q").invoke().to_pylist() == [{"n": seen}]
            tidied(hub)
    with open_hub(tmp_path / "home", local=True) as hub:
        assert tidied(hub)["ingest"] <= 2 * 64
        assert hub.home.ingest_log.start > 0
        assert hub.loop.drain() <= 1
        assert hub.query("q").invoke().to_pylist() == [{"n": 200}]


def test_a_home_does_not_grow_with_its_age(tmp_path: Path) -> None:
    """It has as many files, and as many bytes in them, in its second 240 epochs as in its first, at most."""
    text = "SELECT v % 3 AS k, COUNT(*) AS n FROM s [RANGE 2 MINUTES] GROUP BY v % 3"
    relation = f"CREATE QUERY groups OPTIONS (retain '5 MINUTES') AS {text}"
    with counting(tmp_path / "home", KEPT, relation) as hub:
        sizes = []
        for until in range(30, 481, 30):
            minutes(hub, range(until - 30, until))
            files = tidied(hub)
            size = sum(
                path.stat().st_size
                for path in hub.path.rglob("*")
                if path.is_file() and not path.name.startswith("epochs")
            )
            sizes.append((sum(files.values()), size))
        for what in (0, 1):
            young, old = (max(size[what] for size in part) for part in (sizes[:8], sizes[8:]))
            assert old <= 1.15 * young, sizes


def killed_while_forgetting(path: Path, disk: FaultyDisk, use: Callable[[FaultyDisk | None], None]) -> None:
    """An epoch that expires rows, then a collection, on a disk that fails."""
    with suppress(SimulatedCrash), open_hub(path, local=True) as hub:
        engine = hub.loop.engine
        use(disk)
        for store in (hub.home.store, engine.home.store):
            store._disk = disk
        hub.push("s", [{"at": START + dt.timedelta(minutes=100), "v": 100}])
        while hub.loop.step() is not None:
            pass
        engine.housekeeping.grace = -1
        engine.collect()
    use(None)


def test_killed_while_it_forgets_a_home_has_what_it_retains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of an epoch that expires rows and of the collection after it is a place to die at."""

    def use(faulty: FaultyDisk | None) -> None:
        monkeypatch.setattr(filesystem, "Disk", (lambda: faulty) if faulty is not None else Disk)

    home, saved = tmp_path / "home", tmp_path / "saved"
    relation = "CREATE QUERY groups OPTIONS (retain '5 MINUTES') AS SELECT v % 2 AS k, COUNT(*) AS n FROM s GROUP BY v % 2"
    with counting(saved, KEPT, relation) as hub:
        pushed = list(range(100))
        minutes(hub, range(100))
        while hub.home.latest().epoch % EVERY != EVERY - 2:  # the next opening is an epoch too
            minutes(hub, range(99, 100))
            pushed.append(99)
        tidied(hub)
    shutil.copytree(saved, home)
    trace = FaultyDisk()
    killed_while_forgetting(home, trace, use)
    points = list(kill_points(trace.trace))
    assert len(points) > 20
    for number, fault in enumerate(points[:: max(1, len(points) // 40)]):
        shutil.rmtree(home)
        shutil.copytree(saved, home)
        killed_while_forgetting(home, FaultyDisk(fault=fault), use)
        with open_hub(home, local=True) as hub:
            hub.loop.drain()
            there = [*pushed, 100][: hub.status()["streams"]["s"]["rows"]]
            assert len(there) in (len(pushed), len(pushed) + 1), (number, fault)
            expected = [{"k": k, "n": sum(v % 2 == k for v in there)} for k in (0, 1)]
            assert hub.query("groups").invoke().to_pylist() == expected, (number, fault)
            assert hub.query("kept").history().num_rows >= 5
            tidied(hub)


def test_the_log_of_epochs_is_two_files_of_bounded_size(tmp_path: Path) -> None:
    """A full log takes the place of the one before it; the newest lines are in the two, whole and in order."""
    log = EpochLog(tmp_path, largest=1000)
    for number in range(200):
        log.write({"epoch": number})
    log.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    lines = [json.loads(line)["epoch"] for file in files for line in file.read_text().splitlines()]
    assert lines == list(range(200 - len(lines), 200))
    assert all(file.stat().st_size < 1100 for file in files)


RELATION = "CREATE QUERY rows OPTIONS (retain '3 MINUTES') AS SELECT v FROM s [RANGE UNBOUNDED]"


def test_a_pass_reads_what_has_expired_since_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes of a relation wait until there are as many as net rows; those that wait are not read again."""
    read: list[int] = []
    is_needed = RetentionPass._is_needed

    def counted(self: RetentionPass, *args: Any) -> bool:
        read[-1] += 1
        return is_needed(self, *args)

    monkeypatch.setattr(RetentionPass, "_is_needed", counted)
    with prepared(tmp_path / "home") as hub:
        hub.execute(RELATION)
        for minute in range(0, 320, EVERY):
            read.append(0)
            minutes(hub, range(minute, minute + EVERY))
        net_rows = hub.home.latest().facts["sums"]
        assert sum(rows for _, rows, _ in net_rows.values()) >= 128
        assert max(read[4:]) <= EVERY + 2, read
        assert hub.query("rows").invoke().num_rows == 320


def test_what_a_failed_epoch_emitted_is_not_taken_for_what_its_repetition_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time leaps, so that results expire in the epoch that emits them; its files are others when it runs again."""
    with prepared(tmp_path / "home") as hub:
        hub.execute(
            "CREATE QUERY n OPTIONS (retain '3 MINUTES') AS SELECT v, COUNT(*) AS n FROM s [RANGE 2 MINUTES] WHERE v <> 1000 GROUP BY v"
        )
        engine, minute = hub.loop.engine, 0
        while engine.published.epoch % EVERY != EVERY - 1:
            minutes(hub, range(minute, minute + 1))
            minute += 1
        hub.push("s", [{"at": START + dt.timedelta(minutes=1000), "v": 1000}])
        with monkeypatch.context() as broken:
            broken.setattr(hub.home.manifests, "publish", refuse)
            with pytest.raises(StoreError, match="no room"):
                hub.loop.step()
        engine.housekeeping.grace = -1
        engine.collect()
        minutes(hub, range(1001, 1001 + 12 * EVERY))
        assert hub.home.latest().facts["sums"]
        assert sorted(row["v"] for row in hub.query("n").invoke().to_pylist()) == [1094, 1095, 1096]
        assert faults_once_tidy(hub) == []


def refuse(*_: Any) -> None:
    raise StoreError("no room")


def test_results_wait_for_a_paused_reader_also_when_a_sink_has_them(tmp_path: Path) -> None:
    delivered: list[int] = []
    with prepared(tmp_path / "home") as hub:
        hub.execute(
            f"CREATE QUERY counts OPTIONS (retain '2 MINUTES') AS {COUNT};"
            "CREATE QUERY over AS SELECT SUM(n) AS n FROM counts [RANGE 10 MINUTES SLIDE 10 MINUTES]; PAUSE QUERY over"
        )
        hub.sink("counts", lambda _, table: delivered.append(table.num_rows), name="all")
        for minute in range(60):
            minutes(hub, range(minute, minute + 1))
            wait_until(lambda: sum(delivered) >= minute - 1)  # noqa: B023
        hub.execute("RESUME QUERY over")
        hub.catch_up()
        assert [row["n"] for row in hub.query("over").history().to_pylist()] == [10] * 5


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
