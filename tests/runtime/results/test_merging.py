"""Merged runs of results: whatever reads results reads the same rows, at the same positions, in far fewer files."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import StoreError
from headrace.runtime.home import merged_runs
from headrace.runtime.home.run_cache import _cache
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.results import merged_file, merging, result_log
from headrace.server.paging import page_of_results
from headrace.store.files.container import Container
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs import radix_list
from headrace.store.maintenance.retention_classes import PART
from tests.examples import examples
from tests.runtime.epoch.work import disk_calls
from tests.runtime.rig import faults_once_tidy

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
STREAM = (
    "CREATE STREAM s (at TIMESTAMP, k STRING, v BIGINT, y DOUBLE) USING push"
    " TIMESTAMP BY at SLACK INTERVAL 2 MINUTES;"
)
KINDS = {
    "windows": "AS SELECT k, COUNT(*) AS n, MAX(y) AS top FROM s [RANGE 2 MINUTES SLIDE 1 MINUTE] GROUP BY k",
    "rows": "AS SELECT k, v, y FROM s WHERE v % 3 <> 1",
    "now": "AS SELECT k, COUNT(*) AS n FROM s [RANGE 3 MINUTES] GROUP BY k",
    "best": "AS SELECT k, SUM(v) AS total FROM s [RANGE 3 MINUTES SLIDE 1 MINUTE] GROUP BY k ORDER BY total DESC LIMIT 2",
    "mended": "AS SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] WITH REVISIONS",
    "brief": "OPTIONS (retain '6 MINUTES') AS SELECT k, v FROM s",
    "recent": "OPTIONS (retain '5 MINUTES') AS SELECT k, COUNT(*) AS n FROM s [RANGE 2 MINUTES] GROUP BY k",
    "above": "AS SELECT SUM(n) AS n FROM windows [RANGE 4 MINUTES SLIDE 2 MINUTES]",
}
"""Windows, rows, changes, orders, revisions, two retentions, and a query over another one's results."""
LATE = {
    "later": "AS SELECT k, v FROM rows WHERE v > 2",
    "over": "AS SELECT MAX(n) AS n FROM windows [RANGE 3 MINUTES SLIDE 3 MINUTES]",
}
"""Queries that a backfill gives the results of others, from the first on."""


@pytest.fixture(autouse=True)
def four_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four entries are merged into one, and sixteen, so that few epochs suffice."""
    monkeypatch.setattr(radix_list, "FANOUT", 4)


def script(kinds: dict[str, str]) -> str:
    return "".join(f"CREATE QUERY {name} {text};" for name, text in kinds.items())


def push(hub: Hub, rows: list[tuple[int, int]]) -> None:
    """Rows at minutes, each with a value from which the others follow: NULL, NaN and ties among them."""
    hub.push(
        "s",
        [
            {
                "at": START + dt.timedelta(minutes=minute),
                "k": [None, "a", "", "b"][value % 4],
                "v": value,
                "y": [None, float("nan"), -0.0, 0.0, value / 4][value % 5],
            }
            for minute, value in rows
        ],
    )
    hub.loop.drain()


def exact(table: pa.Table) -> str:
    """A table as text in which NaN equals NaN, and -0.0 does not equal 0.0."""
    return repr((table.column_names, table.to_pylist()))


def entries_of(hub: Hub, name: str, start: int) -> list[Any]:
    """What a follower at a position gets: epochs, positions after them, rows in order with system columns."""
    operator, _ = hub.operator_and_query(name)
    manifest = hub.home.latest()
    return [
        (part.epoch, part.position, exact(part.table))
        for part in result_log.epochs_of(hub.home, manifest, operator.id, start)
    ]


def pages(hub: Hub, name: str) -> list[str]:
    seen, after = [], None
    while not seen or seen[-1][0]:
        page = page_of_results(hub, name, None, after, 5)
        seen.append((page.rows.num_rows, exact(page.rows), page.next))
        after = page.next
    return [repr(page) for page in seen]


def seen_of(hub: Hub, name: str, starts: list[int]) -> dict[str, Any]:
    """All that readers of a query's results see."""
    handle = hub.query(name)
    at = START + dt.timedelta(minutes=5)
    manifest = hub.home.latest()
    operator, _ = hub.operator_and_query(name)
    missed = result_log.missed_since(hub.home, manifest, operator.id, 0)
    return {
        "history": exact(handle.history()),
        "since": exact(handle.history(since=at)),
        "followed": [entries_of(hub, name, start) for start in starts],
        "pages": pages(hub, name),
        "answer": exact(handle.invoke()),
        "as of": exact(handle.as_of(at)) if not missed else "",
        "counts": repr(handle.timeline(7)),
        "missed": missed,
    }


