"""`[WINDOW name(args)]` by hand: rows are in the windows of the class, which close at their ends."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from headrace.algebra.expressions.expression import Literal
from headrace.algebra.windows.user_code import Code
from headrace.algebra.windows.user_windows import UserWindow
from headrace.algebra.windows.window import Custom
from headrace.examples.windows import Shifts
from headrace.operators.row_windows.user_windows import UserWindows
from headrace.schema import BIGINT
from tests.operators.by_hand import counts_of, driven, emitted, plain, rows_of

SHIFTS = Custom("shifts", (Literal(10, BIGINT), Literal(5, BIGINT)), Code(pickle.dumps(Shifts)))
ROWS = [("a", 1, 1), ("a", 2, 6), ("b", 3, 7), ("a", 4, 14), ("a", 5, 22)]


class Picky(UserWindow):
    """Windows of ten; it fails on odd times."""

    def wids(self, at: Any, *columns: Any) -> Any:
        if (at % 2).any():
            raise ValueError("odd")
        return np.arange(len(at)), at // 10

    def bounds(self, windows: Any) -> Any:
        return windows * 10, windows * 10 + 10

    def holds(self, window: int, at: int, *values: Any) -> bool:
        return at // 10 == window


def test_a_row_is_in_each_window_that_its_class_says() -> None:
    """Shifts of 10, one every 5:

    time  1 . . . . 6 7 . . . . . . 14
    -----|--------|                     [-5, 5): 1
    ----------------------|             [0, 10): 1 2 3
                -----------------|      [5, 15): 2 3 4
                      ----------------| [10, 20): 4
    """
    assert emitted(UserWindows(rows_of(), SHIFTS, ()), [ROWS], "v") == [
        (5, 1),
        *((10, v) for v in (1, 2, 3)),
        *((15, v) for v in (2, 3, 4)),
        (20, 4),
    ]


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_windows_of_several_epochs_are_counted_once(cut: int) -> None:
    operator = UserWindows(counts_of(), SHIFTS, ())
    whole = emitted(operator, [ROWS], "k", "n")
    assert whole == [(5, "a", 1), (10, "a", 2), (10, "b", 1), (15, "a", 2), (15, "b", 1), (20, "a", 1)]
    assert emitted(operator, [ROWS[:cut], ROWS[cut:]], "k", "n", tasks=2, compact_after=(0,)) == whole


def test_a_window_closes_when_punctuation_reaches_its_end_and_not_before() -> None:
    operator = UserWindows(rows_of(), SHIFTS, ())
    assert emitted(operator, [ROWS[:1]], "v", punctuations=[4]) == []
    assert emitted(operator, [ROWS[:1]], "v", punctuations=[5]) == [(5, 1)]


def test_a_row_on_which_the_class_fails_is_rejected_and_the_others_are_not() -> None:
    operator = UserWindows(rows_of(), Custom("picky", (), Code(pickle.dumps(Picky))), ())
    run = driven(operator, [[("a", 1, 2), ("a", 2, 3), ("a", 3, 4), ("a", 4, 12)]])
    assert plain(run.results, "v") == [(10, 1), (10, 3)]
    assert [reason for rejection in run.rejected for reason in rejection.reasons] == [
        "the window picky: ValueError: odd"
    ]


def test_a_cell_is_kept_for_each_window_that_is_open() -> None:
    operator = UserWindows(counts_of(), SHIFTS, ())
    epochs = [[("a", index, 10 * n + index) for index in range(10)] for n in range(30)]
    left = driven(operator, epochs, compact_after=range(30))
    assert left.state_rows == 1 + 1, "[295, 305), and what [290, 300) answered"


def test_the_window_that_ended_last_is_what_invoke_returns() -> None:
    operator = UserWindows(counts_of(), SHIFTS, ())
    assert plain(operator.latest(driven(operator, [ROWS]).runs), "k", "n") == [(20, "a", 1)]
