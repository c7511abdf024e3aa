"""Division of a partition's rows into sessions or delta windows (*frames*): the frame of each row, the frames that end
now, and the open frame of each partition as state.

Delta windows and sessions are *frames*: the rows of a partition in stream order, cut where one of them begins a new window.
The state of a partition is its *open frame*: the number of the window in progress, its first value, and the times of its
first and last row. Rows below punctuation continue it in stream order; they never change an earlier window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.due import settles
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import SLOT
from headrace.operators.families.extents import Extents
from headrace.operators.row_windows.delta_frames import Doubles, beginnings
from headrace.operators.row_windows.window_bins import Ends
from headrace.operators.rows.row_state import Held
from headrace.time import BEGINNING, FOREVER, Duration, Instant

NUMBER: Final = "__number"
_FIRST, _LAST, _VALUE = "__first", "__last", "__value"


@dataclass(frozen=True, slots=True)
class Cut:
    """Frames that end now (with their numbers, the times of their first rows and their window ends), and the new open
    frames.

    `number` is the frame of each row that was cut. `open` counts the frames that continue.
    """

    ends: Ends
    ids: Ints
    first: Ints
    last: Ints
    number: Ints
    open_frames: pa.Table
    open: int


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Open frames and rows in one order: by partition, the open frame before the rows, the rows in stream order."""

    source: Ints
    codes: Ints
    values: Doubles
    base: Ints
    first: Ints
    last: Ints
    gaps: Ints


@dataclass(frozen=True, slots=True)
class _Frames:
    """Frames in that order: where each opens and stops, and the times of its first and its last row.

    `emitted_to` is the punctuation up to which answers were emitted before.
    """

    opens: Ints
    stops: Ints
    first: Ints
    last: Ints
    is_last: np.ndarray
    gaps: Ints
    emitted_to: Instant


@dataclass(frozen=True, slots=True)
class ByDelta:
    """`[DELTA d ON x]`: a row beyond the first value of a frame begins the next. Numbered from 1; x is stored as `on`."""

    threshold: float
    on: str

    @property
    def extent(self) -> int:
        """None: windows of a family have one threshold."""
        return 0

    @property
    def shape(self) -> tuple[object, ...]:
        """All of it."""
        return self.threshold, self.on

    def together(self, queries: Extents) -> ByDelta:  # noqa: ARG002
        """The same for several queries."""
        return self

    def gaps(self, table: pa.Table) -> Ints:
        """None."""
        return np.zeros(table.num_rows, np.int64)

    def begins(self, current: _Sorted) -> np.ndarray:
        """Which rows begin a frame after another one of their partition."""
        return beginnings(current.codes, current.values, self.threshold)

    def numbers(self, current: _Sorted, begins: np.ndarray, fresh: np.ndarray) -> Ints:
        """The number of each row's frame: that of the open frame, plus one at each beginning."""
        number = np.cumsum(begins)
        starts = np.flatnonzero(fresh)
        sizes = np.diff(np.r_[starts, len(number)])
        counted: Ints = number + np.repeat(current.base[starts] - number[starts], sizes)
        return counted

    def ended(self, frames: _Frames, limit: Instant) -> np.ndarray:
        """Which frames get no more rows: all that another one follows."""
        over: np.ndarray = ~frames.is_last | (limit == FOREVER)
        return over

    def emitted_at(self, frames: _Frames) -> Ints:
        """When each frame is emitted: at the row that begins the next. The last one at its own last row, but not below
        the punctuation before the stream ended, or it would be late for readers of the answers.
        """
        return np.where(
            frames.is_last, np.maximum(frames.last, frames.emitted_to), np.r_[frames.first[1:], 0]
        )

    def window_ends(self, frames: _Frames) -> Ints:
        """The shown end of each frame."""
        return frames.last

    def unended_frames(self, open_frames: pa.Table, emitted_to: Instant) -> pa.Table:
        """The open frames that had not ended by punctuation at `emitted_to`."""
        return open_frames if emitted_to < FOREVER else open_frames.slice(0, 0)

    def time_ends(self, open_frames: pa.Table, limit: Instant) -> bool:
        """Whether a frame ends without a new row."""
        return limit == FOREVER and open_frames.num_rows > 0

    def next_end(self, open_frames: pa.Table, punctuation: Instant) -> Instant:  # noqa: ARG002
        """When the first frame ends without a new row: with its stream."""
        return FOREVER


