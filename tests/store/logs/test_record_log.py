"""Records come back in order with their ordinals; a second writer is refused; damage names its file."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import AlreadyPublished, CorruptStore, StoreError, WriteOutcome
from headrace.store.files.envelope import seal
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.record_log import RecordLog
from tests.store.faults import FaultyDisk, Trouble


@given(
    batches=st.lists(
        st.lists(st.integers() | st.dictionaries(st.text(), st.none() | st.text()), max_size=4), max_size=12
    ),
    data=st.data(),
)
def test_a_log_is_a_numbered_list_of_records(batches: list[list[object]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as home:
        keep_a_log(LocalStore(home, FaultyDisk()), batches, data)


def keep_a_log(store: LocalStore, batches: list[list[object]], data: st.DataObject) -> None:
    log, model = RecordLog(store, "ingest"), []
    for batch in batches:
        assert log.append(batch) == len(model)
        model += batch
        if data.draw(st.booleans()):
            log = RecordLog(store, "ingest")
    assert log.length == len(model)
    start = data.draw(st.integers(0, len(model) + 2))
    assert list(RecordLog(store, "ingest").read(start)) == list(enumerate(model))[start:]
    dropped = data.draw(st.integers(0, len(model) + 2))
    names = log.drop_before(dropped)
    assert [store.exists(name) for name in names] == [False] * len(names)
    assert log.start <= dropped
    for one_log in (log, RecordLog(store, "ingest")):
        assert list(one_log.read(max(dropped, start))) == list(enumerate(model))[max(dropped, start) :]
    assert RecordLog(store, "ingest").append(["more"]) == len(model)


def test_a_writer_that_was_overtaken_is_refused_and_a_reader_sees_the_winner(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    old = RecordLog(store, "querylog")
    old.append(["a"])
    new = RecordLog(store, "querylog")
    new.append(["b"])
    assert old.length == 2
    with pytest.raises(AlreadyPublished, match=r"published by another writer .* This writer must stop"):
        old.append(["c"])
    assert list(old.read()) == [(0, "a"), (1, "b")]


def test_a_reader_sees_what_is_appended_while_it_reads(tmp_path: Path) -> None:
    log = RecordLog(LocalStore(tmp_path), "ingest")
    log.append([0])
    reading = log.read()
    assert next(reading) == (0, 0)
    log.append([1])
    assert list(reading) == [(1, 1)]


def test_a_writer_that_slept_until_its_chunk_was_dropped_does_not_fill_the_hole(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    sleeper = RecordLog(store, "ingest")
    sleeper.append([0])
    other = RecordLog(store, "ingest")
    for record in range(1, 10):
        other.append([record])
    other.drop_before(9)
    with pytest.raises(AlreadyPublished):
        sleeper.append(["stale"])
    assert list(RecordLog(store, "ingest").read(8)) == [(8, 8), (9, 9)]
    with pytest.raises(
        StoreError, match=r"record 3 of the log ingest/ was dropped or lost; the first there is 8"
    ):
        list(other.read(3))
    with pytest.raises(StoreError, match="numbered from 0, not from -1"):
        list(other.read(-1))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: path.write_bytes(path.read_bytes()[:-5]),
            "000000000001.json' is damaged: .* bytes of body",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b'"b"', b'"x"')),
            "000000000001.json' is damaged: checksum",
        ),
        (lambda path: path.write_bytes(b""), "000000000001.json' is damaged: expected the head"),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b"log chunk", b"long list")),
            "holds a long list",
        ),
        (
            lambda path: path.write_bytes((path.parent / "000000000000.json").read_bytes()),
            "000000000001.json' has the number 0",
        ),
        (Path.unlink, "the log querylog/ has a gap: 'querylog/000000000001.json' is missing"),
    ],
)
def test_a_damaged_chunk_is_reported_by_name(damage, message: str, tmp_path: Path) -> None:
    log = RecordLog(LocalStore(tmp_path), "querylog")
    for record in "abcd":
        log.append([record])
    damage(tmp_path / "querylog" / "000000000001.json")
    with pytest.raises(CorruptStore, match=message):
        list(log.read())


def test_a_lost_chunk_does_not_look_like_the_end_of_the_log(tmp_path: Path) -> None:
    log = RecordLog(LocalStore(tmp_path), "querylog")
    for record in "abcd":
        log.append([record])
    (tmp_path / "querylog" / "000000000001.json").unlink()
    fresh = RecordLog(LocalStore(tmp_path), "querylog")
    assert fresh.append(["e"]) == 4
    with pytest.raises(
        StoreError, match="record 0 of the log querylog/ was dropped or lost; the first there is 2"
    ):
        list(fresh.read())


def test_a_chunk_of_a_newer_format_is_not_called_damaged(tmp_path: Path) -> None:
    log = RecordLog(LocalStore(tmp_path), "querylog")
    log.append(["a"])
    path = tmp_path / "querylog" / "000000000000.json"
    path.write_bytes(path.read_bytes().replace(b'"version":2', b'"version":3'))
    with pytest.raises(StoreError, match="format version 3, this program reads 1 to 2"):
        RecordLog(LocalStore(tmp_path), "querylog")


def test_what_is_no_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    log = RecordLog(LocalStore(tmp_path), "ingest")
    for record in (object(), float("nan")):
        with pytest.raises(StoreError, match="can hold JSON values only"):
            log.append([record])
    assert log.length == 0


CALLS = ("create", "write", "fsync", "link", "unlink", "fsync_folder")
"""Of one append."""


@pytest.mark.parametrize(
    ("trouble", "outcome"),
    [
        (Trouble(3, errno.EEXIST, "after"), None),
        (Trouble(3, errno.EIO, "after"), None),
        (Trouble(4, errno.EIO), None),
        (Trouble(5, errno.EIO), None),
        (Trouble(5, errno.EMFILE), None),
        (Trouble(0, errno.EMFILE), "absent"),
        (Trouble(1, errno.ENOSPC), "absent"),
        (Trouble(2, errno.EIO), "absent"),
        (Trouble(3, errno.EIO), "absent"),
        (Trouble(0, errno.EROFS, lasting=True), "absent"),
        (Trouble(4, errno.EROFS, lasting=True), "unknown"),
    ],
)
def test_an_append_that_fails_says_what_it_has_left_and_is_there_once_when_repeated(
    trouble: Trouble, outcome: WriteOutcome | None, tmp_path: Path
) -> None:
    (tmp_path / "querylog").mkdir()
    disk = FaultyDisk(trouble=trouble)
    log = RecordLog(LocalStore(tmp_path, disk), "querylog")
    if outcome is None:
        assert log.append(["a"], "one") == 0
        assert disk.trace[:6] == list(CALLS)
    else:
        with pytest.raises(StoreError) as raised:
            log.append(["a"], "one")
        assert raised.value.outcome == outcome
        assert log.length == (outcome == "unknown")
    disk.trouble = None
    if outcome is None:
        # The object continued; one that was never answered would not have.
        log = RecordLog(LocalStore(tmp_path, disk), "querylog")
        log._next, log._end = 0, 0
    assert log.append(["a"], "one") == 0
    assert log.append(["b"]) == 1
    assert list(log.read()) == [(0, "a"), (1, "b")]


def test_after_an_append_of_unknown_outcome_another_one_is_refused_until_the_log_is_read(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(trouble=Trouble(5, KeyboardInterrupt))
    (tmp_path / "querylog").mkdir()
    log = RecordLog(LocalStore(tmp_path, disk), "querylog")
    with pytest.raises(KeyboardInterrupt):
        log.append(["a"])
    with pytest.raises(AlreadyPublished) as raised:
        log.append(["a"])
    assert raised.value.outcome == "absent"
    fresh = RecordLog(LocalStore(tmp_path, disk), "querylog")
    fresh.settle()
    assert disk.trace[-2:] == ["fsync_file", "fsync_folder"]
    assert fresh.append(["b"]) == 1


def test_chunks_without_an_id_as_older_versions_wrote_them_are_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    body = {"number": 0, "first": 0, "records": ["a", "b"]}
    store.put_if_absent("querylog/000000000000.json", seal("log chunk", 1, body))
    log = RecordLog(store, "querylog")
    assert log.append(["c"]) == 2
    assert list(log.read(1)) == [(1, "b"), (2, "c")]
    assert [chunk.append is None for chunk in log.chunks()] == [True, False]
