"""Sorted rows of one side of a join, in order of (key hash, time), and their search.

A table is searched without building an index: the cost of a search follows the probing rows, and the logarithm of the
stored ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, flat, hashes, ints, picked_rows
from headrace.operators.rows.row_state import TIME
from headrace.time import FOREVER, Duration

HASH: Final = "__hash"
END: Final = "__until"
_MOST_PAIRS: Final = 1 << 17
_SMALL: Final = 1 << 9
"""Rows of a small piece."""
_LONG: Final = 16
"""Rows of a table, on average, from which on tables in order are merged."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


def key_hashes(keys: Sequence[pa.Array], rows: int) -> Ints:
    """A stable 64-bit hash of each row's key values; 0 without keys."""
    mixed = np.zeros(rows, np.uint64)
    for key in keys:
        mixed = mixed * _ODD + hashes(key).view(np.uint64)
    result: Ints = mixed.view(np.int64)
    return result


@dataclass(frozen=True, slots=True)
class Sorted:
    """A table in order of (hash, time): each row's hash and time, and the last instant at which it can be joined.

    That is stored, or `range_` after its time; with neither there is none. `is_spilled`: the rows were read from disk for their keys.
    """

    table: pa.Table
    hash: Ints
    at: Ints
    range_: Duration | None
    stored_until: Ints | None
    is_spilled: bool = False

    @staticmethod
    def of(table: pa.Table, range_: Duration | None) -> Sorted:
        """A table in order of (hash, time)."""
        hash_, at = (ints(table, name) for name in (HASH, TIME))
        return Sorted(table, hash_, at, range_, ints(table, END) if END in table.column_names else None)

    def until(self, rows: Ints | slice = slice(None)) -> Ints:
        """The last instant at which each of some rows can be joined."""
        if self.stored_until is not None:
            return self.stored_until[rows]
        at = self.at[rows]
        return np.full(len(at), FOREVER) if self.range_ is None else at + self.range_

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.at)


def pieces(tables: Sequence[pa.Table], range_: Duration | None) -> tuple[Sorted, ...]:
    """Tables in order of (hash, time), to be searched one by one; small ones are one, as a search costs more than their rows."""
    nonempty = [table for table in tables if table.num_rows]
    small = [table for table in nonempty if table.num_rows <= _SMALL]
    if len(small) > 1 and all(table.schema.equals(small[0].schema) for table in small):
        nonempty = [*(table for table in nonempty if table.num_rows > _SMALL), in_order(small)]
    return tuple(Sorted.of(table, range_) for table in nonempty)


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of tables, in order of (hash, time)."""
    whole = pa.concat_tables(tables)
    order = _order(*(ints(whole, name) for name in (HASH, TIME)))
    return picked_rows(whole, order)


def _order(hash_: Ints, at: Ints) -> Ints:
    """The order by (hash, time); stable. New rows mostly come in order of time: then the last bits of their hashes, which
    hardly ever decide, make room for their numbers, and plain integers are sorted. Tables in order are merged by their hashes.
    """
    rows = len(hash_)
    if np.count_nonzero(hash_[1:] < hash_[:-1]) * _LONG <= rows:
        order = hash_.argsort(kind="stable")  # which merges what is in order
        hashed, timed = hash_[order], at[order]
        if not ((timed[1:] < timed[:-1]) & (hashed[1:] == hashed[:-1])).any():
            return order
    by_time = at.argsort(kind="stable") if (at[1:] < at[:-1]).any() else None
    hashed = hash_ if by_time is None else hash_[by_time]
    bits = rows.bit_length()
    packed = ((hashed >> bits) << bits) | np.arange(rows)
    packed.sort()
    order = packed & ((1 << bits) - 1)
    ordered = hashed[order]
    if (ordered[1:] < ordered[:-1]).any():
        order = hashed.argsort(kind="stable")
    return order if by_time is None else by_time[order]


def of_one_hash(probing: Ints, held: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(probing row, stored row) of equal hashes, a bounded number of pairs at a time; the stored ones are in order of their hashes."""
    first, last = (np.searchsorted(held, probing, side) for side in ("left", "right"))
    for start, stop in portions(last - first):
        yield spread(first, last - first, start, stop)


def spread(low: Ints, counts: Ints, start: int, stop: int) -> tuple[Ints, Ints]:
    """The pairs of rows start..stop, each with `counts` rows from `low` on."""
    counts = counts[start:stop]
    row = np.repeat(np.arange(start, stop), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + low[row]


def bisected(at: Ints, first: Ints, last: Ints, bound: Ints, *, after: bool) -> Ints:
    """The first index at (or with `after`, past) the bound in each interval [first, last) of ascending times."""
    low, high = first.astype(np.int64), last.astype(np.int64)
    while (searching := low < high).any():
        middle = (low + high) // 2
        times = at[np.minimum(middle, len(at) - 1)]
        before = searching & ((times <= bound) if after else (times < bound))
        low, high = np.where(before, middle + 1, low), np.where(searching & ~before, middle, high)
    return low


def portions(counts: Ints) -> Iterator[tuple[int, int]]:
    """Intervals of rows with a bounded number of pairs, or one row."""
    total, start = np.cumsum(counts), 0
    while start < len(counts):
        done = total[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(total, done + _MOST_PAIRS, side="right")))
        yield start, stop
        start = stop


def usable(keys: Sequence[pa.Array], rows: int) -> npt.NDArray[np.bool_]:
    """The rows without a NULL key: others have no match."""
    result = np.ones(rows, bool)
    for key in keys:
        if key.null_count:
            result &= ~flat(key).is_null().to_numpy(zero_copy_only=False)
    return result
