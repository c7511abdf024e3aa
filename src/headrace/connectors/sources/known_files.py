"""Files that were listed before: what is remembered of each, and which of them are others by now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from headrace.time import Instant

UNKNOWN: Final = -1
"""The size of a file that an older version has listed."""
_BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class KnownFile:
    """When a file was listed, up to which size it was read, and its modification time then (0 or less: of no matter)."""

    arrival: Instant
    size: int = UNKNOWN
    mtime_ns: int = 0

    def to_json(self) -> list[int]:
        """Plain values."""
        return [self.arrival, self.size, self.mtime_ns]

    @staticmethod
    def from_json(value: Any) -> KnownFile:
        """The inverse; an older version has written the arrival alone."""
        return KnownFile(*value) if isinstance(value, list) else KnownFile(value)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file of which the stream does not have what it holds now."""

    path: str
    change: Literal["grew", "was replaced"]


def changed_files(known: Mapping[str, KnownFile], *, growth_is_read: bool) -> Iterator[ChangedFile]:
    """Files that are not what they were when they were listed; one that is gone has nothing to lose."""
    for path, file in known.items():
        if file.size == UNKNOWN:
            continue
        try:
            found = os.stat(path)  # noqa: PTH116 (10,000 of them)
        except OSError:
            continue
        if found.st_size > file.size:
            if not growth_is_read:
                yield ChangedFile(path, "grew")
        elif found.st_size < file.size or (file.mtime_ns > 0 and found.st_mtime_ns != file.mtime_ns):
            yield ChangedFile(path, "was replaced")


def told_of(stream: str, changed: list[ChangedFile], *, text: bool) -> str:
    """What to say of a stream's changed files."""
    first, count = changed[0], len(changed)
    which = f"'{first.path}' {first.change} after it was read, and the change is not in the stream"
    if count > 1:
        which = (
            f"{count:,} files changed after they were read, and the changes are not in the stream, such as that of "
            f"'{first.path}', which {first.change}"
        )
    remedy = "New rows belong in new files" + (
        ", or write OPTIONS (appended 'read')."
        if text and any(each.change == "grew" for each in changed)
        else "."
    )
    return f"{stream}: {which}. {remedy}"


def end_of_lines(path: str, start: int, size: int) -> int:
    """The offset behind the last line feed in [start, size); `start` where there is none."""
    with open(path, "rb") as file:  # noqa: PTH123
        end = size
        while end > start:
            begin = max(start, end - _BLOCK)
            file.seek(begin)
            feed = file.read(end - begin).rfind(b"\n")
            if feed >= 0:
                return begin + feed + 1
            end = begin
    return start
