"""Files of a source that were listed before: what is recorded of each, which of them have changed since, and the
warning about that; also the end of the last whole line of a file that grows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from headrace.dataclass import dataclass
from headrace.time import Instant

UNKNOWN: Final = -1
"""The size of a file that was listed by an older version."""
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
        """The inverse; older versions wrote the arrival only."""
        return KnownFile(*value) if isinstance(value, list) else KnownFile(value)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file whose current content the stream does not have."""

    path: str
    change: Literal["grew", "was replaced"]


def changed_files(listed: Mapping[str, KnownFile], *, growth_is_read: bool) -> Iterator[ChangedFile]:
    """Files that changed after they were listed; a deleted one is no change."""
    for path, file in listed.items():
        if file.size == UNKNOWN:
            continue
        try:
            status = os.stat(path)  # noqa: PTH116 (10,000 of them)
        except OSError:
            continue
        if status.st_size > file.size:
            if not growth_is_read:
                yield ChangedFile(path, "grew")
        elif status.st_size < file.size or (file.mtime_ns > 0 and status.st_mtime_ns != file.mtime_ns):
            yield ChangedFile(path, "was replaced")


def describe_changes(stream: str, changed: list[ChangedFile], *, text: bool) -> str:
    """The warning about a stream's changed files."""
    first, count = changed[0], len(changed)
    which = f"'{first.path}' {first.change} after it was read, and the change is not in the stream"
    if count > 1:
        which = (
            f"{count:,} files changed after they were read, and the changes are not in the stream, such as that of "
            f"'{first.path}', which {first.change}"
        )
    remedy = "New rows belong in new files" + (
        ", or write OPTIONS (appended 'read')."
        if text and any(file.change == "grew" for file in changed)
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
