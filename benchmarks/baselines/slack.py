"""Order by slack: what is put in order, what is dropped as too late, and when a window is emitted.

A stream is event times with the times at which they arrive, in order of arrival. Li 2008, sections 3.4 and 6.2.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.baselines.windows import Floats, Ints, Sliding


@dataclass(frozen=True, slots=True)
class Slacked:
    """By window: rows that count, the sum of their values, and when it is emitted (NaN: not before the stream ends)."""

    windows: Ints
    rows: Ints
    sums: Floats
    emitted_at: Floats


def buffer_sort(at: Ints, slack: int) -> tuple[Ints, int]:
    """BSort: rows in the order in which a buffer of `slack` lets them go, and the most it holds. Late rows are left out.

    A row leaves when the greatest event time is `slack` past it. One that comes when it is further past is too late; one at just
    that bound is not, as with punctuation, and is not held either.
    """
    highest = np.maximum.accumulate(at)
    before = np.r_[np.iinfo(np.int64).min // 2, highest[:-1]]
    punctual = at >= before - slack
    rows = np.flatnonzero(punctual)
    released = rows[np.argsort(at[rows], kind="stable")]
    leaves = np.maximum(np.searchsorted(highest, at[rows] + slack), rows)
    inside = np.zeros(len(at) + 1, np.int64)
    np.add.at(inside, rows, 1)
    np.add.at(inside, np.minimum(leaves, len(at)), -1)
    return released, int(np.cumsum(inside).max(initial=0))


def by_slack(
    at: Ints, arrive: Floats, value: Floats, spec: Sliding, slack: int, *, generous: bool
) -> Slacked:
    """Windows that close when the greatest event time is `slack` past their end.

    A row that is too late for the first of its windows is dropped from all of them (consistent slack), or, `generous`, only from
    those that have closed.
    """
    highest = np.maximum.accumulate(at)
    before = np.r_[np.iinfo(np.int64).min // 2, highest[:-1]]
    open_from = (before - slack) // spec.slide  # windows below this number have been emitted
    first, past = spec.first_of(at), spec.archive_list_of(at)
    start = np.maximum(first, open_from) if generous else first
    counts = start < past if generous else first >= open_from
    windows = spec.complete(int(at.max()))
    rows, sums = _ranged(start[counts], past[counts], value[counts], len(windows))
    reached = np.searchsorted(highest, spec.ends(windows) + slack)
    emitted_at = np.where(reached < len(at), arrive[np.minimum(reached, len(at) - 1)], np.nan)
    return Slacked(windows, rows, sums, emitted_at)


def truth(at: Ints, value: Floats, spec: Sliding) -> tuple[Ints, Floats]:
    """Rows and sums of every window, nothing dropped."""
    windows = spec.complete(int(at.max()))
    return _ranged(spec.first_of(at), spec.archive_list_of(at), value, len(windows))


def _ranged(start: Ints, past: Ints, value: Floats, count: int) -> tuple[Ints, Floats]:
    """Rows and sums by window, when each row is in the windows [start, past)."""
    start, past = np.minimum(start, count), np.minimum(past, count)
    rows = np.bincount(start, minlength=count + 1) - np.bincount(past, minlength=count + 1)
    sums = np.bincount(start, value, count + 1) - np.bincount(past, value, count + 1)
    return np.cumsum(rows)[:count], np.cumsum(sums)[:count]
