"""Files of a home: `Store`, the interface, and `LocalStore`, which has them in a local folder. Files are immutable, and
are written, published, made durable, read, listed and deleted by name.

`write_once` makes a file under a name that is unique per attempt. `put_if_absent` publishes: of all writers of one name
exactly one succeeds.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, Protocol

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import AlreadyPublished, StoreError, WriteOutcome
from headrace.store.files.disk import Disk, UnsyncedDisk

UNFINISHED: Final = ".unfinished-"
"""Files that begin like this were never given their name; their writer may have died."""

_PART: Final = rf"(?!\.\.?(?:/|\Z)|{re.escape(UNFINISHED)})[^/\0\\]+"
_NAME: Final = re.compile(f"{_PART}(?:/{_PART})*")
_ASKED: Final = 1 << 19
"""Bytes that one advice names: the system cuts longer ones off at what it reads ahead."""
_SYNC_THREADS: Final = 8
_IN_MEMORY: Final = 1 << 21
"""Bytes of a file that an iterator makes, from which on they are written."""


class MissingFile(StoreError):
    """A file that was asked for by name is not in the home."""


class NotPermitted(StoreError):
    """This user may not do that in the home."""

    exit_code = 2


@dataclass(frozen=True, slots=True, order=True)
class StoredFile:
    """A file of a listing: `bytes` long, last changed at `modified` (microseconds since 1970)."""

    name: str
    bytes: int
    modified: int


class Store(Protocol):
    """What a shared file system, HDFS or an object store must offer. Names are relative, parts divided by `/`.

    Contract, asserted by tests: a name is visible only with all its bytes; a name, once visible, keeps its bytes until
    deleted; of several `put_if_absent` of one name exactly one returns True; True means durable.
    """

    @property
    def root(self) -> str:
        """Where the home is."""
        ...

    def read(self, name: str) -> bytes:
        """All bytes of a file; `MissingFile` when there is none."""
        ...

    def map(self, name: str) -> pa.Buffer:
        """The bytes of a file without reading them; valid also after the file is deleted."""
        ...

    def will_need(self, name: str, ranges: Iterable[tuple[int, int]]) -> None:
        """Advice that these ranges of a file, offsets and sizes in bytes, are read soon; no error where that cannot be given."""
        ...

    def write_once(self, name: str, parts: Iterable[Any], *, durable: bool = True) -> int:
        """Make a file of the parts, in bytes written. `AlreadyPublished` when the name is taken.

        Without `durable` the file is whole but may be lost by a power cut until `sync` has named it.
        """
        ...

    def put_if_absent(self, name: str, data: Any, *, after: Iterable[str] = ()) -> bool:
        """Publish durably unless the name is taken; whether it was this call that did.

        The files `after`, which were written without it, are durable before the name is visible. The `outcome` of a `StoreError` is whether the name was published.
        """
        ...

    def sync(self, names: Iterable[str]) -> None:
        """Make files durable that were written without it."""
        ...

    def set_aside(self, name: str) -> None:
        """Release the memory that caches a durable file, which will not be read soon."""
        ...

    def list(self, prefix: str = "", *, unfinished: bool = False) -> list[StoredFile]:
        """Files whose name begins with the prefix, by name; with `unfinished` those that were never given their name."""
        ...

    def delete(self, name: str, *, durable: bool = False) -> bool:
        """Delete a file; False when there was none. Unless `durable`, a power cut may bring it back."""
        ...

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        ...


class LocalStore:
    """A home in a folder of a local (or POSIX-faithful shared) file system. Small, picklable, safe to use from threads."""

    def __init__(self, root: str | os.PathLike[str], disk: Disk | None = None) -> None:
        self._root = _normalised(os.fspath(root)) if os.path.isabs(root) else str(Path(root).absolute())  # noqa: PTH117
        self._disk = disk or Disk()

    @staticmethod
    def at(root: str, *, synced: bool) -> LocalStore:
        """The same home in a task, by what its driver states of it."""
        return LocalStore(root, None if synced else UnsyncedDisk())

    @property
    def synced(self) -> bool:
        """Whether durable files survive a power cut; those of a temporary home need not."""
        return self._disk.syncs

    @property
    def root(self) -> str:
        """The home folder, absolute."""
        return self._root

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def path(self, name: str) -> str:
        """The path of a name; refuses names that would leave the home."""
        if not _NAME.fullmatch(name):
            raise StoreError(
                f"'{name}' cannot be the name of a file in the home {self._root}: expected parts divided by '/', "
                f"none of them empty, '.', '..' or beginning with '{UNFINISHED}'"
            )
        return f"{self._root}/{name}"

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        path = self.path(name)
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise self._store_error(error, name, "read") from error

    def map(self, name: str) -> pa.Buffer:
        """The bytes of a file as mapped memory; the mapping lives as long as the buffer and its slices."""
        path = self.path(name)
        try:
            with pa.memory_map(path) as file:
                return file.read_buffer()
        except OSError as error:
            raise self._store_error(error, name, "map") from error

    def will_need(self, name: str, ranges: Iterable[tuple[int, int]]) -> None:
        """Have the system read them into its page cache, without waiting for it; who reads the file then meets its errors."""
        if not hasattr(os, "posix_fadvise"):
            return
        with suppress(OSError), open(self.path(name), "rb", buffering=0) as file:  # noqa: PTH123 - as `exists`
            for start, size in ranges:
                for at in range(start, start + size, _ASKED):
                    asked = min(_ASKED, start + size - at)
                    os.posix_fadvise(file.fileno(), at, asked, os.POSIX_FADV_WILLNEED)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        path = self.path(name)
        try:
            return S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - a path object costs more than the call
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._store_error(error, name, "look for") from error

    def write_once(self, name: str, parts: Iterable[Any], *, durable: bool = True) -> int:
        """Make a file; whole or not at all, whatever happens in between."""
        path = self.path(name)
        try:
            # What is not synced yet may get its only name when it is whole: a sync that follows stores both.
            nameless = None if durable else self._disk.nameless(_folder_of(path))
            if nameless is not None:
                return self._write_nameless(nameless, path, name, parts)
            unfinished, size = self._write_unfinished(path, parts, [] if durable else None)
            if not self._publish(unfinished, path, name, "write"):
                raise self._taken(name)
            if durable:
                self._disk.fsync_folder(_folder_of(path))
        except OSError as error:
            # It may have its name: a file counts only once something durable names it.
            raise self._store_error(error, name, "write", "absent") from error
        return size

    def _write_nameless(self, descriptor: int, path: str, name: str, parts: Iterable[Any]) -> int:
        """Write a file that has no name yet, and give it its name; how many bytes. Nothing is left when that fails."""
        try:
            size = sum(self._disk.write(descriptor, portion) for portion in _portions(parts))
            try:
                self._disk.name(descriptor, path)
            except FileNotFoundError:  # the folder was deleted since the file was made
                self._make_folder(_folder_of(path))
                try:
                    self._disk.name(descriptor, path)
                except FileNotFoundError as error:
                    raise OSError(errno.EIO, "files cannot be named by their descriptors", path) from error
        except FileExistsError as error:
            raise self._taken(name) from error
        finally:
            self._disk.close(descriptor)
        return size

    def _taken(self, name: str) -> AlreadyPublished:
        return AlreadyPublished(
            f"the file '{name}' of the home {self._root} is already there: names must be unique for each attempt"
        )

    def put_if_absent(self, name: str, data: Any, *, after: Iterable[str] = ()) -> bool:
        """Publish; its own sync and those of the files before it are one wait. After a `StoreError` of unknown outcome, check, and `sync` what is there, before trying again."""
        path = self.path(name)
        try:
            unfinished, _ = self._write_unfinished(path, [data], self._syncs(after))
        except OSError as error:
            raise self._store_error(error, name, "publish", "absent") from error
        won = self._publish(unfinished, path, name, "publish")
        try:
            # The loser syncs too: it will act on the winner's file, which must then be as durable as its own.
            self._disk.fsync_folder(_folder_of(path))
        except OSError as error:
            raise self._store_error(error, name, "publish", "unknown") from error
        return won

    def _publish(self, unfinished: str, path: str, name: str, verb: str) -> bool:
        """Give a whole file its name; whether the name is this file's.

        An error is checked: a network file system may repeat a call that succeeded, and report that it failed, or that
        the name is taken. One file under both names means that the call took effect.
        """
        try:
            self._disk.link(unfinished, path)
        except OSError as error:
            try:
                is_ours = _is_one_file(unfinished, path)
            except OSError as blind:
                raise self._store_error(error, name, verb, "unknown") from blind
            if not is_ours and not isinstance(error, FileExistsError):
                raise self._store_error(error, name, verb, "absent") from error
            return is_ours
        finally:
            self._discard(unfinished)
        return True

    def sync(self, names: Iterable[str]) -> None:
        """Sync each file, and each of their folders once."""
        try:
            _all_at_once(self._syncs(names))
        except OSError as error:
            raise self._store_error(error, str(error.filename or "files"), "sync") from error

    def _syncs(self, names: Iterable[str]) -> list[Callable[[], None]]:
        """A call for each file; that of the last one in a folder syncs the folder too.

        The file's sync has committed the folder's names by then, where a file system has a journal: the second call costs nothing, and a
        thread for it would cost more than the wait.
        """
        paths = [self.path(name) for name in names]
        last = {_folder_of(path): path for path in paths}
        return [
            partial(self._sync_path, path, folder if last[folder] == path else None)
            for path in dict.fromkeys(paths)
            for folder in (_folder_of(path),)
        ]

    def _sync_path(self, path: str, folder: str | None) -> None:
        self._disk.fsync_file(path)
        if folder is not None:
            self._disk.fsync_folder(folder)

    def set_aside(self, name: str) -> None:
        """Drop the file's pages from the system's cache, where it takes such advice."""
        if not hasattr(os, "posix_fadvise"):
            return
        # Advice: where it cannot be given there is less free memory, and nothing else.
        with suppress(OSError), Path(self.path(name)).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def list(self, prefix: str = "", *, unfinished: bool = False) -> list[StoredFile]:
        """Files whose name begins with the prefix, sorted by name."""
        folder = prefix.rpartition("/")[0]
        top = self.path(folder) if folder else self._root
        try:
            files = [
                file
                for file in _walk(top, f"{folder}/" if folder else "")
                if file.name.startswith(prefix)
                and (file.name.rpartition("/")[2].startswith(UNFINISHED)) == unfinished
            ]
        except OSError as error:
            raise self._store_error(error, prefix, "list") from error
        return sorted(files)

    def delete(self, name: str, *, durable: bool = False) -> bool:
        """Delete a file."""
        folder, _, last = name.rpartition("/")
        if last.startswith(UNFINISHED):
            path = f"{self.path(folder) if folder else self._root}/{last}"
        else:
            path = self.path(name)
        try:
            self._disk.unlink(path)
            if durable:
                self._disk.fsync_folder(_folder_of(path))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._store_error(error, name, "delete") from error
        return True

    def _write_unfinished(
        self, path: str, parts: Iterable[Any], syncs: Sequence[Callable[[], None]] | None
    ) -> tuple[str, int]:
        """A whole file without its name yet, and its size; nothing is left when that fails.

        It is synced together with `syncs`, or not at all where these are None.
        """
        folder = _folder_of(path)
        unfinished = f"{folder}/{UNFINISHED}{uuid.uuid4().hex}"
        try:
            descriptor = self._disk.create(unfinished)
        except FileNotFoundError:
            self._make_folder(folder)
            descriptor = self._disk.create(unfinished)
        try:
            size = sum(self._disk.write(descriptor, portion) for portion in _portions(parts))
            if syncs is not None:
                _all_at_once([partial(self._disk.fsync, descriptor), *syncs])
        except OSError:
            self._discard(unfinished)
            raise
        finally:
            self._disk.close(descriptor)
        return unfinished, size

    def _make_folder(self, folder: str) -> None:
        """Make a folder and those above it, each durable in its parent before anything is put in it."""
        if Path(folder).is_dir():
            return
        parent = _folder_of(folder)
        self._make_folder(parent)
        with suppress(FileExistsError):  # another writer was quicker; it may not have synced yet
            self._disk.mkdir(folder)
        self._disk.fsync_folder(parent)

    def _discard(self, unfinished: str) -> None:
        # A leftover is harmless and collected later; failing here would report a published file as unpublished.
        with suppress(OSError):
            self._disk.unlink(unfinished)

    def _store_error(
        self, error: OSError, name: str, verb: str, outcome: WriteOutcome | None = None
    ) -> StoreError:
        if isinstance(error, FileNotFoundError):
            return MissingFile(f"there is no file '{name}' in the home {self._root}", outcome=outcome)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return StoreError(
                f"cannot {verb} '{name}': the disk of the home {self._root} is full. "
                "Free some space, or move the home to a larger disk, and start again",
                outcome=outcome,
            )
        if error.errno in {errno.EOPNOTSUPP, errno.EPERM} and error.filename2 is not None:
            return StoreError(
                f"cannot {verb} '{name}': the file system of the home {self._root} offers no hard links, without which "
                "two writers could overwrite each other. Put the home on a local file system",
                outcome=outcome,
            )
        if error.errno == errno.EROFS:
            return NotPermitted(
                f"cannot {verb} '{name}': the file system of the home {self._root} is read-only\n"
                "  Systems make it so when a disk fails. Mount it to be written again, or name another folder with --home DIR.",
                outcome=outcome,
            )
        if error.errno in {errno.EACCES, errno.EPERM}:
            return NotPermitted(
                f"cannot {verb} '{name}' in the home {self._root}: {error.strerror}\n"
                "  Give this user the right to write there, or name another folder with --home DIR.",
                outcome=outcome,
            )
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            return StoreError(
                f"cannot {verb} '{name}' in the home {self._root}: {error.strerror}. Raise the limit (ulimit -n)",
                outcome=outcome,
            )
        return StoreError(
            f"cannot {verb} '{name}' in the home {self._root}: {error.strerror or error}", outcome=outcome
        )


def _portions(parts: Iterable[Any]) -> Iterator[Sequence[Any]]:
    """A list of parts as it is; of an iterator as many at a time as take some memory."""
    if isinstance(parts, Sequence):
        yield parts
        return
    portion: list[Any] = []
    size = 0
    for part in parts:
        portion.append(part)
        size += len(part)
        if size >= _IN_MEMORY:
            yield portion
            portion, size = [], 0
    yield portion


@lru_cache(256)  # each task of an epoch opens its home
def _normalised(root: str) -> str:
    return str(Path(root))


def _all_at_once(syncs: Sequence[Callable[[], None]]) -> None:
    """Run syncs at the same time: a file system with a journal commits those that wait together. The first one needs no other thread.

    All have ended on return; the first error is raised.
    """
    running: list[Future[None]] = []
    own = list(syncs[:1])
    try:
        running += [_sync_threads().submit(sync) for sync in syncs[1:]]
    except RuntimeError:  # the interpreter is ending, and starts no threads any more
        own += syncs[1 + len(running) :]
    failures = [*map(_failure_of, own), *(done.exception() for done in running)]  # waits for each
    for failure in failures:
        if failure is not None:
            raise failure


def _failure_of(sync: Callable[[], None]) -> BaseException | None:
    """The error of a sync, or None."""
    try:
        sync()
    except BaseException as failure:  # noqa: BLE001 - raised once the others have ended
        return failure
    return None


@cache
def _sync_threads() -> ThreadPoolExecutor:
    """The threads of this process that sync."""
    return ThreadPoolExecutor(_SYNC_THREADS, "headrace-sync")


os.register_at_fork(after_in_child=_sync_threads.cache_clear)  # threads do not survive a fork


def _is_one_file(unfinished: str, path: str) -> bool:
    """Whether both names are of one file."""
    try:
        return os.path.samefile(unfinished, path)  # noqa: PTH121 - one call for both
    except FileNotFoundError:
        return False


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _walk(top: str, prefix: str) -> Iterator[StoredFile]:
    """Every regular file below a folder, without those deleted during the walk."""
    try:
        entries = list(os.scandir(top))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{name}/")
            continue
        with suppress(FileNotFoundError):
            stat = entry.stat(follow_symlinks=False)
            yield StoredFile(name, stat.st_size, stat.st_mtime_ns // 1000)
