"""Names, writing once, publishing if absent, mapping, listing; and races between writers."""

from __future__ import annotations

import errno
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from headrace.errors import AlreadyPublished, StoreError
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import UNFINISHED, LocalStore, MissingFile

RACERS = 4
NAMES = 60


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "home")


LEAVING = ["/etc/passwd", "..", "../x", "a/../b", "a/.", "a/..", "./a"]


@pytest.mark.parametrize(
    "name",
    [
        *LEAVING,
        "",
        "a//b",
        "a/",
        ".",
        "a\\b",
        "a\0b",
        UNFINISHED,
        f"{UNFINISHED}b",
        f"a/{UNFINISHED}b",
        f"{UNFINISHED}/a",
    ],
)
def test_a_name_that_would_leave_the_home_is_refused(store: LocalStore, name: str) -> None:
    with pytest.raises(StoreError, match="cannot be the name of a file"):
        store.write_once(name, [b"x"])
    with pytest.raises(StoreError, match="cannot be the name of a file"):
        store.read(name)


@pytest.mark.parametrize(
    "name", [".a", "..a/b", "a/...", "a.", "a\n", "a/.\n", f"a{UNFINISHED}b", UNFINISHED[:-1]]
)
def test_other_names_may_begin_with_a_dot(store: LocalStore, name: str) -> None:
    store.write_once(name, [b"x"])
    assert store.read(name) == b"x"


def test_what_was_written_is_read_and_mapped(store: LocalStore) -> None:
    parts = [b"one", b"", pa.py_buffer(b"two"), memoryview(b"three")]
    assert store.write_once("a/b/c.run", parts) == 11
    assert store.read("a/b/c.run") == b"onetwothree"
    assert store.map("a/b/c.run").to_pybytes() == b"onetwothree"
    assert store.exists("a/b/c.run")
    assert not store.exists("a/b")


def test_many_parts_and_an_empty_file_are_written_whole(store: LocalStore) -> None:
    parts = [bytes([number % 256]) * (number % 5) for number in range(3000)]
    store.write_once("many", parts)
    assert store.read("many") == b"".join(parts)
    assert store.write_once("empty", []) == 0
    assert store.map("empty").size == 0


def test_a_missing_file_is_reported_by_name(store: LocalStore) -> None:
    for look in (store.read, store.map):
        with pytest.raises(MissingFile, match="there is no file 'state/none'"):
            look("state/none")
    assert store.delete("state/none") is False


def test_writing_a_name_twice_is_refused_and_a_mapped_reader_sees_the_first(store: LocalStore) -> None:
    store.write_once("run", [b"first"])
    mapped = store.map("run")
    with pytest.raises(AlreadyPublished, match=r"'run' of the home .* is already there"):
        store.write_once("run", [b"another"])
    assert store.put_if_absent("run", b"another") is False
    assert store.delete("run") is True
    store.write_once("run", [b"third"])
    assert mapped.to_pybytes() == b"first"


def test_a_file_rewritten_in_place_would_kill_its_reader(store: LocalStore) -> None:
    """Why files are never rewritten: the store has no call that does this, so the test does it behind its back."""
    store.write_once("run", [bytes(1 << 16)])
    program = (
        "import sys; from headrace.store.files.filesystem import LocalStore\n"
        "store = LocalStore(sys.argv[1]); mapped = store.map('run')\n"
        "open(store.path('run'), 'wb').close(); sum(memoryview(mapped))"
    )
    done = subprocess.run([sys.executable, "-c", program, store.root], capture_output=True)
    assert done.returncode == -signal.SIGBUS


def test_listing_shows_names_with_a_prefix_and_unfinished_ones_only_on_demand(
    store: LocalStore, tmp_path: Path
) -> None:
    for name in ("state/b", "state/a", "state/deep/c", "results/d"):
        store.write_once(name, [name.encode()])
    (tmp_path / "home" / "state" / f"{UNFINISHED}x").write_bytes(b"half")
    assert [(file.name, file.bytes) for file in store.list("state/")] == [
        ("state/a", 7), ("state/b", 7), ("state/deep/c", 12),
    ]  # fmt: skip
    assert [file.name for file in store.list("state/d")] == ["state/deep/c"]
    assert [file.name for file in store.list("nothing/")] == []
    assert [file.name for file in store.list()] == ["results/d", "state/a", "state/b", "state/deep/c"]
    (unfinished,) = store.list(unfinished=True)
    assert store.delete(unfinished.name)
    assert store.list(unfinished=True) == []


