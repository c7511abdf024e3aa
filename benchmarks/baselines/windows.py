"""Sliding windows over one stream by buffering, by differences, by negative tuples, and by one partial for each open window.

Time is a whole number in any unit; window w is [(w + 1) * slide - range, (w + 1) * slide). A docstring names what needs order.
Li 2008, sections 3.1, 6.1 and 6.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sliding:
    """A window specification."""

    range: int
    slide: int

    def first_of(self, at: Ints) -> Ints:
        """The first window that holds each instant."""
        return at // self.slide

    def archive_list_of(self, at: Ints) -> Ints:
        """One past the last window that holds each instant."""
        return (at + self.range) // self.slide

    def ends(self, windows: Ints) -> Ints:
        """Where windows end."""
        return (windows + 1) * self.slide

    def complete(self, bound: int) -> Ints:
        """The windows from 0 on that end at or before `bound`."""
        return np.arange(bound // self.slide)


@dataclass(frozen=True, slots=True)
class Answers:
    """One value for each of `windows` (NaN: no row), and the most rows or partials kept at once."""

    windows: Ints
    values: Floats
    kept: int


def extents(at: Ints, windows: Ints, spec: Sliding) -> tuple[Ints, Ints]:
    """The rows [start, stop) of each window, `at` in order."""
    ends = spec.ends(windows)
    return np.searchsorted(at, ends - spec.range), np.searchsorted(at, ends)


def by_buffering(at: Ints, value: Floats, spec: Sliding, fold: np.ufunc = np.maximum) -> Answers:
    """Keep the rows of open windows, in order; when a window ends, scan its extent. Rows come in order.

    `reduceat` scans every extent in C: a row is read once for each window it is in, which is what the method does.
    """
    windows = spec.complete(int(at[-1]))
    start, stop = extents(at, windows, spec)
    padded = np.append(value, value[-1])
    pairs = np.column_stack([start, stop]).reshape(-1)
    scanned = fold.reduceat(padded, pairs)[::2]
    return Answers(windows, np.where(start < stop, scanned, np.nan), int((stop - start).max(initial=0)))


def by_grouped_buffering(at: Ints, key: Ints, value: Floats, spec: Sliding, windows: Ints) -> pa.Table:
    """The greatest value of each key: when a window ends, Arrow groups its extent. Rows come in order."""
    start, stop = extents(at, windows, spec)
    rows = pa.table({"k": pa.array(key, pa.int32()), "v": pa.array(value)})
    answers = []
    for window, low, high in zip(windows.tolist(), start.tolist(), stop.tolist(), strict=True):
        answer = rows.slice(low, high - low).group_by("k", use_threads=False).aggregate([("v", "max")])
        ends = pa.array(np.full(answer.num_rows, (window + 1) * spec.slide))
        answers.append(answer.append_column("window_end", ends))
    return pa.concat_tables(answers)


def by_differences(at: Ints, value: Floats, spec: Sliding) -> Answers:
    """Sums: the last window's, less what has expired, plus what is new. Rows come in order, and are kept until they expire."""
    windows = spec.complete(int(at[-1]))
    start, stop = extents(at, windows, spec)
    padded = np.append(value, 0.0)
    fresh, expired = _segments(padded, np.r_[0, stop]), _segments(padded, np.r_[0, start])
    sums = np.cumsum(fresh - expired)
    return Answers(windows, np.where(start < stop, sums, np.nan), int((stop - start).max(initial=0)))


def _segments(value: Floats, bounds: Ints) -> Floats:
    total = np.add.reduceat(value, bounds)[:-1]
    return np.where(bounds[:-1] < bounds[1:], total, 0.0)


def by_negative_tuples(at: Ints, value: Floats, spec: Sliding) -> Answers:
    """Sums: every row comes once more when it expires, as a negative one. Rows come in order; the copies wait in a queue."""
    windows = spec.complete(int(at[-1]))
    ends = spec.ends(windows)
    instants = np.concatenate([at, at + spec.range])
    signed = np.concatenate([value, -value])
    order = np.argsort(instants, kind="stable")
    running = np.append(0.0, np.cumsum(signed[order]))
    sums = running[np.searchsorted(instants[order], ends, side="left")]
    start, stop = extents(at, windows, spec)
    return Answers(windows, np.where(start < stop, sums, np.nan), int((stop - start).max(initial=0)))


def by_window_id(
    at: Ints, value: Floats, spec: Sliding, batch: int = 65_536, fold: np.ufunc = np.maximum
) -> Answers:
    """A partial for each open window; a row updates those of all its windows, whatever the order (WID without panes)."""
    windows = spec.complete(int(at.max()))
    past = int(spec.archive_list_of(at).max(initial=0)) + 1
    empty = -np.inf if fold is np.maximum else 0.0
    partials, rows = np.full(past, empty), np.zeros(past, np.int64)
    for start in range(0, len(at), batch):
        moment, amount = at[start : start + batch], value[start : start + batch]
        first, stop = spec.first_of(moment), spec.archive_list_of(moment)
        for copy in range(int((stop - first).max())):
            window, held = first + copy, first + copy < stop
            fold.at(partials, window[held], amount[held])
            np.add.at(rows, window[held], 1)
    sums = np.where(rows[windows] > 0, partials[windows], np.nan)
    return Answers(windows, sums, -(-spec.range // spec.slide))
