"""Check of the contract of a user's window class on sample rows, whose first error has an example; and calls of the
class with a check of what it returns, as operators make them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.user_windows import Ints, UserWindow
from headrace.errors import UserError

_SAMPLES: Final = 160
_MOST_WINDOWS: Final = 400


def check_window(
    kind: UserWindow, times: Sequence[int] | None = None, columns: Sequence[Sequence[Any]] = ()
) -> int:
    """Check a kind of window on rows of these times, in microseconds; returns the number of (row, window) pairs.

    Without `times`, on times of several years, densities and calendar borders. `columns` are the values of the expressions
    after ON, one sequence per column, each as long as `times`. Raises `UserError` that names the broken rule and the row.
    """
    at = np.array(sample_times() if times is None else times, np.int64)
    arrays = [pa.array(values) for values in columns]
    pairs = called(kind, at, arrays)
    _once(pairs)
    _within(kind, at, pairs)
    _complete(kind, at, arrays, pairs)
    _row_alone(kind, at, arrays, pairs)
    empty = called(kind, at[:0], [array[:0] for array in arrays])
    _hold(len(empty[0]) == 0, "wids of no rows names windows")
    return len(pairs[0])


def sample_times() -> list[int]:
    """Ties, single microseconds, days around 1970, and borders of days, months and years; the same in every call."""
    rng = np.random.default_rng(20240229)
    second, day = 1_000_000, 86_400_000_000
    near = rng.integers(-20, 20, _SAMPLES // 4)
    close = rng.integers(-300, 300, _SAMPLES // 4) * second
    months = np.arange("2019-11", "2024-04", dtype="datetime64[M]").astype("datetime64[us]").astype(np.int64)
    borders = (rng.choice(months, _SAMPLES // 4)[:, None] + np.array([-1, 0])).ravel()
    far = rng.integers(-40, 40, _SAMPLES // 4) * day + rng.integers(0, day, _SAMPLES // 4)
    moments = np.concatenate([near, close, borders, far])
    times: list[int] = moments[rng.permutation(len(moments))].tolist()
    return times


def called(kind: UserWindow, at: Ints, columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """The (row, window) pairs of `wids`; raises `UserError` for anything but two arrays of integers, rows in range."""
    copied = at.copy()
    copied.flags.writeable = False
    answer: Any = kind.wids(copied, *columns)
    _hold(
        isinstance(answer, tuple) and len(answer) == 2,
        "wids returns a pair of arrays, the rows and their windows",
    )
    row, window = (np.asarray(part) for part in answer)
    for part in (row, window):
        _hold(
            part.ndim == 1 and (part.dtype.kind in "iu" or not part.size), "wids returns arrays of integers"
        )
    _hold(len(row) == len(window), f"wids returns {len(row)} rows but {len(window)} windows")
    row, window = row.astype(np.int64), window.astype(np.int64)
    outside = np.flatnonzero((row < 0) | (row >= len(at)))
    _hold(not len(outside), f"wids of {len(at)} rows names row {row[outside[:1]].tolist()}")
    return row, window


def bounds_of(kind: UserWindow, windows: Ints) -> tuple[Ints, Ints]:
    """Starts and ends; raises `UserError` for anything but two arrays of integers as long as `windows`."""
    answer: Any = kind.bounds(windows)
    _hold(isinstance(answer, tuple) and len(answer) == 2, "bounds returns a pair of arrays, starts and ends")
    start, end = (np.asarray(part) for part in answer)
    for part in (start, end):
        _hold(
            part.shape == windows.shape and (part.dtype.kind in "iu" or not part.size),
            "bounds returns as many integers as there are windows",
        )
    return start.astype(np.int64), end.astype(np.int64)


def _once(pairs: tuple[Ints, Ints]) -> None:
    both = np.stack(pairs, axis=1)
    distinct, counts = np.unique(both, axis=0, return_counts=True)
    twice = np.flatnonzero(counts > 1)
    if len(twice):
        row, window = distinct[twice[0]].tolist()
        _hold(False, f"wids names window {window} twice for row {row}")


def _within(kind: UserWindow, at: Ints, pairs: tuple[Ints, Ints]) -> None:
    row, window = pairs
    start, end = bounds_of(kind, window)
    wrong = np.flatnonzero((at[row] < start) | (at[row] >= end))
    if len(wrong):
        index = int(wrong[0])
        _hold(
            False,
            f"window {window[index]} holds a row at {at[row[index]]}, outside its bounds "
            f"{start[index]} <= t < {end[index]}",
        )


def _complete(kind: UserWindow, at: Ints, columns: Sequence[pa.Array], pairs: tuple[Ints, Ints]) -> None:
    """Duality: wids names a window of a row exactly when the window holds the row."""
    named = set(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True))
    numbers = np.unique(pairs[1])
    picked = numbers[:: max(1, len(numbers) // _MOST_WINDOWS)]
    values = [array.to_pylist() for array in columns]
    for window in np.unique(np.concatenate([picked - 1, picked, picked + 1])).tolist():
        for row, time in enumerate(at.tolist()):
            held = bool(kind.holds(window, time, *(column[row] for column in values)))
            if held != ((row, window) in named):
                said = "wids leaves it out" if held else "wids names it"
                _hold(
                    False,
                    f"window {window} {'holds' if held else 'does not hold'} a row at {time}, but {said}",
                )


def _row_alone(kind: UserWindow, at: Ints, columns: Sequence[pa.Array], pairs: tuple[Ints, Ints]) -> None:
    """Checks that the windows of a row depend neither on other rows nor on earlier calls."""
    together: dict[int, set[int]] = {}
    for row, window in zip(pairs[0].tolist(), pairs[1].tolist(), strict=True):
        together.setdefault(row, set()).add(window)
    for row in reversed(range(len(at))):
        _, alone = called(kind, at[row : row + 1], [array[row : row + 1] for array in columns])
        same = set(alone.tolist()) == together.get(row, set())
        _hold(same, f"the windows of a row at {at[row]} depend on the other rows, or on earlier calls")


def _hold(rule: bool, broken: str) -> None:
    if not rule:
        raise UserError(
            f"not a kind of window: {broken}",
            remedy="The contract is described by help(headrace.UserWindow).",
        )


__all__ = ["bounds_of", "called", "check_window", "sample_times"]