@dataclass(frozen=True, slots=True)
class ByGap:
    """Sessions: a row more than the gap after the one before begins the next. Numbered by the times of their first rows."""

    gap: Duration
    on: None = None
    queries: Extents | None = None
    """Of sessions of several queries: their gaps."""

    @property
    def extent(self) -> int:
        """The gap."""
        return self.gap

    @property
    def shape(self) -> tuple[object, ...]:
        """Nothing: sessions of a family differ in their gaps."""
        return ()

    def together(self, queries: Extents) -> ByGap:
        """The same for several queries."""
        return replace(self, queries=queries)

    def gaps(self, table: pa.Table) -> Ints:
        """The gap of each row of a state table."""
        return np.full(table.num_rows, self.gap) if self.queries is None else self.queries.of_rows(table)

    def begins(self, current: _Sorted) -> np.ndarray:
        """Which rows begin a session after another one of their partition."""
        begins = np.zeros(len(current.codes), bool)
        begins[1:] = (current.codes[1:] == current.codes[:-1]) & (
            current.last[1:] - current.last[:-1] > current.gaps[1:]
        )
        return begins

    def numbers(self, current: _Sorted, begins: np.ndarray, fresh: np.ndarray) -> Ints:
        """The number of each row's session: the time of its first row."""
        opens = np.flatnonzero(fresh | begins)
        started: Ints = current.first[np.repeat(opens, np.diff(np.r_[opens, len(begins)]))]
        return started

    def ended(self, frames: _Frames, limit: Instant) -> np.ndarray:
        """Which sessions no row at `limit` or later can join; a row exactly at a session's end would join."""
        over: np.ndarray = ~frames.is_last | (frames.last < _ended_before(limit, frames.gaps))
        return over

    def emitted_at(self, frames: _Frames) -> Ints:
        """When each session is emitted: at its end."""
        return frames.last + frames.gaps

    def window_ends(self, frames: _Frames) -> Ints:
        """The end of each session."""
        return frames.last + frames.gaps

    def unended_frames(self, open_frames: pa.Table, emitted_to: Instant) -> pa.Table:
        """The sessions that had not ended by punctuation at `emitted_to`."""
        before = _ended_before(emitted_to, self.gaps(open_frames))
        return open_frames.filter(pa.array(_ints(open_frames, _LAST) >= before))

    def time_ends(self, open_frames: pa.Table, limit: Instant) -> bool:
        """Whether a session ends without a new row."""
        before = _ended_before(limit, self.gaps(open_frames))
        return bool((_ints(open_frames, _LAST) < before).any())

    def next_end(self, open_frames: pa.Table, punctuation: Instant) -> Instant:
        """When the first session ends that has not, without a new row."""
        return settles(_ints(open_frames, _LAST) + self.gaps(open_frames), punctuation)


def _ended_before(limit: Instant, gaps: Ints) -> Ints:
    """Sessions whose last row is before this instant have ended; all have if the stream has."""
    if limit == FOREVER:
        return np.full(len(gaps), FOREVER)
    before: Ints = np.maximum(limit, BEGINNING + gaps) - gaps
    return before


Cutter: TypeAlias = ByDelta | ByGap


def cut(
    parts: tuple[str, ...],
    cutter: Cutter,
    rows: Held,
    open_frames: pa.Table | None,
    emitted_to: Instant,
    limit: Instant,
) -> Cut:
    """Continue the open frames with rows below punctuation, which advances from `emitted_to` to `limit`."""
    older = 0 if open_frames is None else open_frames.num_rows
    keys = [_both(rows.table, open_frames, name) for name in parts]
    gaps = [cutter.gaps(table) for table in (rows.table, open_frames) if table is not None]
    current = _sorted(
        group(keys, rows.rows + older).codes, rows, open_frames, cutter.on, np.concatenate(gaps)
    )
    begins = cutter.begins(current)
    fresh = np.r_[True, current.codes[1:] != current.codes[:-1]]
    number = cutter.numbers(current, begins, fresh)
    opens = np.flatnonzero(fresh | begins)
    stops = np.r_[opens[1:], len(number)]
    is_last = np.r_[current.codes[opens[1:]] != current.codes[opens[:-1]], True]
    first, last = current.first[opens], current.last[stops - 1]
    frames = _Frames(opens, stops, first, last, is_last, current.gaps[opens], emitted_to)
    over = cutter.ended(frames, limit)
    ended = np.flatnonzero(over)
    picked = pa.array(current.source[opens[ended]])
    emitted_at = cutter.emitted_at(frames)[ended]
    ends = Ends(emitted_at, current.codes[opens[ended]], tuple(key.take(picked) for key in keys))
    of_rows = np.empty(rows.rows + older, np.int64)
    of_rows[current.source] = number
    return Cut(
        ends,
        number[opens[ended]],
        frames.first[ended],
        cutter.window_ends(frames)[ended],
        of_rows[: rows.rows],
        _new_open_frames(
            parts, keys, _both(rows.table, open_frames, SLOT), current, frames, number, rows.rows
        ),
        int((~over).sum()),
    )