def test_a_store_travels_to_another_process(store: LocalStore) -> None:
    store.write_once("a", [b"x"])
    assert pickle.loads(pickle.dumps(store)).read("a") == b"x"


def test_an_error_of_the_system_says_what_was_tried(store: LocalStore, tmp_path: Path) -> None:
    store.write_once("file", [b""])
    with pytest.raises(StoreError, match=r"cannot write 'file/below' in the home .*: Not a directory"):
        store.write_once("file/below", [b""])
    (tmp_path / "home" / "folder").mkdir()
    with pytest.raises(StoreError, match=r"cannot read 'folder' .*: Is a directory"):
        store.read("folder")
    with pytest.raises(StoreError, match="cannot delete 'folder'"):
        store.delete("folder")
    with pytest.raises(MissingFile, match="there is no file"):
        store.sync(["no/such", "file"])


def test_a_file_system_without_links_is_refused_and_not_worked_around(tmp_path: Path) -> None:
    class NoLinks(Disk):
        def link(self, source: str, target: str) -> None:
            raise OSError(errno.EPERM, "Operation not permitted", source, None, target)

    store = LocalStore(tmp_path, NoLinks())
    with pytest.raises(StoreError, match=r"cannot publish 'a': .* offers no hard links.*local file system"):
        store.put_if_absent("a", b"")
    with pytest.raises(StoreError, match=r"cannot write 'a': .* offers no hard links"):
        store.write_once("a", [b""])
    assert store.list() == store.list(unfinished=True) == []


def test_of_threads_that_publish_the_same_names_each_name_has_one_winner(store: LocalStore) -> None:
    won: list[list[int]] = [[] for _ in range(RACERS)]
    start = threading.Barrier(RACERS)

    def race(me: int) -> None:
        start.wait()
        won[me].extend(n for n in range(NAMES) if store.put_if_absent(f"manifests/{n}", f"{me}".encode()))

    threads = [threading.Thread(target=race, args=(me,)) for me in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(n for numbers in won for n in numbers) == list(range(NAMES))
    assert all(
        store.read(f"manifests/{n}") == f"{me}".encode() for me, numbers in enumerate(won) for n in numbers
    )
    assert store.list(unfinished=True) == []


def test_of_two_processes_that_publish_the_same_names_each_name_has_one_winner(store: LocalStore) -> None:
    store.write_once("ready", [b""])
    program = (
        "import sys; from headrace.store.files.filesystem import LocalStore; store = LocalStore(sys.argv[1])\n"
        "print(flush=True); sys.stdin.readline()\n"
        f"print(*[n for n in range({NAMES}) if store.put_if_absent(f'm/{{n}}', sys.argv[2].encode())])"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, store.root, str(me)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(2)
    ]
    for racer in racers:
        racer.stdout.readline()
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    won = [[int(n) for n in racer.communicate()[0].split()] for racer in racers]
    assert sorted(won[0] + won[1]) == list(range(NAMES))
    assert all(store.read(f"m/{n}") == f"{me}".encode() for me, numbers in enumerate(won) for n in numbers)


def test_a_file_that_is_set_aside_is_as_it_was(store: LocalStore) -> None:
    data = bytes(range(256)) * 4096
    store.write_once("runs/one", [data])
    mapped = store.map("runs/one")
    store.set_aside("runs/one")
    store.set_aside("runs/none")
    assert mapped.to_pybytes() == store.read("runs/one") == data


def test_a_sync_is_one_call_for_each_file_and_each_folder_also_when_no_thread_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Disk):
        synced: ClassVar[list[str]] = []

        def fsync_file(self, path: str) -> None:
            self.synced.append(path.removeprefix(f"{tmp_path}/"))

        def fsync_folder(self, path: str) -> None:
            self.synced.append(path.removeprefix(f"{tmp_path}/") + "/")

    class Ending:
        def submit(self, _: object) -> None:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    store, names = LocalStore(tmp_path, Counting()), ["a/1", "b/1", "a/2", "a/3", "a/1"]
    whole = ["a/", "a/1", "a/2", "a/3", "b/", "b/1"]
    store.sync(names)
    assert sorted(Counting.synced) == whole
    Counting.synced.clear()
    monkeypatch.setattr(filesystem, "_sync_threads", Ending)
    store.sync(names)
    assert sorted(Counting.synced) == whole
    assert Counting.synced.index("a/") > Counting.synced.index("a/1")
