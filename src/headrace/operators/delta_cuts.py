"""Which rows are in which delta window, which windows end now, and where does the last one of each partition stand?

What is kept of a partition is its *head*: the number of the window in progress, its first value, and the times of its first
and last row. Rows that punctuation has passed continue it in stream order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.bins import Ends
from headrace.operators.frames import Doubles, beginnings
from headrace.operators.grouping import Ints, flat, group
from headrace.operators.operator import SLOT
from headrace.operators.row_store import Held

NUMBER: Final = "__number"
_FIRST, _LAST, _VALUE = "__first", "__last", "__value"


@dataclass(frozen=True, slots=True)
class Cut:
    """Windows that end now (with their numbers and the times of their first rows and last rows), and the new heads.

    `number` is the window of each row that was cut.
    """

    ends: Ends
    ids: Ints
    first: Ints
    last: Ints
    number: Ints
    heads: pa.Table


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Heads and rows in one order: by partition, the head before the rows, the rows in stream order."""

    source: Ints
    codes: Ints
    values: Doubles
    base: Ints
    first: Ints
    last: Ints


def cut(
    parts: tuple[str, ...], on: str, threshold: float, rows: Held, heads: pa.Table | None, *, final: bool
) -> Cut:
    """Continue the windows of `heads` with rows that punctuation has passed; `final` ends the last ones too."""
    older = 0 if heads is None else heads.num_rows
    keys = [_both(rows.table, heads, name) for name in parts]
    codes = group(keys, rows.rows + older).codes
    stand = _sorted(codes, rows, heads, on)
    begins = beginnings(stand.codes, stand.values, threshold)
    fresh = np.r_[True, stand.codes[1:] != stand.codes[:-1]]
    number = np.cumsum(begins)
    starts = np.flatnonzero(fresh)
    sizes = np.diff(np.r_[starts, len(number)])
    number = number - np.repeat(number[starts], sizes) + np.repeat(stand.base[starts], sizes)
    opens = np.flatnonzero(fresh | begins)
    stops = np.r_[opens[1:], len(number)]
    is_last = np.r_[stand.codes[opens[1:]] != stand.codes[opens[:-1]], True]
    ended = np.flatnonzero(~is_last | final)
    first, last = stand.first[opens], stand.last[stops - 1]
    at = np.where(is_last, last, np.r_[stand.first[opens[1:]], 0])
    picked = stand.source[opens[ended]]
    ends = Ends(at[ended], stand.codes[opens[ended]], tuple(key.take(pa.array(picked)) for key in keys))
    of_rows = np.empty(rows.rows + older, np.int64)
    of_rows[stand.source] = number
    now = np.flatnonzero(is_last & (stand.source[stops - 1] < rows.rows))
    whose = stand.source[stops[now] - 1]
    table = pa.table(
        {
            SLOT: _both(rows.table, heads, SLOT).take(pa.array(whose)),
            **{name: key.take(pa.array(whose)) for name, key in zip(parts, keys, strict=True)},
            NUMBER: pa.array(number[opens[now]]),
            _FIRST: pa.array(first[now]),
            _LAST: pa.array(last[now]),
            _VALUE: pa.array(_first_values(stand.values, opens, stops)[now]),
        }
    )
    return Cut(ends, number[opens[ended]], first[ended], last[ended], of_rows[: rows.rows], table)


def _sorted(codes: Ints, rows: Held, heads: pa.Table | None, on: str) -> _Sorted:
    older = 0 if heads is None else heads.num_rows
    position = np.r_[rows.position, np.full(older, -1)]
    is_row = np.r_[np.ones(rows.rows, bool), np.zeros(older, bool)]
    at = np.r_[rows.at, _ints(heads, _LAST)]
    order = np.lexsort((position, at, is_row, codes))
    values = flat(rows.column(on)).cast(pa.float64()).to_numpy(zero_copy_only=False)
    kept = np.empty(0) if heads is None else flat(heads.column(_VALUE)).to_numpy(zero_copy_only=False)
    base = np.r_[np.ones(rows.rows, np.int64), _ints(heads, NUMBER)]
    first = np.r_[rows.at, _ints(heads, _FIRST)]
    whole = np.r_[values, kept].astype(np.float64)
    return _Sorted(order, codes[order], whole[order], base[order], first[order], at[order])


def _first_values(values: Doubles, opens: Ints, stops: Ints) -> Doubles:
    """The first value of each run [open, stop) of rows that is not NaN; NaN when there is none."""
    valued = np.flatnonzero(~np.isnan(values))
    place = np.searchsorted(valued, opens)
    found = np.r_[valued, len(values)][place]
    return np.where(found < stops, np.r_[values, np.nan][found], np.nan)


def newest_heads(parts: tuple[str, ...], tables: Sequence[pa.Table]) -> pa.Table | None:
    """The last head of each partition; None without any."""
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    return whole.filter(pa.array(greatest(whole, parts, _LAST)))


def greatest(table: pa.Table, parts: Sequence[str], name: str) -> np.ndarray:
    """Which rows have the greatest value of a column in their partition."""
    groups = group([flat(table.column(part)) for part in parts], table.num_rows)
    values = flat(table.column(name)).to_numpy(zero_copy_only=False)
    most = np.full(groups.count, np.iinfo(np.int64).min)
    np.maximum.at(most, groups.codes, values)
    kept: np.ndarray = values == most[groups.codes]
    return kept


def _both(rows: pa.Table, heads: pa.Table | None, name: str) -> pa.Array:
    own = flat(rows.column(name))
    return own if heads is None else pa.concat_arrays([own, flat(heads.column(name))])


def _ints(heads: pa.Table | None, name: str) -> Ints:
    if heads is None:
        return np.empty(0, np.int64)
    found: Ints = flat(heads.column(name)).to_numpy(zero_copy_only=False)
    return found
