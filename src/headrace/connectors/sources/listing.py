"""Listing of a stream's files on the driver: new files, and lines appended to known ones, in order, as ingest records;
also globs in paths, and the checks that a path has something to read.

The order is that of modification time, then name; cuts depend on a file's size (and its footer) alone.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Final

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats.text_lines import is_divisible
from headrace.connectors.records.ingest_record import GROWING, IngestRecord
from headrace.connectors.records.options import FILES, flag, option, reads_appended, text_options
from headrace.connectors.sources.known_files import UNKNOWN, KnownFile, end_of_lines
from headrace.connectors.sources.source_file import unreadable
from headrace.connectors.sources.splits import ranges
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.time import SECOND, Instant

Position = tuple[tuple[str, int], ...]

_SETTLED: Final = 2 * SECOND
"""A folder changed this recently may change again without a new modification time."""


@dataclass(frozen=True, slots=True)
class Listing:
    """New records, and the position for the next listing: None when it has to list everything again."""

    records: list[IngestRecord]
    position: Position | None


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    mtime_ns: int
    start: int = 0


def list_new(definition: StreamDefinition, listed: Container[str], now: Instant) -> list[IngestRecord]:
    """The records of files whose path is not `listed` before, in the stream's order; with `appended 'read'` of those that grew, too.

    Hidden files (`.`, `_`), `*.tmp` and empty files are ignored; folders within a folder are not searched. Raises
    `UserError` for a path that cannot be there or cannot be read.
    """
    return list_changed(definition, listed, now).records


def list_changed(
    definition: StreamDefinition, listed: Container[str], now: Instant, position: Position | None = None
) -> Listing:
    """As `list_new`; a folder that has not changed since `position` is not listed again."""
    path = option(definition.options, "path", "")
    if definition.using.lower() not in FILES or not path:
        raise UserError(
            f"'{definition.name}' is no stream of files",
            remedy=f"USING one of {', '.join(FILES)}, with a path.",
        )
    is_flat = not flag(definition.options, "recursiveFileLookup")
    before = _folder_times(path, now) if is_flat and not reads_appended(definition) else None
    if position is not None and position == before:
        return Listing([], position)
    files, pending = _new_files(definition, path, listed)
    if option(definition.options, "order", "time").lower() == "name":
        files.sort(key=lambda file: file.path)
    else:
        files.sort(key=lambda file: (file.mtime_ns, file.path))
    may_grow = _growing(definition)
    records = [
        record for file in files for record in _records(definition, file, now, grows=may_grow(file.path))
    ]
    return Listing(records, None if pending else before)


def _folder_times(path: str, now: Instant) -> Position | None:
    """The modification times of the folders; None unless every one is old enough to show any later change."""
    if _is_glob(path):
        return None
    try:
        status = os.stat(path)  # noqa: PTH116 - each epoch, and a path object costs more than the call
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode) or status.st_mtime_ns // 1000 > now - _SETTLED:
        return None
    return ((path, status.st_mtime_ns),)


def _new_files(definition: StreamDefinition, path: str, listed: Container[str]) -> tuple[list[_File], bool]:
    """Files that are not listed yet, and whether some are empty and have to be listed again."""
    pattern = option(definition.options, "pathGlobFilter", "*")
    files, pending = [], False
    may_grow = _growing(definition)
    for name in _named(definition, path):
        grown = _grown(name, listed) if may_grow(name) else None
        if (grown is None and name in listed) or not fnmatch.fnmatchcase(os.path.basename(name), pattern):  # noqa: PTH119 (10,000 of them)
            continue
        try:
            status = os.stat(name)  # noqa: PTH116
        except FileNotFoundError:
            continue  # moved away since it was listed
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                continue  # a symbolic link to itself is no file
            raise unreadable(name, problem) from None
        if not stat.S_ISREG(status.st_mode):
            continue
        if not status.st_size:
            pending = True
            continue
        if not os.access(name, os.R_OK):
            raise unreadable(name, PermissionError(13, "permission denied"))
        if not may_grow(name):
            files.append(_File(name, status.st_size, status.st_mtime_ns))
            continue
        start = 0 if grown is None else grown.size
        end = end_of_lines(name, start, status.st_size)
        if end > start:
            files.append(_File(name, end, status.st_mtime_ns, start))
    return files, pending


def _growing(definition: StreamDefinition) -> Callable[[str], bool]:
    """Whether lines that are appended to a file are rows of the stream, by its path."""
    if not reads_appended(definition):
        return lambda _: False
    encoding = text_options(definition.options).encoding
    return lambda name: is_divisible(name, encoding)


def _grown(name: str, listed: Container[str]) -> KnownFile | None:
    """The record of a file that may have grown since it was listed; None for one that was not listed."""
    file = listed.get(name) if isinstance(listed, Mapping) else None
    return file if isinstance(file, KnownFile) and file.size != UNKNOWN else None


def _named(definition: StreamDefinition, path: str) -> Iterator[str]:
    """Candidate files: the path itself, the files of a folder, or the matches of a glob."""
    deep = flag(definition.options, "recursiveFileLookup")
    if _is_glob(path) and not Path(path).exists():
        for pattern in written_out(path):
            _require_readable(pattern)
        for name in _matches(path):
            if os.path.isdir(name):  # noqa: PTH112
                yield from _folder(name, deep=deep)
            elif _is_visible(name.rpartition("/")[2]):
                yield name
        return
    if os.path.isdir(path):  # noqa: PTH112
        yield from _folder(path, deep=deep)
    elif os.path.exists(path):  # noqa: PTH110
        yield path


def _matches(path: str) -> list[str]:
    return sorted({name for part in written_out(path) for name in glob.glob(part, recursive=True)})  # noqa: PTH207


def require_place(definition: StreamDefinition) -> None:
    """Check that a new stream of files has the folder that its files are in, or will be.

    Raises `UserError` when there is none. If the folder is removed later, the stream waits, as for a file.
    """
    path = option(definition.options, "path", "")
    if definition.using.lower() not in FILES or not path or Path(path).exists():
        return
    folders = [_fixed(part) for part in written_out(path)] if _is_glob(path) else [Path(path).parent]
    if not any(folder.is_dir() for folder in folders):
        raise UserError(
            f"stream '{definition.name}': there is no '{path}', nor the folder '{folders[0]}' it would be in",
            remedy="Correct the path, or make the folder first: files that come later are then picked up.",
        )


def not_there_yet(definition: StreamDefinition) -> str | None:
    """A notice for a stream of files whose path has nothing to read yet; None when there is something."""
    path = option(definition.options, "path", "")
    if definition.using.lower() not in FILES or not path or Path(path).exists():
        return None
    if _is_glob(path) and any(next(glob.iglob(part, recursive=True), None) for part in written_out(path)):  # noqa: PTH207
        return None
    what = f"nothing matches '{path}'" if _is_glob(path) else f"there is no '{path}'"
    return f"{definition.name}: {what} yet; the stream waits for it. If that is a slip, DROP STREAM and correct the path."


def _fixed(pattern: str) -> Path:
    """The folder in which a glob begins to search: the path before its first symbol."""
    parts = Path(pattern).parts
    fixed = next((index for index, part in enumerate(parts) if _is_glob(part)), len(parts) - 1)
    return Path(*parts[:fixed])


def _require_readable(pattern: str) -> None:
    """Refuse an unreadable folder, which a glob cannot distinguish from an empty one."""
    folder = _fixed(pattern)
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise unreadable(folder, PermissionError(13, "permission denied"))


def _folder(path: str, *, deep: bool, within: tuple[str, ...] = ()) -> Iterator[str]:
    """Files in a folder, with `deep` also in those below it; a symbolic link to one of `within` leads in a circle."""
    above = (*within, os.path.realpath(path)) if deep else ()
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if not _is_folder(entry):
                    if _is_visible(entry.name):
                        yield entry.path
                elif deep and not entry.name.startswith((".", "_")) and not _leads_back(entry, above):
                    yield from _folder(entry.path, deep=True, within=above)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise unreadable(path, problem) from None


def _leads_back(entry: os.DirEntry[str], above: tuple[str, ...]) -> bool:
    return entry.is_symlink() and os.path.realpath(entry.path) in above


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            return False
        raise


def _is_visible(name: str) -> bool:
    return not name.startswith((".", "_")) and not name.endswith((".tmp", "._COPYING_"))


def _is_glob(path: str) -> bool:
    return any(symbol in path for symbol in "*?[{")


def written_out(path: str) -> Iterator[str]:
    """The paths that a Hadoop glob with `{a,b}` means."""
    matched = re.search(r"\{([^{}]*)\}", path)
    if matched is None:
        yield path
        return
    for piece in matched[1].split(","):
        yield from written_out(path[: matched.start()] + piece + path[matched.end() :])


def _records(
    definition: StreamDefinition, file: _File, now: Instant, *, grows: bool
) -> Iterator[IngestRecord]:
    using = definition.using.lower()
    mtime_ns = GROWING if grows else file.mtime_ns
    for start, end, rows in ranges(file.path, using, file.size, definition.options, file.start):
        yield IngestRecord(definition.name, file.path, using, start, end, file.size, mtime_ns, now, rows)