def number_of(hub: Hub) -> int:
    return hub.home.list_of(hub.home.latest(), "results").length


def is_merged(hub: Hub) -> Iterator[bool]:
    entries = result_log.retained_entries(hub.home, hub.home.latest())
    return (PART in entry for _, entry in entries)


steps = st.lists(
    st.one_of(
        st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 9)), min_size=1, max_size=3),
        st.sampled_from(["restart", "collect", "cold", *KINDS, *LATE]),
    ),
    min_size=24,
    max_size=60,
)


def forget() -> None:
    """As a new process: nothing is in memory."""
    for cache in (_cache, merged_runs._parts, merged_runs._all_parts, merged_runs._sections):
        cache.clear()


@examples(4, shares_fixtures=True)
@given(steps=steps)
def test_all_readers_see_what_they_see_in_a_home_whose_runs_are_not_merged(
    steps: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Queries come, are altered, paused and dropped, and the home is opened again, in both homes."""
    folder = tmp_path_factory.mktemp("homes")
    both = []
    for name in ("merged", "plain"):
        with pytest.MonkeyPatch.context() as patched:
            if name == "plain":
                patched.setattr(merging.Merging, "look", lambda *_, **__: None)
            both.append(outcome(folder / name, steps))
    (merged, has_merged), (plain, has_none) = both
    assert merged[0] == plain[0]
    for name, seen in plain[1].items():
        for what, value in seen.items():
            assert merged[1][name][what] == value, (name, what)
    assert has_merged
    assert not has_none


def outcome(path: Path, steps: list[Any]) -> tuple[Any, bool]:
    """What readers see after these steps, and whether runs were merged."""
    minute, there = 2, dict(KINDS)
    with ExitStack() as opened:
        hub = opened.enter_context(open_hub(path, local=True))
        hub.execute(STREAM + script(KINDS))
        for number in range(20):
            push(hub, [(number // 2, number)])
        minute += 10
        for step in steps:
            if step == "restart":
                opened.close()
                hub = opened.enter_context(open_hub(path, local=True))
            elif step == "collect":
                hub.loop.engine.housekeeping.readers = -1
                hub.loop.engine.housekeeping.collect_retired()
            elif step == "cold":
                forget()
            elif isinstance(step, list):
                minute += 1
                push(hub, [(max(0, minute + behind), value) for behind, value in step])
            elif (
                step not in there
                and (step != "over" or "windows" in there)
                and (step != "later" or "rows" in there)
            ):
                there[step] = {**KINDS, **LATE}[step]
                hub.execute(script({step: there[step]}))
            elif step in there and step in ("best", "mended", "brief", "later"):
                hub.execute(f"DROP QUERY {step}")
                del there[step]
            elif step == "now":
                hub.execute("PAUSE QUERY now")
                push(hub, [(minute, 3)])
                hub.execute("RESUME QUERY now")
        hub.loop.drain()
        forget()
        length = number_of(hub)
        seen = {name: seen_of(hub, name, [0, 3, 17, length // 2, length - 1]) for name in there}
        has_merged = any(is_merged(hub))
        assert faults_once_tidy(hub) == []
        again = {name: seen_of(hub, name, [0, 3, 17, length // 2, length - 1]) for name in there}
        assert again == seen
        return (length, seen), has_merged


def test_a_history_opens_files_by_the_logarithm_of_its_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of one query among twenty, at 64, 256 and 500 epochs: at most those of each level; without merging all."""
    monkeypatch.setattr(radix_list, "FANOUT", 8)
    queries = {
        f"w{n}": f"AS SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE v > {n}"
        for n in range(20)
    }
    opens = {}
    with open_hub(tmp_path / "home", local=True, tasks=1) as hub:
        hub.execute(STREAM.replace(" SLACK INTERVAL 2 MINUTES", "") + script(queries))
        for minute in range(501):
            push(hub, [(minute, minute % 50)])
            if minute + 1 in (64, 256, 501):
                forget()
                with disk_calls() as asked:
                    assert hub.query("w3").history().num_rows > 0.8 * minute
                opens[minute] = asked["read"] + asked["map"]
    # Runs and segments of the tail, of eight, of sixty-four; and one facts file and manifest.
    for epochs, opened in opens.items():
        assert opened <= 2 * (2 * 8 + 8) + 2 * epochs / 64 + 16, opens
    assert opens[500] - opens[63] <= 2 * 500 / 64 + 24, opens


def test_a_row_is_written_at_most_once_a_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: Counter[str] = Counter()
    write_once = LocalStore.write_once

    def counting(self: LocalStore, name: str, *args: Any, **options: Any) -> int:
        size = write_once(self, name, *args, **options)
        if name.startswith("results/"):
            sections = Container.open(self.map(name), name).sections()
            rows = sum(
                section.rows
                for section_name, section in sections.items()
                if not section_name.startswith("facts/")
            )
            written["merged" if "+" in name else "run"] += rows
        return size

    with open_hub(tmp_path / "home", local=True) as hub:
        monkeypatch.setattr(LocalStore, "write_once", counting)
        hub.execute(STREAM + script(KINDS))
        for minute in range(120):
            push(hub, [(minute, minute), (minute, minute + 1)])
    assert written["run"] < written["merged"] <= 2 * written["run"], written


def test_an_epoch_merges_no_more_than_some_bytes_and_a_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        with monkeypatch.context() as patched:
            patched.setattr(merging.Merging, "look", lambda *_, **__: None)
            hub.execute(STREAM + script({"rows": KINDS["rows"]}))
            for minute in range(60):
                push(hub, [(minute, 3)])
        assert not any(is_merged(hub))
        engine = hub.loop.engine
        monkeypatch.setattr(merging, "_BYTES", 1)
        engine.merging.look(engine.manifest, engine.plan, in_thread=False)
        (one,) = engine.merging.writing.taken()
        assert one.bytes > 0
        monkeypatch.setattr(merging, "_BYTES", one.bytes + 1)
        engine.merging.look(engine.manifest, engine.plan, in_thread=False)
        assert len(engine.merging.writing.written) == 2


def test_runs_of_a_home_that_merged_none_are_merged_epoch_by_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those below files that are named by others: a home of an earlier version."""
    with open_hub(tmp_path / "home", local=True) as hub:
        with monkeypatch.context() as patched:
            patched.setattr(merging.Merging, "look", lambda *_, **__: None)
            hub.execute(STREAM + script({"rows": KINDS["rows"], "brief": KINDS["brief"]}))
            for minute in range(80):
                push(hub, [(minute, 3)])
        seen = seen_of(hub, "rows", [0, 30, 60])
        monkeypatch.setattr(merging, "_BYTES", 1)
        engine = hub.loop.engine
        while merging.next_range(
            hub.home.list_of(engine.manifest, "results"), merging.merged_to(engine.manifest)
        ):
            push(hub, [(0, 1)])  # late: no results
        assert {name: seen_of(hub, "rows", [0, 30, 60])[name] for name in seen} == seen
        names = {entry["name"] for _, entry in result_log.retained_entries(hub.home, hub.home.latest())}
        assert hub.status()["result_files"] == len(list((tmp_path / "home" / "results").iterdir()))
        assert len(names) <= number_of(hub) // 16 + 2 * 8
        assert faults_once_tidy(hub) == []


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_OF_QUERY", "_MOST_IN_MEMORY"])
def test_large_runs_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(merged_file, limit, -1)
    monkeypatch.setattr(merged_file, "_LARGE", 0)
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM + script({"rows": KINDS["rows"]}))
        for minute in range(40):
            push(hub, [(minute, 3)])
        assert not any(is_merged(hub))
        assert merging.merged_to(hub.home.latest())[0] >= 32
        assert hub.query("rows").history().num_rows == 40
        assert not [path for path in (tmp_path / "home" / "results").iterdir() if path.name.startswith(".")]


def test_damaged_runs_stay_where_they_are_and_are_reported(tmp_path: Path) -> None:
    """Merging continues with the others, and gives damaged rows no new checksum."""
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM + script({"rows": KINDS["rows"]}))
        push(hub, [(0, 3)])
        push(hub, [(1, 3)])
        ((_, entry), *_) = result_log.retained_entries(hub.home, hub.home.latest())
        damaged = tmp_path / "home" / entry["name"]
        data = damaged.read_bytes()
        at = data.index((3).to_bytes(8, "little"), 64)  # behind the preamble
        damaged.write_bytes(data[:at] + b"\x09" + data[at + 1 :])
        for minute in range(2, 40):
            push(hub, [(minute, 3)])
        assert list(is_merged(hub))[:8] == [False] * 4 + [True] * 4
        (fault,) = faults_once_tidy(hub)
        assert entry["name"] in fault


def test_what_waits_for_a_manifest_is_forgotten_when_all_garbage_is_collected(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM + script({"rows": KINDS["rows"]}))
        engine, minute = hub.loop.engine, 0
        while not engine.merging.writing.written:
            push(hub, [(minute, 3)])
            engine._write_due()  # a hub that runs does it after an epoch
            minute += 1
        assert faults_once_tidy(hub) == []
        for later in range(minute, 30):
            push(hub, [(later, 3)])
        assert faults_once_tidy(hub) == []
        assert hub.query("rows").history().num_rows == 30
        assert any(is_merged(hub))


def test_results_of_dropped_queries_are_left_out_and_others_found_without_them(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM + script({"rows": KINDS["rows"], "gone": "AS SELECT v FROM s"}))
        gone = hub.operator_and_query("gone")[0].id
        for minute in range(10):
            push(hub, [(minute, 3)])
        store, manifest = hub.home.store, hub.home.latest()
        assert any(
            gone in answered(entry, store) for _, entry in result_log.retained_entries(hub.home, manifest)
        )
        hub.execute("DROP QUERY gone")
        for minute in range(10, 60):
            push(hub, [(minute, 3)])
        manifest = hub.home.latest()
        merged = [entry for index, entry in result_log.retained_entries(hub.home, manifest) if index < 16]
        assert len({entry["name"] for entry in merged}) == 1
        assert not any(gone in answered(entry, store) for entry in merged)
        assert not any(gone in name for name in Container.open(store.map(merged[0]["name"]), "").sections())
        assert hub.query("rows").history().num_rows == 60


def test_a_reader_that_has_begun_reads_on_after_its_runs_are_merged_and_deleted(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM + script({"rows": KINDS["rows"]}))
        for minute in range(3):
            push(hub, [(minute, 3)])
        operator, _ = hub.operator_and_query("rows")
        parts = result_log.retained_results(hub.home, operator.id)
        client = hub.query("rows").client("me")
        first = next(client.pending())
        client.acknowledge(first)
        housekeeping = hub.loop.engine.housekeeping
        housekeeping.readers = -1
        for minute in range(3, 60):
            push(hub, [(minute, 3)])
        housekeeping.collect_retired()
        assert all(list(is_merged(hub))[:16])
        assert sum(batch.num_rows for part in parts for batch in part.batches()) == 3
        rows = [len(delivery.rows) for delivery in hub.query("rows").client("me").pending()]
        assert sum(rows) + len(first.rows) == 60
        assert faults_once_tidy(hub) == []


def test_while_the_loop_runs_a_thread_merges_and_its_error_is_raised_by_a_later_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    merged = merging.Merger.merged

    def noting(self: merging.Merger) -> list[merging.Merged]:
        threads.append(threading.current_thread())
        return merged(self)

    def refused(self: merging.Merger) -> list[merging.Merged]:
        raise StoreError("no such luck")

    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM + script({"rows": KINDS["rows"]}))
        engine, minute = hub.loop.engine, 0
        monkeypatch.setattr(merging.Merger, "merged", noting)
        with engine.housekeeping.in_background():
            while not any(is_merged(hub)) and minute < 400:
                push(hub, [(minute, 3)])
                minute += 1
                for thread in threads:
                    thread.join()
            monkeypatch.setattr(merging.Merger, "merged", refused)
            while hub.status()["failures"]["last"] is None and minute < 400:
                push(hub, [(minute, 3)])
                minute += 1
        assert minute < 400
        assert hub.status()["failures"]["last"]["message"] == "no such luck"
        assert threading.current_thread() not in threads
        assert hub.query("rows").history().num_rows == minute
        assert faults_once_tidy(hub) == []
