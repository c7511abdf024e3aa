"""ISTREAM and DSTREAM over windows of time, by hand: each window against the one before it."""

from __future__ import annotations

from typing import Any
from typing import Literal as Choice

from headrace.algebra.windows.window import TimeSlide
from headrace.operators.panes.panes import Panes
from headrace.operators.time_windows.window_changelog import WindowChanges
from headrace.operators.time_windows.window_rows import WindowRows
from tests.operators.by_hand import V, driven, emitted, layout, values

PANES = Panes.of(TimeSlide(10, 5))
ROWS = [("a", 1, 3), ("a", 2, 7), ("a", 3, 16)]


def changes(kind: Choice["istream", "dstream"]) -> WindowChanges:
    """`kind(SELECT v FROM s [RANGE 10 SLIDE 5])`."""
    windows = WindowRows("q", "q", "s", PANES, 10, "s.", layout(V), values("v"))
    return WindowChanges(windows, PANES, kind, windows.finish, 3)


def test_istream_emits_a_row_in_the_first_window_that_holds_it() -> None:
    """[RANGE 10 SLIDE 5]:

    time  . . 3 . 7 . . . . 16
    ------------|              [-5, 5):  1        + 1
      ---------------|         [0, 10):  1 2      + 2
           --------------|     [5, 15):  2
                ------------|  [10, 20): 3        + 3
    """
    assert emitted(changes("istream"), [ROWS], "v", punctuations=[20]) == [(5, 1), (10, 2), (20, 3)]


def test_dstream_emits_a_row_in_the_first_window_that_does_not_hold_it_any_more() -> None:
    assert emitted(changes("dstream"), [ROWS], "v", punctuations=[30]) == [(15, 1), (20, 2), (30, 3)]


def test_the_last_window_of_an_epoch_is_compared_with_the_first_of_the_next() -> None:
    epochs: list[Any] = [ROWS[:2], [], ROWS[2:], []]
    for kind in ("istream", "dstream"):
        whole = emitted(changes(kind), [ROWS], "v", punctuations=[30])
        assert (
            emitted(changes(kind), epochs, "v", punctuations=[10, 11, 20, 30], compact_after=(0, 1)) == whole
        )


def test_an_epoch_in_which_no_window_closes_emits_nothing() -> None:
    assert emitted(changes("dstream"), [ROWS[:2], [("a", 9, 8)]], "v", punctuations=[5, 9]) == []


def test_a_row_that_both_windows_have_as_often_is_no_change() -> None:
    twice = [("a", 1, 3), ("a", 1, 7), ("a", 1, 12)]
    assert emitted(changes("istream"), [twice], "v", punctuations=[15]) == [(5, 1), (10, 1)]


def test_the_rows_of_the_last_window_alone_are_kept() -> None:
    """In addition to the state of the windows themselves."""
    epochs = [[("a", n, 5 * n)] for n in range(1, 60)]
    short = driven(changes("istream"), epochs[:10], compact_after=range(10)).state_rows
    assert driven(changes("istream"), epochs, compact_after=range(59)).state_rows == short
