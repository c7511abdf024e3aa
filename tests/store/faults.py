"""A disk that can stop the process at any call, tear a write, fail like a full disk, and lose what was never synced."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

from headrace.store.files.disk import Disk

When = Literal["before", "after", "torn"]
Point = TypeVar("Point")


class SimulatedCrash(BaseException):
    """The process has died. Not an `Exception`, so that nothing but a test catches it."""


@dataclass(frozen=True)
class Fault:
    """Stop at the call `number` (from 0) of a trace; `torn` writes half of the bytes first."""

    number: int
    when: When


@dataclass(frozen=True)
class Trouble:
    """The call `number` (from 0) of a trace ends with an error, before it takes effect or after it has.

    `error` is one of the system's numbers, or an exception such as Ctrl-C; `lasting`: until the disk is repaired every later call
    ends with it too.
    """

    number: int
    error: int | type[BaseException]
    when: Literal["before", "after"] = "before"
    lasting: bool = False

    def hits(self, call: int, when: str) -> bool:
        """Whether it meets a call."""
        return self.when == when and (call == self.number or (self.lasting and call > self.number))

    def strike(self, name: str) -> NoReturn:
        """Raise it."""
        if isinstance(self.error, int):
            raise OSError(self.error, os.strerror(self.error), name)
        raise self.error(name)


@dataclass
class _Change:
    """A change of a folder that a power cut may undo, until the folder is synced."""

    folder: str
    undo: Callable[[], None]


@dataclass
class FaultyDisk(Disk):
    """Counts the calls that change the disk in `trace`; stops at `fault`; refuses every call after that.

    `before_call` gets each call's name before it happens: a test uses it to let another writer go first. `full_at`
    makes that call fail as on a full disk, and `trouble` in any other way. Nothing is really synced: `lose_power` undoes what was not asked to be; with a
    folder for `graves` (outside of the home, on the same file system) also what was deleted or replaced. Every folder has files
    without a name, where the system has any, unless `has_nameless` is False.
    """

    fault: Fault | None = None
    full_at: int | None = None
    trouble: Trouble | None = None
    graves: str | None = None
    before_call: Callable[[str], None] | None = None
    has_nameless: bool = hasattr(os, "O_TMPFILE")
    trace: list[str] = field(default_factory=list)
    crashed: bool = False
    _unsynced: set[int] = field(default_factory=set)
    _changes: list[_Change] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def create(self, path: str) -> int:
        with self._call("create"):
            descriptor = super().create(path)
            self._appeared(path)
            return descriptor

    def nameless(self, folder: str) -> int | None:
        """At once, and not a call that is counted: the real one takes what a thread has made."""
        if not self.has_nameless or self.crashed or not Path(folder).is_dir():
            return None
        return os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o644)

    def name(self, descriptor: int, path: str) -> None:
        with self._call("name"):
            super().name(descriptor, path)
            self._appeared(path)

    def write(self, descriptor: int, parts: Iterable[bytes | memoryview]) -> int:
        data = b"".join(bytes(part) for part in parts)
        self._unsynced.add(os.fstat(descriptor).st_ino)
        if self._is_next("torn"):
            os.write(descriptor, data[: len(data) // 2])
            self._die("write")
        with self._call("write", lambda: os.write(descriptor, data[: len(data) // 2])):
            return super().write(descriptor, [data])

    def fsync(self, descriptor: int) -> None:
        with self._call("fsync"):
            self._unsynced.discard(os.fstat(descriptor).st_ino)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)  # the system closes the files of a dead process

    def fsync_file(self, path: str) -> None:
        with self._call("fsync_file"):
            self._unsynced.discard(Path(path).stat().st_ino)

    def fsync_folder(self, path: str) -> None:
        with self._call("fsync_folder"):
            assert Path(path).is_dir()
            self._changes = [change for change in self._changes if change.folder != path]

    def link(self, source: str, target: str) -> None:
        with self._call("link"):
            super().link(source, target)
            self._appeared(target)

    def rename(self, source: str, target: str) -> None:
        """What no store may call: for what is shown outside of a home, and for stores that are wrong on purpose."""
        with self._call("rename"):
            old, moved = self._grave(target), self._grave(source)
            super().rename(source, target)
            self._changes.append(
                _Change(str(Path(target).parent), lambda: _unrename(source, target, moved, old))
            )

    def unlink(self, path: str) -> None:
        with self._call("unlink"):
            grave = self._grave(path)
            super().unlink(path)
            if grave is not None:
                self._changes.append(_Change(str(Path(path).parent), lambda: _restore(grave, path)))

    def mkdir(self, path: str) -> None:
        with self._call("mkdir"):
            super().mkdir(path)
            self._changes.append(
                _Change(str(Path(path).parent), lambda: shutil.rmtree(path, ignore_errors=True))
            )

    def lose_power(self, root: str, undone: Callable[[int], bool] = lambda _: True) -> None:
        """Empty the files never synced, and undo changes of folders never synced: all, or those `undone` picks."""
        for path in (path for top in (root, self.graves or root) for path in Path(top).rglob("*")):
            if path.is_file() and path.stat().st_ino in self._unsynced:
                os.truncate(path, 0)
        for number, change in reversed(list(enumerate(self._changes))):
            if undone(number):
                change.undo()
        self._changes.clear()

    def _appeared(self, path: str) -> None:
        self._changes.append(_Change(str(Path(path).parent), lambda: Path(path).unlink(missing_ok=True)))

    def _grave(self, path: str) -> str | None:
        """Another name of a file, outside of the home, from which it can come back; None when no test will ask."""
        if self.graves is None or not Path(path).exists():
            return None
        grave = f"{self.graves}/{id(self)}-{next(self._count)}"
        os.link(path, grave)
        return grave

    def _is_next(self, when: When) -> bool:
        return not self.crashed and self.fault == Fault(len(self.trace), when)

    def _die(self, name: str) -> None:
        self.trace.append(name)
        self.crashed = True
        raise SimulatedCrash(f"at call {len(self.trace) - 1}, {name}")

    def _call(self, name: str, partly: Callable[[], object] | None = None) -> _Call:
        return _Call(self, name, partly)


@dataclass
class _Call:
    disk: FaultyDisk
    name: str
    partly: Callable[[], object] | None = None

    def __enter__(self) -> None:
        disk = self.disk
        if disk.crashed:
            raise SimulatedCrash(f"{self.name} after the process died")
        if disk.before_call is not None:
            disk.before_call(self.name)
        disk._lock.acquire()
        try:
            if disk._is_next("before"):
                disk._die(self.name)
            if disk.trouble is not None and disk.trouble.hits(len(disk.trace), "before"):
                disk.trace.append(self.name)
                if self.partly is not None:
                    self.partly()
                disk.trouble.strike(self.name)
            if disk.full_at == len(disk.trace):
                disk.trace.append(self.name)
                if self.partly is not None:
                    self.partly()
                _refuse_for_space()
        except BaseException:
            disk._lock.release()
            raise

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        disk = self.disk
        try:
            if disk._is_next("after"):
                disk._die(self.name)
            disk.trace.append(self.name)
            if kind is None and disk.trouble is not None and disk.trouble.hits(len(disk.trace) - 1, "after"):
                disk.trouble.strike(self.name)
        finally:
            disk._lock.release()


def _refuse_for_space() -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _restore(grave: str, path: str) -> None:
    if not Path(path).exists() and Path(path).parent.is_dir():
        os.link(grave, path)


def _unrename(source: str, target: str, moved: str | None, old: str | None) -> None:
    Path(target).unlink(missing_ok=True)
    if old is not None:
        _restore(old, target)
    if moved is not None:
        _restore(moved, source)


def kill_points(trace: Iterable[str]) -> Iterator[Fault]:
    """Every way to stop an operation of which `trace` is the record."""
    for number, name in enumerate(trace):
        yield Fault(number, "before")
        if name == "write":
            yield Fault(number, "torn")
        yield Fault(number, "after")


def troubles(trace: Iterable[str]) -> Iterator[Trouble]:
    """Every way in which the system, or Ctrl-C, may spoil an operation of which `trace` is the record."""
    for number, name in enumerate(trace):
        for error in _BEFORE[name]:
            yield Trouble(number, error)
        for error in _AFTER.get(name, ()):
            yield Trouble(number, error, "after")
        yield Trouble(number, errno.EROFS, lasting=True)


_BEFORE: dict[str, tuple[int | type[BaseException], ...]] = {
    "create": (errno.ENOSPC, errno.EMFILE),
    "write": (errno.ENOSPC, errno.EIO),
    "name": (errno.EIO, errno.ENOSPC, KeyboardInterrupt),
    "fsync": (errno.EIO, KeyboardInterrupt),
    "fsync_file": (errno.EIO, errno.EMFILE, KeyboardInterrupt),
    "link": (errno.EIO, errno.ENOSPC, KeyboardInterrupt),
    "fsync_folder": (errno.EIO, errno.EMFILE, KeyboardInterrupt),
    "unlink": (errno.EIO,),
    "mkdir": (errno.ENOSPC,),
}
_AFTER: dict[str, tuple[int | type[BaseException], ...]] = {
    # A file system over a network repeats a call whose answer was lost, and answers as to a second one.
    "link": (errno.EEXIST, errno.EIO, KeyboardInterrupt),
    "name": (errno.EIO, KeyboardInterrupt),
    "fsync_folder": (errno.EIO, KeyboardInterrupt),
    "fsync": (KeyboardInterrupt,),
    "unlink": (errno.ENOENT, KeyboardInterrupt),
    "mkdir": (errno.EEXIST,),
}


def share_of(points: Sequence[Point], one_in: int, seed: str) -> list[Point]:
    """Every `one_in`-th point, beginning at another one whenever `seed` is another text; all of them in `make soak`.

    With a digest of the sources as `seed` a failure comes again until something is changed, and all points are tried in the
    course of some changes.
    """
    if os.environ.get("HYPOTHESIS_PROFILE") == "soak":
        return list(points)
    return list(points[int(hashlib.sha256(seed.encode()).hexdigest(), 16) % one_in :: one_in])
