"""Folders of a home are spread over the disk where the file system can do that, and are as good as any elsewhere."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.store.files import spread_folders as module
from headrace.store.files.filesystem import LocalStore
from headrace.store.files.lock import HomeLock
from headrace.store.files.spread_folders import spread

OPEN = Path("/proc/self/fd")
INODES_OF_A_GROUP = 8192
"""The usual number of ext4, and the least by which a file's place is known to differ."""


def is_marked(folder: Path) -> bool:
    opened = os.open(folder, os.O_RDONLY)
    try:
        (flags,) = module._FLAGS.unpack(fcntl.ioctl(opened, module._GET, bytes(module._FLAGS.size)))
    finally:
        os.close(opened)
    return bool(flags & module._TOP)


def opened_paths() -> set[str]:
    """What this process has open; nothing where the system does not show it. Threads close files meanwhile."""
    paths = set[str]()
    for link in OPEN.iterdir() if OPEN.exists() else ():
        with suppress(FileNotFoundError):
            paths.add(str(link.readlink()))
    return paths


@pytest.fixture
def marks(tmp_path: Path) -> None:
    """Where the file system has such a mark."""
    probe = tmp_path / "probe"
    probe.mkdir()
    spread(probe)
    try:
        if not is_marked(probe):
            pytest.skip("this file system does not spread folders")
    except OSError:
        pytest.skip("this file system has no marks of folders")


@pytest.mark.usefixtures("marks")
def test_the_folders_of_a_home_are_in_different_parts_of_the_disk(tmp_path: Path) -> None:
    home, names = tmp_path / "home", ["ingest", "manifests", "results", "state", "archive/e", "lists"]
    with HomeLock(home):
        store = LocalStore(home)
        for name in names:
            store.write_once(f"{name}/one", [b"x"])
    groups = {(home / name / "one").stat().st_ino // INODES_OF_A_GROUP for name in names}
    assert len(groups) > len(names) // 2
    assert is_marked(home)
    assert not is_marked(home / "archive")


@pytest.mark.parametrize("failing", ["open", "ioctl"])
def test_a_file_system_without_such_marks_has_homes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))

    folder = tmp_path / "home"
    folder.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(os if failing == "open" else fcntl, failing, refused)
        spread(folder)
    assert str(folder) not in opened_paths()
    with HomeLock(folder):
        LocalStore(folder).write_once("a/b", [b"x"])


@pytest.mark.usefixtures("marks")
def test_other_flags_of_a_folder_stay(tmp_path: Path) -> None:
    spread(tmp_path)
    opened = os.open(tmp_path, os.O_RDONLY)
    try:
        no_atime = 0x80
        (flags,) = module._FLAGS.unpack(fcntl.ioctl(opened, module._GET, bytes(module._FLAGS.size)))
        fcntl.ioctl(opened, module._SET, module._FLAGS.pack(flags & ~module._TOP | no_atime))
        spread(tmp_path)
        (after,) = module._FLAGS.unpack(fcntl.ioctl(opened, module._GET, bytes(module._FLAGS.size)))
    finally:
        os.close(opened)
    assert after == flags | no_atime
