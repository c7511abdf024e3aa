"""Spare files: what they become, when there are some, and what is left of them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.errors import AlreadyPublished, StoreError
from headrace.runtime.epoch.supervisor import may_pass
from headrace.store.files import spare_files as module
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import LocalStore
from headrace.store.files.spare_files import SpareFiles, spare_files

pytestmark = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has files without a name")
ENOUGH = 64
SECONDS = 20


@pytest.fixture(autouse=True)
def _own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """None of another test; those of this one stay, however long it takes."""
    monkeypatch.setattr(module, "_IDLE_SECONDS", 60.0)
    spare_files().let_go()
    spare_files.cache_clear()
    yield
    spare_files().let_go()
    spare_files.cache_clear()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it never was"
        time.sleep(0.002)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def names_in(folder: Path | str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def make_some(folder: Path) -> int:
    """Make files until there are spare ones; how many that took."""
    disk = Disk()
    for number in range(ENOUGH):
        os.close(disk.create(f"{folder}/some-{uuid.uuid4().hex}"))
        stock = spare_files()._stocks.get(str(folder))
        if stock is not None and stock.descriptors:
            return number
        time.sleep(0.002)
    raise AssertionError("there never were spare files")


def test_a_folder_in_which_files_are_made_often_gets_spare_ones_and_no_other_does(tmp_path: Path) -> None:
    (tmp_path / "busy").mkdir()
    (tmp_path / "quiet").mkdir()
    disk = Disk()
    os.close(disk.create(f"{tmp_path}/quiet/one"))
    assert make_some(tmp_path / "busy") >= module._OFTEN - 1
    os.close(disk.create(f"{tmp_path}/quiet/two"))
    assert not spare_files()._stocks[f"{tmp_path}/quiet"].descriptors


def test_a_spare_file_gets_its_name_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_some(tmp_path)
    until(lambda: spare_files().count() > 1)
    before = names_in(tmp_path)
    path, opened = f"{tmp_path}/wanted", list[int]()
    ordinary = os.open

    def counted(name: str, flags: int, mode: int = 0o777) -> int:
        opened.append(flags & os.O_CREAT)
        return ordinary(name, flags, mode)

    monkeypatch.setattr(os, "open", counted)
    descriptor = Disk().create(path)
    assert os.O_CREAT not in opened
    Disk().write(descriptor, [b"bytes"])
    os.close(descriptor)
    assert Path(path).read_bytes() == b"bytes"
    assert names_in(tmp_path) - before == {"wanted"}
    ordinary_file = ordinary(f"{tmp_path}/ordinary", os.O_WRONLY | os.O_CREAT, 0o644)
    assert stat.S_IMODE(Path(path).stat().st_mode) == stat.S_IMODE(os.fstat(ordinary_file).st_mode)
    os.close(ordinary_file)


def test_a_name_that_is_taken_stays_whose_it_is(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"first")
    make_some(tmp_path)
    with pytest.raises(FileExistsError):
        Disk().create(f"{tmp_path}/taken")
    assert (tmp_path / "taken").read_bytes() == b"first"
    store = LocalStore(tmp_path)
    for number in range(ENOUGH):
        store.write_once(f"runs/{number}", [b"x"])
        with pytest.raises(AlreadyPublished):
            store.write_once(f"runs/{number}", [b"y"])
    assert store.list(unfinished=True) == []
    assert {store.read(f"runs/{number}") for number in range(ENOUGH)} == {b"x"}


def spare_ones(folder: Path) -> None:
    """Have several in a folder of a store."""
    make_some(folder)
    until(lambda: len(spare_files()._stocks[str(folder)].descriptors) > 2)


def folder_with_spare_ones_that_is_gone(within: Path) -> Path:
    folder = within / "folder"
    folder.mkdir()
    spare_ones(folder)
    shutil.rmtree(folder)
    return folder


def test_a_file_that_is_not_synced_yet_gets_its_only_name_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare_ones(tmp_path)
    before, calls = names_in(tmp_path), list[str]()
    ordinary = os.link

    def named(source: str, target: str, *, src_dir_fd: int | None = None) -> None:
        assert src_dir_fd is not None
        calls.append(f"link of {os.fstat(src_dir_fd).st_size} bytes")
        ordinary(source, target, src_dir_fd=src_dir_fd)

    monkeypatch.setattr(os, "link", named)
    monkeypatch.setattr(os, "unlink", lambda path: calls.append(f"unlink {path}"))
    store = LocalStore(tmp_path)
    assert store.write_once("wanted", [b"two ", b"parts"], durable=False) == len(b"two parts")
    assert calls == ["link of 9 bytes"]
    assert names_in(tmp_path) - before == {"wanted"}
    assert store.read("wanted") == b"two parts"
    with pytest.raises(AlreadyPublished, match="'wanted'"):
        store.write_once("wanted", [b"others"], durable=False)
    assert store.read("wanted") == b"two parts"


def test_a_durable_file_has_a_name_before_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system without a journal may store the first name of a file later than the sync that follows the name."""
    spare_ones(tmp_path)
    links, ordinary = list[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda of: links.append(os.fstat(of).st_nlink) or ordinary(of))
    store = LocalStore(tmp_path)
    store.write_once("written", [b"x"])
    assert store.put_if_absent("published", b"x")
    files, folders = links[::2], links[1::2]
    assert files == [1, 1]
    assert len(folders) == 2


