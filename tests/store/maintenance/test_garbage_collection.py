"""What is named stays, what is not goes after a grace."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.store.files.container import parts
from headrace.store.files.filesystem import UNFINISHED, LocalStore
from headrace.store.logs.manifest import Manifest, ManifestLog, StateRun
from headrace.store.logs.radix_list import ListFiles, RadixList
from headrace.store.logs.record_log import INGEST_LOG, QUERY_LOG, RecordLog
from headrace.store.maintenance.garbage_collection import LiveNames, collect, names_in, sweep
from headrace.time import FOREVER, HOUR, MINUTE
from tests.store.faults import FaultyDisk

NOW = 1_700_000_000_000_000


def written(store: LocalStore, name: str, age: int = 2 * HOUR) -> str:
    store.write_once(name, [b"x"])
    at = (NOW - age) * 1000
    os.utime(store.path(name), ns=(at, at))
    return name


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "home", FaultyDisk())  # it does not wait for the disk


def epochs(store: LocalStore, count: int) -> ManifestLog:
    """Each epoch names its own run and its own plan, and appends the name of a results run to a list."""
    log, files = ManifestLog(store), ListFiles(store)
    manifest = log.takeover()
    for epoch in range(1, count + 1):
        entry = {"deep": [{"file": written(store, f"results/{epoch}")}]}
        grown = manifest.lists.get("results", RadixList()).append([entry], files.write)
        manifest = replace(
            manifest,
            epoch=epoch,
            plan=written(store, f"plans/{epoch}"),
            state=(StateRun(written(store, f"state/{epoch}"), 0, 256, 1),),
            lists=manifest.lists.changed({"results": grown.drop_before(epoch - 100)}),
        )
        log.publish(manifest)
    return log


def names(store: LocalStore, folder: str) -> set[str]:
    return {file.name for file in store.list(f"{folder}/")}


def test_only_what_the_kept_manifests_name_stays(store: LocalStore) -> None:
    log = epochs(store, 300)
    orphan = written(store, "blobs/orphan")
    young = written(store, "state/young", age=MINUTE)
    done = collect(store, log, now=NOW, grace=HOUR, keep=3)
    assert names(store, "plans") == {f"plans/{n}" for n in (298, 299, 300)}
    assert names(store, "state") == {f"state/{n}" for n in (298, 299, 300)} | {young}
    assert names(store, "results") == {f"results/{n}" for n in range(199, 301)}
    assert orphan in done.deleted
    assert done.spared >= 1
    assert done.bytes == sum(1 for name in done.deleted)
    assert len(done.manifests) == 298
    latest = log.latest()
    assert [entry["deep"][0]["file"] for _, entry in latest.lists["results"].iterate(store.read)] == [
        f"results/{n}" for n in range(201, 301)
    ]
    assert collect(store, log, now=NOW, grace=HOUR, keep=3).deleted == ()


def test_segments_of_dropped_entries_go(store: LocalStore) -> None:
    log = epochs(store, 300)
    before = len(names(store, "lists"))
    live = LiveNames(store)
    collect(store, log, now=FOREVER, grace=HOUR, keep=2, live=live)
    assert before == 4
    # Entries 199 to 299 are left: one sealed segment from 192 on, the rest is in the manifest.
    assert len(names(store, "lists")) == 1
    assert collect(store, log, now=FOREVER, grace=HOUR, keep=2, live=live).deleted == ()


def test_what_the_logs_mention_stays(store: LocalStore) -> None:
    log = epochs(store, 3)
    segments = [written(store, f"segments/{n}.arrow") for n in range(3)]
    relation = written(store, "relations/airports/1.arrow")
    RecordLog(store, INGEST_LOG).append([{"uri": f"file://{store.root}/{name}"} for name in segments])
    RecordLog(store, QUERY_LOG).append([{"kind": "relation", "file": relation}])
    log.publish(replace(log.latest(), epoch=4, ingest=2))
    also = written(store, "blobs/needed")
    collect(store, log, now=NOW, grace=HOUR, also={also})
    assert names(store, "segments") == {segments[2]}
    assert names(store, "relations") == {relation}
    assert store.exists(also)


def test_a_home_without_manifests_is_swept_too(store: LocalStore) -> None:
    orphan = written(store, "state/orphan")
    assert collect(store, ManifestLog(store), now=NOW, grace=HOUR).deleted == (orphan,)


def test_a_file_that_an_attempt_leaves_late_breaks_nothing_and_goes_later(store: LocalStore) -> None:
    log = epochs(store, 3)
    collect(store, log, now=NOW, grace=HOUR)
    late = written(store, "state/000000000002-of-a-failed-job", age=0)
    half = store.path("state/x").replace("/x", f"/{UNFINISHED}x")
    Path(half).write_bytes(b"half")
    os.utime(half, ns=(NOW * 1000, NOW * 1000))
    assert collect(store, log, now=NOW, grace=HOUR).deleted == ()
    assert collect(store, log, now=NOW + 2 * HOUR, grace=HOUR).deleted == (late, f"state/{UNFINISHED}x")
    assert log.latest().epoch == 3


def test_nothing_outside_of_the_data_folders_is_swept(store: LocalStore) -> None:
    for name in ("notes.txt", "manifests/readme", "elsewhere/x"):
        written(store, name)
    assert sweep(store, set(), now=FOREVER, grace=HOUR).deleted == ()


@given(
    st.recursive(
        st.none()
        | st.integers()
        | st.text(max_size=4)
        | st.sampled_from(["state/a", "/home/x/results/b", "states/c"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    )
)
def test_every_name_anywhere_in_a_value_is_found(value: object) -> None:
    import json

    text = json.dumps(value)
    names = set(names_in(value, "/home/x"))
    assert ("state/a" in names) == ('"state/a"' in text)
    assert ("results/b" in names) == ('"/home/x/results/b"' in text)
    assert names <= {"state/a", "results/b"}


def test_a_run_that_is_deleted_stays_readable_for_who_has_it_mapped(store: LocalStore) -> None:
    import pyarrow as pa

    from headrace.store.files.container import Container

    store.write_once("state/a", parts({"x": pa.table({"a": [1, 2]})}))
    table = Container.open(store.map("state/a")).table("x")
    assert sweep(store, set(), now=FOREVER, grace=HOUR).deleted == ("state/a",)
    assert table.to_pydict() == {"a": [1, 2]}


def test_live_names_of_a_manifest_without_lists() -> None:
    store = LocalStore("/nowhere")
    manifest = Manifest(0, 1, plan="plans/p", facts={"relations/r": 1, "cache": ["blobs/b"]})
    assert LiveNames(store).of(manifest) == {"plans/p", "relations/r", "blobs/b"}
