"""Parts of runs that are read soon, announced to the system, so that several requests of a reader that jumps are in flight.

A sweep through a file is read ahead by the system; a reader that skips waits for each part, and saves little time by it even where parts
are megabytes long. With the next parts announced it saves time from parts of some hundred kilobytes on: `benchmarks oscar-skips`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import pyarrow.parquet as pq

AHEAD: Final = 8
"""Parts that are announced before the one that is read; more of them gain nothing."""
MOST_BYTES: Final = 1 << 25
"""Of parts that are announced before the one that is read, unless one alone has more."""
LEAST_BYTES: Final = 1 << 16
"""Of a part that is announced: reading around a page fault fetches as much."""
_GAP: Final = 1 << 16
"""Bytes between two ranges that are read with them: a request takes longer."""

_T = TypeVar("_T")


def announced(parts: Iterable[_T], announce: Callable[[_T], int]) -> Iterator[_T]:
    """The parts in their order, each after it and a few that follow were announced; `announce` returns the bytes of a part.

    >>> list(announced("abc", lambda part: print(part, end=" ") or 1))
    a b c ['a', 'b', 'c']
    """
    ahead = deque[tuple[_T, int]]()
    size = 0
    for part in parts:
        ahead.append((part, announce(part)))
        size += ahead[-1][1]
        while len(ahead) > AHEAD or (len(ahead) > 1 and size > MOST_BYTES):
            first, of_first = ahead.popleft()
            size -= of_first
            yield first
    yield from (part for part, _ in ahead)


def ranges_of(
    footer: pq.FileMetaData, columns: Collection[str], groups: Sequence[int]
) -> list[tuple[int, int]]:
    """Where in a file some columns of row groups are: offsets and sizes in bytes, ascending; those with little between them are one."""
    numbers = [number for number, name in enumerate(footer.schema.names) if name in columns]
    ranges = list[tuple[int, int]]()
    for group in groups:
        row_group = footer.row_group(group)
        for chunk in map(row_group.column, numbers):
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            end = start + chunk.total_compressed_size
            if ranges and 0 <= start - sum(ranges[-1]) <= _GAP:
                ranges[-1] = ranges[-1][0], end - ranges[-1][0]
            else:
                ranges.append((start, end - start))
    return ranges