def test_a_folder_that_was_deleted_since_is_made_again(tmp_path: Path) -> None:
    folder_with_spare_ones_that_is_gone(tmp_path)
    store = LocalStore(tmp_path)
    store.write_once("folder/wanted", [b"x"], durable=False)
    assert store.read("folder/wanted") == b"x"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spare_ones(tmp_path)
    before, held = names_in(tmp_path), list(spare_files()._stocks[str(tmp_path)].descriptors)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", full)
        with pytest.raises(StoreError, match="is full"):
            LocalStore(tmp_path).write_once("wanted", [b"x"], durable=False)
    assert names_in(tmp_path) == before
    assert not is_open(held[0])


def test_where_files_get_no_name_later_the_next_ones_have_one_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare_ones(tmp_path)
    ordinary = os.link

    def refused(source: str, target: str, **more: int) -> None:
        if more:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)
        ordinary(source, target)

    monkeypatch.setattr(os, "link", refused)
    store = LocalStore(tmp_path)
    with pytest.raises(StoreError):
        store.write_once("wanted", [b"x"], durable=False)
    store.write_once("wanted", [b"x"], durable=False)
    assert store.read("wanted") == b"x"
    assert store.list(unfinished=True) == []


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EPERM])
def test_where_files_cannot_be_named_one_write_fails_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        spare_ones(folder)
    ordinary = os.link

    def refused(source: str, target: str, **more: int) -> None:
        if more:
            raise OSError(error, os.strerror(error), source, None, target)
        ordinary(source, target)

    monkeypatch.setattr(os, "link", refused)
    store = LocalStore(tmp_path)
    with pytest.raises(StoreError) as failed:
        store.write_once("a/wanted", [b"x"], durable=False)
    assert may_pass(failed.value)
    for name in ("a/wanted", "b/wanted"):
        store.write_once(name, [b"x"], durable=False)
        assert store.read(name) == b"x"


def test_without_proc_no_folder_has_spare_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "lexists", lambda _: False)
    disk = Disk()
    for number in range(ENOUGH):
        os.close(disk.create(f"{tmp_path}/{number}"))
        time.sleep(0.001)
    until(lambda: spare_files()._stocks[str(tmp_path)].is_refused)
    assert spare_files().nameless(str(tmp_path)) is None


def test_a_name_that_is_refused_after_a_second_leaves_other_folders_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's spare files are closed meanwhile: a large file takes that long."""
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.05)
    folder = tmp_path / "folder"
    folder.mkdir()
    make_some(folder)
    store = LocalStore(tmp_path)
    thread = spare_files()._thread
    assert thread is not None

    def parts() -> Iterator[bytes]:
        yield b"x"
        until(lambda: not thread.is_alive())
        folder.rename(tmp_path / "gone")

    store.write_once("folder/large", parts(), durable=False)
    store.write_once("other/next", [b"x"])
    store.write_once("folder/next", [b"x"], durable=False)
    assert store.read("folder/large") == store.read("other/next") == b"x"


