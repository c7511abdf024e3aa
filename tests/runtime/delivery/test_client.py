"""Clients that connect and leave: nothing is lost or given twice that was acknowledged, whichever process died meanwhile."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import UserError
from headrace.runtime.delivery.client import Client, connect
from headrace.runtime.delivery.cursor import Cursor
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import LocalStore
from tests.cli.building import SCRIPT, bid, headrace, put
from tests.runtime.rig import Rig, cut, made_rows
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
TEXT = "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE TUMBLING 2 SECONDS] GROUP BY k"
FILES = cut(made_rows(31, 60), *range(10, 60, 10))


def rows_of(*tables) -> list:
    return [row for table in tables for row in table.to_pylist()]


def everything(client: Client) -> list:
    """Fetch and acknowledge all there is."""
    fetched = []
    while (delivery := client.fetch()) is not None:
        fetched += rows_of(delivery.rows)
        client.acknowledge(delivery)
    return fetched


def test_a_client_that_comes_now_and_then_gets_every_row_once_in_order(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    seen = []
    for number, file in enumerate(FILES):
        rig.drop(file)
        with rig.hub(1 + number % 3, {"q": TEXT, "other": "SELECT x FROM s"}) as hub:
            hub.catch_up()
            history = rows_of(hub.query("q").history())
        if number % 2:  # it comes seldom, and while no hub runs
            seen += everything(connect(rig.home, "q", "phone"))
            assert seen == history
    assert seen


def test_rows_come_again_until_they_are_acknowledged_and_clients_do_not_disturb_each_other(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    rig.drop(*FILES)
    with rig.hub(2, {"q": TEXT}) as hub:
        hub.catch_up()
        one, two = hub.query("q").client("one"), hub.query("q").client("two")
        first = one.fetch()
        assert first is not None
        assert one.fetch() == first  # not acknowledged
        second = one.fetch(after=first)
        assert second is not None
        assert second.epoch > first.epoch
        one.acknowledge(second)  # acknowledges what was delivered before it too
        one.acknowledge(first)  # and is not taken back
        rest = everything(one)
        assert rows_of(first.rows, second.rows) + rest == rows_of(hub.query("q").history())
        assert everything(two) == rows_of(hub.query("q").history())
        two.skip()
        assert two.fetch() is None


def test_a_client_stays_with_its_query_through_alter(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    rig.drop(*FILES[:3])
    with rig.hub(2, {"q": TEXT}) as hub:
        hub.catch_up()
        client = hub.query("q").client("c")
        client.skip()
        hub.execute("ALTER QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 2 SECONDS]")
        rig.drop(*FILES[3:])
        hub.catch_up()
        fetched = everything(client)
        assert fetched == rows_of(
            hub.query("q").history()
        )  # the new text answers over the archive, then live
        assert all(set(row) == {"n"} for row in fetched)


def test_a_client_stays_with_its_query_through_rename(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    rig.drop(*FILES[:3])
    with rig.hub(2, {"q": TEXT}) as hub:
        for name in ("q-a", "r-a"):
            hub.register(TEXT, name)
        hub.catch_up()
        first = hub.query("q").client("c/1").fetch()
        assert first is not None
        hub.query("q").client("c/1").acknowledge(first)
        hub.query("q-a").client("b").acknowledge(first)
        hub.query("q").client("seldom").acknowledge(first)
        hub.query("q").client("both").acknowledge(first)
        Cursor(hub.home.store, "client-r-both").write(0)  # of a query r that was dropped
        hub.execute("ALTER QUERY q RENAME TO r")
        rig.drop(*FILES[3:])
        hub.catch_up()
        for name in ("c/1", "seldom"):
            fetched = everything(hub.query("r").client(name))
            assert rows_of(first.rows) + fetched == rows_of(hub.query("r").history()), name
        assert everything(hub.query("r-a").client("b")) == rows_of(hub.query("r-a").history()), (
            "of q-a's client"
        )
        assert hub.query("r").client("new").position == 0
        assert hub.query("r").client("both").position == 0, "it has a position under that name"
        hub.execute("ALTER QUERY r RENAME TO R")
        assert hub.query("R").client("c/1").fetch() is None


def hours(home: Path, wanted: range) -> list:
    """A row an hour, each an epoch, in a process that ends; what the query without retention has emitted so far."""
    with hr.open(home, local=True) as hub:
        for hour in wanted:
            hub.push("s", [{"at": START + dt.timedelta(hours=hour), "x": hour}])
            hub.catch_up()
        return rows_of(hub.query("whole").history())


def test_a_client_that_was_away_for_days_resumes_within_retention_and_beyond_it_learns_that_it_missed_some(
    tmp_path: Path,
) -> None:
    home, text = tmp_path / "home", "SELECT SUM(x) AS total FROM s [RANGE TUMBLING 1 HOUR]"
    with hr.open(home, local=True) as hub:
        hub.execute("CREATE STREAM s (x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.execute(f"CREATE QUERY kept OPTIONS (retain '3 DAYS') AS {text}; CREATE QUERY whole AS {text}")
    whole = hours(home, range(10))
    client = connect(home, "kept", "phone")
    assert everything(client) == whole
    seen = len(whole)
    whole = hours(home, range(10, 70))  # two and a half days; no client fetches, and no process stays
    client = connect(home, "kept", "phone")
    assert [pending.missed for pending in client.pending()] == [0] * (len(whole) - seen)
    assert everything(client) == whole[seen:]
    seen = len(whole)
    whole = hours(home, range(70, 300))  # nine days
    rest = [
        (pending.missed, row)
        for pending in connect(home, "kept", "phone").pending()
        for row in rows_of(pending.rows)
    ]
    assert rest[0][0] > 0
    assert {missed for missed, _ in rest[1:]} == {0}
    rows = [row for _, row in rest]
    assert 72 <= len(rows) < len(whole) - seen
    assert rows == whole[-len(rows) :]


def test_mistakes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no home in"):
        hr.connect(tmp_path / "nowhere", "q", "me")
    rig = Rig(tmp_path)
    with rig.hub(1, {"question": TEXT}):
        pass
    with pytest.raises(UserError, match="question"):
        hr.connect(rig.home, "questoin", "me")
    with pytest.raises(UserError, match="a client needs a name"):
        hr.connect(rig.home, "question", "")


def test_killed_at_any_call_of_an_acknowledgement_nothing_acknowledged_comes_again_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    rig.drop(*FILES)
    with rig.hub(2, {"q": TEXT}) as hub:
        hub.catch_up()
        whole = rows_of(hub.query("q").history())

    def acknowledge_on(name: str, disk: Callable[[], Disk]) -> tuple[list, list]:
        """Rows acknowledged before, and rows whose acknowledgement is under way when the disk fails."""
        client = connect(rig.home, "q", name)
        first = client.fetch()
        assert first is not None
        client.acknowledge(first)
        second = client.fetch()
        assert second is not None
        monkeypatch.setattr(filesystem, "Disk", disk)
        with suppress(SimulatedCrash):
            connect(rig.home, "q", name).acknowledge(second)
        monkeypatch.setattr(filesystem, "Disk", Disk)
        return rows_of(first.rows), rows_of(second.rows)

    watched = FaultyDisk()
    acknowledge_on("watched", lambda: watched)
    points = list(kill_points(watched.trace))
    assert len(points) > 4
    for number, fault in enumerate(points):
        name = f"client {number}"
        done, doubtful = acknowledge_on(name, lambda fault=fault: FaultyDisk(fault=fault))
        rest = everything(connect(rig.home, "q", name))
        assert done + rest == whole or done + doubtful + rest == whole


def _acknowledge_for_ever(home: Path, ready) -> None:
    client = connect(home, "q", "victim")
    while (delivery := client.fetch()) is not None:
        with (home.parent / "taken").open("a") as file:  # what it did with the rows, before it acknowledges
            file.write(f"{delivery.position} {delivery.rows.num_rows}\n")
            file.flush()
            os.fsync(file.fileno())
        client.acknowledge(delivery)
        ready.set()


def test_a_client_killed_by_the_system_has_dealt_with_every_delivery(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    rig.drop(*cut(made_rows(32, 120), *range(4, 120, 4)))
    with rig.hub(2, {"q": TEXT}) as hub:
        hub.catch_up()
        client = hub.query("q").client("whole")
        whole = [(pending.position, pending.rows.num_rows) for pending in client.pending()]
    context = multiprocessing.get_context("spawn")
    for _ in range(2):
        ready = context.Event()
        victim = context.Process(target=_acknowledge_for_ever, args=(rig.home, ready))
        victim.start()
        ready.wait(30)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
    _acknowledge_for_ever(rig.home, context.Event())
    lines = (tmp_path / "taken").read_text().splitlines()
    taken = [tuple(map(int, line.split())) for line in lines]
    assert sorted(set(taken)) == whole  # its position shows a client which delivery came twice
    assert taken == sorted(taken)


def test_the_command_shows_what_is_new_for_a_client(tmp_path: Path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102), bid(140, 3, 103))
    home = tmp_path / "home"
    with hr.open(home, local=True) as hub:
        hub.execute(SCRIPT.format(folder=tmp_path))
        hub.catch_up()
    first = headrace("fetch", "dear", "--home", home, "--keep")
    assert first.stdout == "n,auction,top\n1,1,101.0\n1,2,102.0\n"
    assert headrace("fetch", "dear", "--home", home).stdout == first.stdout
    again = headrace("fetch", "dear", "--home", home)
    assert (again.stdout, again.returncode) == ("", 0)
    assert "nothing new for headrace" in again.stderr
    assert headrace("fetch", "dear", "--home", home, "--client", "phone").stdout == first.stdout
    assert headrace("fetch", "cheap", "--home", home).returncode == 2


def test_an_older_acknowledgement_changes_nothing_on_disk(tmp_path: Path) -> None:
    """It writes no file for its position, which the next process could take for the newest, and removes none."""
    cursor = Cursor(LocalStore(tmp_path), "client-q-c")
    cursor.write(7)
    cursor.write(12)
    files = list(tmp_path.rglob("*"))
    for older in (7, 11, 12):
        cursor.write(older)
        assert list(tmp_path.rglob("*")) == files
        assert cursor.read() == 12
