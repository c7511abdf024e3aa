"""The driver's side: which files of a source are new, in which order, cut into which ranges.

The order is that of modification time, then name; cuts depend on a file's size (and its footer) alone. Nothing else does.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats.text_lines import is_divisible
from headrace.connectors.records.ingest_record import GROWING, IngestRecord
from headrace.connectors.records.options import FILES, flag, option, reads_appended, text_options
from headrace.connectors.sources.known_files import UNKNOWN, KnownFile, end_of_lines
from headrace.connectors.sources.source_file import unreadable
from headrace.connectors.sources.splits import ranges
from headrace.errors import UserError
from headrace.time import SECOND, Instant

Position = tuple[tuple[str, int], ...]

_SETTLED: Final = 2 * SECOND
"""A folder changed this recently may change again without its modification time telling."""


@dataclass(frozen=True, slots=True)
class Listing:
    """New records, and what to hand to the next `look`: None when it has to look at everything again."""

    records: list[IngestRecord]
    position: Position | None


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    size: int
    mtime_ns: int
    start: int = 0


def list_new(definition: StreamDefinition, known: Container[str], now: Instant) -> list[IngestRecord]:
    """The records of files whose path is not `known`, in the stream's order; with `appended 'read'` of known ones that grew.

    Hidden files (`.`, `_`), `*.tmp` and empty files are passed over; folders within a folder are not searched. Raises
    `UserError` for a path that cannot be there or cannot be read.
    """
    return list_changed(definition, known, now).records


def list_changed(
    definition: StreamDefinition, known: Container[str], now: Instant, position: Position | None = None
) -> Listing:
    """The same; a folder that has not changed since `mark` was given is not listed again."""
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
    found, pending = _new_files(definition, path, known)
    if option(definition.options, "order", "time").lower() == "name":
        found.sort(key=lambda each: each.path)
    else:
        found.sort(key=lambda each: (each.mtime_ns, each.path))
    may_grow = _growing(definition)
    records = [
        record for each in found for record in _records(definition, each, now, grows=may_grow(each.path))
    ]
    return Listing(records, None if pending else before)


def _folder_times(path: str, now: Instant) -> Position | None:
    """The modification times of the folders; None unless every one is older than a change could hide in."""
    if _is_glob(path):
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode) or status.st_mtime_ns // 1000 > now - _SETTLED:
        return None
    return ((path, status.st_mtime_ns),)


def _new_files(definition: StreamDefinition, path: str, known: Container[str]) -> tuple[list[_Found], bool]:
    """Files not known yet, and whether some are still empty and have to be looked at again."""
    pattern = option(definition.options, "pathGlobFilter", "*")
    found, pending = [], False
    may_grow = _growing(definition)
    for name in _named(definition, path):
        grown = _grown(name, known) if may_grow(name) else None
        if (grown is None and name in known) or not fnmatch.fnmatchcase(os.path.basename(name), pattern):  # noqa: PTH119 (10,000 of them)
            continue
        try:
            status = os.stat(name)  # noqa: PTH116
        except FileNotFoundError:
            continue  # moved away between listing and looking
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                continue  # a symbolic link that leads to itself leads to no file
            raise unreadable(name, problem) from None
        if not stat.S_ISREG(status.st_mode):
            continue
        if not status.st_size:
            pending = True
            continue
        if not os.access(name, os.R_OK):
            raise unreadable(name, PermissionError(13, "permission denied"))
        if not may_grow(name):
            found.append(_Found(name, status.st_size, status.st_mtime_ns))
            continue
        start = 0 if grown is None else grown.size
        end = end_of_lines(name, start, status.st_size)
        if end > start:
            found.append(_Found(name, end, status.st_mtime_ns, start))
    return found, pending


def _growing(definition: StreamDefinition) -> Callable[[str], bool]:
    """To which files lines may be appended, which the stream then has too."""
    if not reads_appended(definition):
        return lambda _: False
    encoding = text_options(definition.options).encoding
    return lambda name: is_divisible(name, encoding)


def _grown(name: str, known: Container[str]) -> KnownFile | None:
    """What is known of a file that may have grown since it was listed; None for one that was not."""
    file = known.get(name) if isinstance(known, Mapping) else None
    return file if isinstance(file, KnownFile) and file.size != UNKNOWN else None


def _named(definition: StreamDefinition, path: str) -> Iterator[str]:
    """Candidate files: the path itself, what is in a folder, or what a glob meets."""
    deep = flag(definition.options, "recursiveFileLookup")
    if _is_glob(path) and not Path(path).exists():
        for pattern in _alternatives(path):
            _require_readable(pattern)
        for each in sorted({name for one in _alternatives(path) for name in glob.glob(one, recursive=True)}):  # noqa: PTH207
            yield from _folder(each, deep=deep) if os.path.isdir(each) else _visible(each)  # noqa: PTH112
        return
    if os.path.isdir(path):  # noqa: PTH112
        yield from _folder(path, deep=deep)
    elif os.path.exists(path):  # noqa: PTH110
        yield path


def require_place(definition: StreamDefinition) -> None:
    """What a stream of files needs when it is made: the folder that its files are in, or will be.

    Raises `UserError` when even that is not there. Later it may go away: the stream then waits, as for a file.
    """
    path = option(definition.options, "path", "")
    if definition.using.lower() not in FILES or not path or Path(path).exists():
        return
    folders = [_fixed(each) for each in _alternatives(path)] if _is_glob(path) else [Path(path).parent]
    if not any(folder.is_dir() for folder in folders):
        raise UserError(
            f"stream '{definition.name}': there is no '{path}', nor the folder '{folders[0]}' it would be in",
            remedy="Correct the path, or make the folder first: files that come later are then picked up.",
        )


def not_there_yet(definition: StreamDefinition) -> str | None:
    """What to tell who has a stream of files whose path has nothing at it yet; None when there is something to read."""
    path = option(definition.options, "path", "")
    if definition.using.lower() not in FILES or not path or Path(path).exists():
        return None
    if _is_glob(path) and any(next(glob.iglob(each, recursive=True), None) for each in _alternatives(path)):  # noqa: PTH207
        return None
    what = f"nothing matches '{path}'" if _is_glob(path) else f"there is no '{path}'"
    return f"{definition.name}: {what} yet; the stream waits for it. If that is a slip, DROP STREAM and correct the path."


def _fixed(pattern: str) -> Path:
    """The folder in which a glob begins to look: what stands before its first symbol."""
    parts = Path(pattern).parts
    fixed = next((place for place, part in enumerate(parts) if _is_glob(part)), len(parts) - 1)
    return Path(*parts[:fixed])


def _require_readable(pattern: str) -> None:
    """A folder that may not be read looks to a glob like an empty one."""
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
                    yield from _visible(entry.path)
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


def _visible(path: str) -> Iterator[str]:
    name = path.rpartition("/")[2]
    if not name.startswith((".", "_")) and not name.endswith((".tmp", "._COPYING_")):
        yield path


def _is_glob(path: str) -> bool:
    return any(symbol in path for symbol in "*?[{")


def _alternatives(path: str) -> list[str]:
    """`{a,b}` of a Hadoop glob, written out."""
    matched = re.search(r"\{([^{}]*)\}", path)
    if matched is None:
        return [path]
    pieces = matched[1].split(",")
    return [
        each
        for piece in pieces
        for each in _alternatives(path[: matched.start()] + piece + path[matched.end() :])
    ]


def _records(
    definition: StreamDefinition, found: _Found, now: Instant, *, grows: bool
) -> Iterator[IngestRecord]:
    using = definition.using.lower()
    mtime_ns = GROWING if grows else found.mtime_ns
    for start, end, rows in ranges(found.path, using, found.size, definition.options, found.start):
        yield IngestRecord(definition.name, found.path, using, start, end, found.size, mtime_ns, now, rows)