def _new_open_frames(
    parts: Sequence[str],
    keys: Sequence[pa.Array],
    slots: pa.Array,
    current: _Sorted,
    frames: _Frames,
    number: Ints,
    rows: int,
) -> pa.Table:
    """The new open frame of each partition that got a row."""
    open_ones = np.flatnonzero(frames.is_last & (current.source[frames.stops - 1] < rows))
    source = pa.array(current.source[frames.stops[open_ones] - 1])
    return pa.table(
        {
            SLOT: slots.take(source),
            **{name: key.take(source) for name, key in zip(parts, keys, strict=True)},
            NUMBER: pa.array(number[frames.opens[open_ones]]),
            _FIRST: pa.array(frames.first[open_ones]),
            _LAST: pa.array(frames.last[open_ones]),
            _VALUE: pa.array(_first_values(current.values, frames.opens, frames.stops)[open_ones]),
        }
    )


def _sorted(codes: Ints, rows: Held, open_frames: pa.Table | None, on: str | None, gaps: Ints) -> _Sorted:
    older = 0 if open_frames is None else open_frames.num_rows
    position = np.r_[rows.position, np.full(older, -1)]
    is_row = np.r_[np.ones(rows.rows, bool), np.zeros(older, bool)]
    at = np.r_[rows.at, _ints(open_frames, _LAST)]
    order = np.lexsort((position, at, is_row, codes))
    if on is None:
        values = np.full(rows.rows, np.nan)
    else:
        values = flat(rows.column(on)).cast(pa.float64()).to_numpy(zero_copy_only=False)
    first_values = np.empty(0) if open_frames is None else ints(open_frames, _VALUE)
    base = np.r_[np.ones(rows.rows, np.int64), _ints(open_frames, NUMBER)]
    first = np.r_[rows.at, _ints(open_frames, _FIRST)]
    whole = np.r_[values, first_values].astype(np.float64)
    return _Sorted(order, codes[order], whole[order], base[order], first[order], at[order], gaps[order])


def _first_values(values: Doubles, opens: Ints, stops: Ints) -> Doubles:
    """The first value of each run [open, stop) of rows that is not NaN; NaN when there is none."""
    valued = np.flatnonzero(~np.isnan(values))
    index = np.searchsorted(valued, opens)
    rows = np.r_[valued, len(values)][index]
    return np.where(rows < stops, np.r_[values, np.nan][rows], np.nan)


def latest_open_frames(parts: tuple[str, ...], tables: Sequence[pa.Table]) -> pa.Table | None:
    """The last open frame of each partition; None without any."""
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    return whole.filter(pa.array(max_rows(whole, parts, _LAST)))


def max_rows(table: pa.Table, parts: Sequence[str], name: str) -> np.ndarray:
    """Which rows have the greatest value of a column in their partition."""
    groups = group([flat(table.column(part)) for part in parts], table.num_rows)
    values = ints(table, name)
    most = np.full(groups.count, np.iinfo(np.int64).min)
    np.maximum.at(most, groups.codes, values)
    is_max: np.ndarray = values == most[groups.codes]
    return is_max


def _both(rows: pa.Table, open_frames: pa.Table | None, name: str) -> pa.Array:
    column = flat(rows.column(name))
    return column if open_frames is None else pa.concat_arrays([column, flat(open_frames.column(name))])


def _ints(open_frames: pa.Table | None, name: str) -> Ints:
    if open_frames is None:
        return np.empty(0, np.int64)
    return ints(open_frames, name)
