"""What a disk asks of the system: nothing between its methods and the calls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.store.files.disk import Disk, UnsyncedDisk
from headrace.store.files.filesystem import LocalStore


def test_each_sync_asks_the_system_for_just_the_file_or_folder_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: asked.append(os.fstat(descriptor).st_ino))
    disk, path = Disk(), tmp_path / "file"
    descriptor = disk.create(str(path))
    disk.write(descriptor, [b"bytes"])
    assert asked == []
    disk.fsync(descriptor)
    disk.close(descriptor)
    disk.fsync_file(str(path))
    disk.fsync_folder(str(tmp_path))
    assert asked == [path.stat().st_ino] * 2 + [tmp_path.stat().st_ino]
    with pytest.raises(NotADirectoryError):
        disk.fsync_folder(str(path))
    with pytest.raises(FileNotFoundError):
        disk.fsync_file(str(tmp_path / "none"))
    assert len(asked) == 3


def test_a_disk_without_syncs_writes_the_same_files_and_waits_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int) -> None:
        raise AssertionError(f"{descriptor} was synced")

    monkeypatch.setattr(os, "fsync", refused)
    store = LocalStore(tmp_path, UnsyncedDisk())
    store.write_once("a/b", [b"one", b"two"])
    assert store.put_if_absent("c", b"three", after=["a/b"])
    assert not store.put_if_absent("c", b"four")
    store.sync(["a/b"])
    assert (store.read("a/b"), store.read("c")) == (b"onetwo", b"three")
    assert store.delete("c", durable=True)