def test_spare_files_and_their_thread_end_when_none_is_made_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.05)
    make_some(tmp_path)
    thread = spare_files()._thread
    assert thread is not None
    held = names_in("/proc/self/fd")
    until(lambda: not thread.is_alive())
    assert spare_files().count() == 0
    assert not spare_files()._stocks
    assert len(names_in("/proc/self/fd")) < len(held)
    make_some(tmp_path)  # and they begin again
    assert spare_files()._thread is not thread


def watched(folder: Path, spare: list[float]) -> Callable[..., int]:
    """An `open` that notes when files of a folder are made without a name."""
    ordinary = os.open

    def opened(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE and path == str(folder):
            spare.append(time.monotonic())
        return ordinary(path, flags, mode)

    return opened


def test_spare_files_are_made_once_no_other_was_made_for_a_moment_or_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUIET_SECONDS", 0.03)
    for patience, is_quiet in ((20.0, True), (0.1, False)):
        monkeypatch.setattr(module, "_PATIENCE_SECONDS", patience)
        (folder := tmp_path / f"{is_quiet}").mkdir()
        made, spare = list[float](), list[float]()
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", watched(folder, spare))
            end = time.monotonic() + 0.4
            while time.monotonic() < end:
                os.close(Disk().create(f"{folder}/{len(made)}"))
                made.append(time.monotonic())
                time.sleep(0.001)
            until(lambda spare=spare: bool(spare))
        since_last = spare[0] - max(at for at in made if at <= spare[0])
        assert since_last >= 0.03 * 0.9 if is_quiet else spare[0] < made[-1]
        spare_files().let_go()


def test_a_file_system_that_has_none_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ordinary = list[str](), os.open

    def without(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE and path == str(tmp_path):
            asked.append(path)
            raise OSError(errno.EOPNOTSUPP, "not supported", path)
        return ordinary(path, flags, mode)

    monkeypatch.setattr(os, "open", without)
    disk = Disk()
    for number in range(ENOUGH):
        os.close(disk.create(f"{tmp_path}/{number}"))
        time.sleep(0.001)
    until(lambda: bool(asked))
    assert asked == [str(tmp_path)]
    assert len(names_in(tmp_path)) == ENOUGH


def test_without_proc_files_are_made_in_the_ordinary_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_some(tmp_path)

    def missing(source: str, target: str, **_: int) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", source, None, target)

    until(lambda: spare_files().count() > 1)
    held = list(spare_files()._stocks[str(tmp_path)].descriptors)
    closed, ordinary = list[int](), os.close
    monkeypatch.setattr(os, "link", missing)
    monkeypatch.setattr(os, "close", lambda descriptor: closed.append(descriptor) or ordinary(descriptor))
    descriptor = Disk().create(f"{tmp_path}/wanted")
    assert held[0] in closed, "the spare file that got no name"
    ordinary(descriptor)
    assert (tmp_path / "wanted").exists()


def test_a_folder_that_is_gone_is_reported_as_ever(tmp_path: Path) -> None:
    folder = folder_with_spare_ones_that_is_gone(tmp_path)
    with pytest.raises(FileNotFoundError):
        Disk().create(f"{folder}/wanted")


def test_a_forked_process_has_none_of_its_parents(tmp_path: Path) -> None:
    make_some(tmp_path)
    until(lambda: spare_files().count() > 1)
    inherited = [one for stock in spare_files()._stocks.values() for one in stock.descriptors]
    child = os.fork()
    if child == 0:  # it must not return into the test
        try:
            closed = sum(not is_open(one) for one in inherited)
            os.close(Disk().create(f"{tmp_path}/of-the-child"))
            os._exit(0 if closed == len(inherited) and not spare_files().count() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(is_open(one) for one in inherited)
    assert (tmp_path / "of-the-child").exists()


def test_threads_that_make_files_at_once_get_one_each(tmp_path: Path) -> None:
    spare, names = SpareFiles(), [f"{tmp_path}/{number}" for number in range(400)]
    inodes = list[int]()

    def make(mine: list[str]) -> None:
        disk = Disk()
        for name in mine:
            descriptor = spare.named(name)
            if descriptor is None:
                descriptor = disk.create(name)
            inodes.append(os.fstat(descriptor).st_ino)
            os.close(descriptor)

    threads = [threading.Thread(target=make, args=(names[part::4],)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(inodes)) == len(names) == len(names_in(tmp_path))
    spare.let_go()
