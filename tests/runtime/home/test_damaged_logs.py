"""A statement that an older version has put into the query log twice: the home opens, and `check` reports it.

Until appends had ids, a driver that got "already published" for its own append put the same entries in again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog import folded_log
from headrace.errors import CorruptStore, UserError
from headrace.runtime.home.home import Home
from headrace.runtime.hub.check import check
from headrace.runtime.invoke.home_reader import Reader
from headrace.store.files.envelope import seal
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.record_log import QUERY_LOG, RecordLog
from tests.runtime.rig import QUERIES, Rig, answers, cut, expected, faults, made_rows

FILES = cut(made_rows(7, 24), 8, 16)
TWO = {"a": QUERIES["tumble"], "b": QUERIES["tumble"]}
DAMAGE = {
    "drop": [{"do": "drop", "kind": "query", "name": "A"}],
    "rename": [{"do": "rename", "name": "a", "to": "c"}],
    "rename and drop": [
        {"do": "rename", "name": "a", "to": "c"},
        {"do": "drop", "kind": "query", "name": "c"},
    ],
    "pause, then drop": [{"do": "pause", "name": "a"}, {"do": "drop", "kind": "query", "name": "a"}],
}
"""What was appended twice, each time as one chunk."""


def append_as_before(home: Path, records: Sequence[Any]) -> None:
    """A chunk as versions without ids wrote it."""
    store = LocalStore(home)
    last = list(RecordLog(store, QUERY_LOG).chunks())[-1]
    body = {"number": last.number + 1, "first": last.end, "records": list(records)}
    store.put_if_absent(f"{QUERY_LOG}/{last.number + 1:012d}.json", seal("log chunk", 1, body))


@pytest.mark.parametrize("damage", DAMAGE)
def test_entries_that_are_there_twice_count_once_and_the_home_opens(damage: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.drop(*FILES[:2])
    with rig.hub(2, TWO) as hub:
        hub.catch_up()
    for _ in range(2):
        append_as_before(rig.home, DAMAGE[damage])
    left = {"b", "c"} if damage == "rename" else {"b"}
    assert {query.definition.name for query in Reader.at(rig.home).catalog.queries.values()} == left
    assert faults(rig.home) == []
    assert any(re.match(f"NOTE {QUERY_LOG}/: . of its entries", line) for line in check(rig.home).lines)
    with rig.hub(2) as hub:
        rig.drop(FILES[2])
        answered = answers(hub, hub.run_once())
        assert set(answered) == left
        for name in left:
            assert answered[name] == expected(hub.operator_and_query(name)[1], FILES)
        hub.execute(f"CREATE QUERY a AS {TWO['a']}; DROP QUERY a;")
        with pytest.raises(UserError, match="there is no query 'a'"):
            hub.execute("DROP QUERY a")
    assert faults(rig.home) == []


def test_an_append_that_is_there_twice_under_one_id_is_folded_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(2, TWO) as hub:
        hub.log({"do": "drop", "kind": "query", "name": "a"}, {"do": "rename", "name": "b", "to": "a"})
    chunk = list(RecordLog(LocalStore(rig.home), QUERY_LOG).chunks())[-1]
    # What no version does: the fold alone would take the second drop for one of the renamed query.
    RecordLog(LocalStore(rig.home), QUERY_LOG).append(chunk.records, chunk.append)
    home = Home.at(rig.home)
    assert [query.definition.name for query in home.catalog.queries.values()] == ["a"]
    assert home.catalog.position == chunk.end + 2
    assert home.catalog.ignored_entries == (chunk.end, chunk.end + 1)
    with rig.hub(2) as hub:
        assert hub.catalog.query("a") is not None
        hub.execute("DROP QUERY a")
        assert hub.catalog.query("a") is None


@pytest.mark.parametrize("others", [1, 2, 3])
def test_ids_of_the_newest_appends_are_compared_however_much_is_read_at_once(
    others: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folded_log, "_COMPARED", 3)
    rig = Rig(tmp_path)
    with rig.hub(2, TWO):
        pass
    one_by_one = Home.at(rig.home)
    log = RecordLog(LocalStore(rig.home), QUERY_LOG)
    first = log.end
    drop, rename = {"do": "drop", "kind": "query", "name": "a"}, {"do": "rename", "name": "b", "to": "a"}
    for entries, append in (
        ([drop, rename], "repeated"),
        *(
            ([{"do": "put_query", "query": {"name": f"q{n}", "text": TWO["a"]}}], f"{n}")
            for n in range(others)
        ),
        ([drop, rename], "repeated"),
    ):
        log.append(entries, append)
        one_by_one.refresh()
    at_once = Home.at(rig.home)
    assert at_once.catalog.queries == one_by_one.catalog.queries
    assert at_once.catalog.ignored_entries == one_by_one.catalog.ignored_entries
    assert (at_once.catalog.query("a") is not None) == (others < 3)
    assert at_once.catalog.position == log.end == first + 4 + others
    assert list(at_once.folded.appends) == list(one_by_one.folded.appends)
    assert len(at_once.folded.appends) == 3


def test_check_names_the_query_that_keeps_a_home_from_opening(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(2, TWO):
        pass
    append_as_before(rig.home, [{"do": "put_query", "query": {"name": "lost", "text": "SELECT v FROM gone"}}])
    (fault,) = faults(rig.home)
    assert fault.startswith("FAULT querylog/, query lost: it cannot be planned: ")
    assert "gone" in fault
    append_as_before(rig.home, [{"do": "dance"}])
    (fault,) = faults(rig.home)
    assert fault.startswith(
        "FAULT querylog/: it cannot be folded: entry 5 of the query log is of the unknown kind 'dance'"
    )


def test_check_opens_every_plan(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.drop(FILES[0])
    with rig.hub(2, TWO) as hub:
        hub.catch_up()
        plan = tmp_path / "home" / hub.home.latest().plan
    assert check(rig.home).faults == 0
    written = plan.read_bytes()
    plan.write_bytes(written[:-40])
    assert any(
        line.startswith(f"FAULT plans/{plan.name}: the plan cannot be read") for line in faults(rig.home)
    )


@pytest.mark.parametrize(
    "lost", ["querylog/*2.json", "querylog/*", "ingest/*1.json", "ingest/*", "manifests/*"]
)
def test_a_home_without_the_end_of_a_log_or_its_manifests_is_not_opened(lost: str, tmp_path: Path) -> None:
    """Its queries would be dropped, with their state, and rows that are pushed then be taken for read."""
    rig, saved = Rig(tmp_path), tmp_path / "saved"
    with rig.hub(2, TWO) as hub:
        hub.execute(f"CREATE QUERY c AS {QUERIES['now']}")
        for rows in FILES:
            rig.drop(rows)
            hub.catch_up()
        answered = answers(hub)
    shutil.copytree(rig.home, saved)
    for file in rig.home.glob(lost):
        file.unlink()
    there = sorted(file for file in rig.home.rglob("*") if file.is_file())
    folder = lost.partition("/")[0]
    with pytest.raises(CorruptStore, match=f"lacks files: {folder}/"), rig.hub(2):
        pass
    assert sorted(file for file in rig.home.rglob("*") if file.is_file()) == there
    assert any(fault.startswith(f"FAULT {folder}/") for fault in faults(rig.home))
    shutil.copytree(saved / folder, rig.home / folder, dirs_exist_ok=True)
    with rig.hub(2) as hub:
        assert answers(hub) == answered


@pytest.mark.parametrize("lost", [2, 3])
def test_a_home_without_its_newest_manifests_is_not_opened(lost: int, tmp_path: Path) -> None:
    """Its epochs would run again under positions that clients have acknowledged: these would not get the next results."""
    rig, saved = Rig(tmp_path), tmp_path / "saved"
    with rig.hub(2, TWO) as hub:
        client = hub.query("a").client("me")
        for rows in FILES:
            rig.drop(rows)
            hub.catch_up()
        client.skip()
        answered = answers(hub)
    assert faults(rig.home) == []
    shutil.copytree(rig.home, saved)
    manifests = sorted((rig.home / "manifests").iterdir())
    for file in manifests[-lost:]:
        file.unlink()
    there = sorted(file for file in rig.home.rglob("*") if file.is_file())
    with pytest.raises(CorruptStore, match="lacks files: manifests/ ends with epoch"), rig.hub(2):
        pass
    assert sorted(file for file in rig.home.rglob("*") if file.is_file()) == there
    assert any(fault.startswith("FAULT manifests/: ends with epoch") for fault in faults(rig.home))
    shutil.copytree(saved / "manifests", rig.home / "manifests", dirs_exist_ok=True)
    with rig.hub(2) as hub:
        assert answers(hub) == answered


def test_a_position_of_a_client_behind_all_results_is_a_fault_and_the_home_opens(tmp_path: Path) -> None:
    """The newest manifest is missing, or a program acknowledged what it has not got."""
    rig = Rig(tmp_path)
    with rig.hub(2, TWO) as hub:
        rig.drop(FILES[0])
        hub.catch_up()
        client = hub.query("a").client("me")
        client.skip()
        end = client.position
        for beyond in (end + 1, -1):
            with pytest.raises(UserError, match=f"the position {beyond} is beyond what is committed"):
                client.acknowledge_to(beyond)
        assert client.position == end
        client.acknowledge_to(end)
        client._cursor.write(end + 7)
    (fault,) = (line for line in faults(rig.home) if line.startswith("FAULT"))
    assert fault.startswith("FAULT sinks/")
    assert fault.endswith(f"{end + 7}: is a position behind all {end} entries of results")
    with rig.hub(2) as hub:
        assert answers(hub)
