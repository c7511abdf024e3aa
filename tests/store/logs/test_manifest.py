"""Manifests come back as they were, are found quickly, and only the last incarnation can publish."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import AlreadyPublished, CorruptStore, StoreError
from headrace.store.files.filesystem import LocalStore, MissingFile
from headrace.store.logs.at_rest import NO_LISTS, NO_OPERATORS, NO_STREAMS
from headrace.store.logs.manifest import Manifest, ManifestLog, StateRun
from headrace.store.logs.numbered_files import NumberedFiles
from headrace.store.logs.radix_list import RadixList
from tests.store import committed_values

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
facts = st.dictionaries(st.text(max_size=5), json_values, max_size=3)
natural = st.integers(0, 2**40)
manifests = st.builds(
    Manifest,
    epoch=natural,
    incarnation=natural,
    kind=st.sampled_from(["epoch", "takeover", "tick"]),
    plan=st.none() | st.text(),
    querylog=natural,
    ingest=natural,
    streams=st.dictionaries(st.text(max_size=5), committed_values.streams, max_size=3).map(
        NO_STREAMS.changed
    ),
    operators=st.dictionaries(st.text(max_size=5), committed_values.progress, max_size=3).map(
        NO_OPERATORS.changed
    ),
    state=st.lists(st.builds(StateRun, st.text(), natural, natural, natural, natural), max_size=3).map(tuple),
    lists=st.dictionaries(
        st.text(max_size=3),
        st.lists(json_values, max_size=5).map(lambda entries: RadixList().append(entries, lambda _: "")),
        max_size=2,
    ).map(NO_LISTS.changed),
    facts=facts,
)


def grown(store: LocalStore, epochs: int) -> ManifestLog:
    log = ManifestLog(store)
    manifest = log.takeover()
    for _ in range(epochs):
        manifest = replace(manifest, epoch=manifest.epoch + 1, kind="epoch")
        log.publish(manifest)
    return log


@given(manifests)
def test_a_manifest_comes_back_from_its_bytes(manifest: Manifest) -> None:
    assert Manifest.decode(manifest.encode(), "m") == manifest


def test_an_empty_home_has_no_manifest_and_the_first_takeover_begins_with_0(tmp_path: Path) -> None:
    log = ManifestLog(LocalStore(tmp_path))
    assert log.latest() is None
    first = log.takeover()
    assert (first.epoch, first.incarnation, first.kind) == (0, 1, "takeover")
    assert log.latest() == first


def test_a_takeover_copies_the_latest_and_stops_every_earlier_driver(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    old = ManifestLog(store)
    mine = replace(old.takeover(), epoch=1, ingest=7, facts={"rows": 3})
    old.publish(mine)
    takeover = ManifestLog(store).takeover()
    assert takeover == replace(mine, epoch=2, incarnation=2, kind="takeover")
    with pytest.raises(
        AlreadyPublished, match=r"manifests/000000000002.json.* another writer .*start it again"
    ):
        old.publish(replace(mine, epoch=2))
    assert old.latest() == takeover


def test_drivers_that_take_over_at_once_get_different_incarnations(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    takeovers: list[Manifest] = []
    threads = [
        threading.Thread(target=lambda: takeovers.append(ManifestLog(store).takeover())) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((manifest.epoch, manifest.incarnation) for manifest in takeovers) == [
        (n, n + 1) for n in range(6)
    ]


def test_an_epoch_cannot_be_left_out(tmp_path: Path) -> None:
    log = grown(LocalStore(tmp_path), 2)
    with pytest.raises(StoreError, match="the next of manifests/ is 3; a number must not be left out"):
        log.publish(Manifest(epoch=5, incarnation=1))
    assert log.latest().epoch == 2


class Imagined(LocalStore):
    """A folder of a million files that are not there; counts how often it is asked."""

    asked = 0

    def exists(self, name: str) -> bool:
        self.asked += 1
        return int(name.rpartition("/")[2].removesuffix(".json")) <= 1_000_000

    def list(self, prefix: str = "", *, unfinished: bool = False) -> list:
        raise AssertionError("listing a million names is what must not happen")


@pytest.mark.parametrize(("known", "most"), [(0, 60), (999_990, 14), (1_000_000, 4)])
def test_among_a_million_the_last_takes_a_few_look_ups(known: int, most: int, tmp_path: Path) -> None:
    store = Imagined(tmp_path)
    assert NumberedFiles(store, "manifests").last(known) == 1_000_000
    assert store.asked <= most


def test_old_manifests_are_deleted_and_the_newest_are_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    log = grown(store, 20)
    dropped = log.drop_old(latest=20, keep=4)
    assert len(dropped) == 17
    assert log.epochs() == range(17, 21)
    assert [manifest.epoch for manifest in log.retained()] == [17, 18, 19, 20]
    with pytest.raises(MissingFile, match="000000000004"):
        log.read(4)
    for fresh in (log, ManifestLog(store)):
        assert fresh.latest().epoch == 20


def test_a_reader_that_slept_while_its_epoch_was_dropped_finds_the_latest(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    log = grown(store, 3)
    reader = ManifestLog(store)
    assert reader.latest().epoch == 3
    for epoch in range(4, 30):
        log.publish(Manifest(epoch=epoch, incarnation=1))
    log.drop_old(latest=29, keep=2)
    assert reader.latest().epoch == 29


def test_a_driver_that_slept_until_its_number_was_dropped_does_not_commit_into_the_hole(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    sleeper = ManifestLog(store)
    before = sleeper.takeover()
    log = grown(store, 20)
    log.drop_old(latest=21, keep=2)
    for epoch in (0, 1):
        with pytest.raises(AlreadyPublished):
            sleeper.publish(replace(before, epoch=epoch))
    # Even when it had looked before it fell asleep:
    files = NumberedFiles(store, "manifests")
    looks = iter([True])
    files._continues = lambda number, published=False: next(looks, False)
    with pytest.raises(AlreadyPublished):
        files.publish(5, b"stale")
    assert log.epochs() == range(20, 22)
    assert files.listed() == [20, 21]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "manifests/000000000002.json' is damaged"),
        (lambda data: data.replace(b'"epoch":2', b'"epoch":3'), "is damaged: checksum"),
        (lambda _: Manifest(epoch=9, incarnation=1).encode(), "is of epoch 9"),
    ],
)
def test_a_damaged_manifest_is_reported_by_name(damage, message: str, tmp_path: Path) -> None:
    grown(LocalStore(tmp_path), 2)
    path = tmp_path / "manifests" / "000000000002.json"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptStore, match=message):
        ManifestLog(LocalStore(tmp_path)).latest()


def test_a_manifest_with_other_fields_is_reported() -> None:
    from headrace.store.files.envelope import seal

    with pytest.raises(CorruptStore, match="'m' does not hold what a manifest holds: 'streams'"):
        Manifest.decode(seal("manifest", 1, {"epoch": 1}), "m")
