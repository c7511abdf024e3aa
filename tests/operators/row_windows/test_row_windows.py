"""`[ROWS n SLIDE m]` by hand: which rows a window holds, when it ends, and what is kept for those to come."""

from __future__ import annotations

import pytest

from headrace.algebra.expressions.expression import Call, Literal
from headrace.operators.row_windows.row_windows import RowSlides
from headrace.schema import BIGINT, BOOLEAN
from tests.operators.by_hand import K, V, counts_of, driven, plain, rows_of, told

SIX = [("a", n, 10 * n) for n in range(1, 7)]


def test_a_window_ends_at_every_slide_th_row_and_holds_the_last_count_rows() -> None:
    """Of six rows, [ROWS 3 SLIDE 2]:

    1 2 3 4 5 6
    ---|          at 20
      -----|      at 40
          -----|  at 60
    """
    assert told(RowSlides(rows_of(), 3, 2), [SIX], "v") == [
        *((20, v) for v in (1, 2)),
        *((40, v) for v in (2, 3, 4)),
        *((60, v) for v in (4, 5, 6)),
    ]


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_where_epochs_are_cut_does_not_show(cut: int) -> None:
    operator = RowSlides(counts_of(), 4, 3)
    whole = told(operator, [SIX], "k", "n")
    assert whole == [(30, "a", 3), (60, "a", 4)]
    assert told(operator, [SIX[:cut], SIX[cut:]], "k", "n", compact_after=(0,)) == whole


def test_each_partition_counts_its_own_rows() -> None:
    rows = [("a", 1, 10), ("b", 2, 20), ("a", 3, 30), ("a", 4, 40), ("b", 5, 50)]
    assert told(RowSlides(rows_of(K), 2, 2), [rows], "v", tasks=3) == [(30, 1), (30, 3), (50, 2), (50, 5)]


def test_rows_are_ranked_by_time_when_punctuation_has_passed_them_and_not_as_they_come() -> None:
    """The row at 30 comes first, but it is the second one: [ROWS 1 SLIDE 2] ends at it."""
    late_first = [[("a", 3, 30)], [("a", 1, 10)]]
    operator = RowSlides(rows_of(), 1, 2)
    assert told(operator, late_first, "v", punctuations=[5, 31]) == [(30, 3)]
    assert told(RowSlides(rows_of(), 1, 2, "row_num"), late_first, "v", punctuations=[5, 5]) == [(10, 1)]


def test_rows_that_where_drops_are_counted_and_not_shown() -> None:
    odd = Call("=", (Call("%", (V, Literal(2, BIGINT)), BIGINT), Literal(1, BIGINT)), BOOLEAN)
    assert told(RowSlides(rows_of(where=odd), 2, 2), [SIX], "v") == [(20, 1), (40, 3), (60, 5)]


def test_istream_and_dstream_compare_each_window_with_the_one_before_it() -> None:
    new = RowSlides(rows_of(emit_mode="istream"), 2, 1)
    gone = RowSlides(rows_of(emit_mode="dstream"), 2, 1)
    epochs = [SIX[:2], SIX[2:4]]
    assert told(new, epochs, "v") == [(10, 1), (20, 2), (30, 3), (40, 4)]
    assert told(gone, epochs, "v") == [(30, 1), (40, 2)]


def test_what_is_before_the_last_window_is_dropped_when_runs_are_merged() -> None:
    """Of 39 rows the window of 36, 37 and 38, which INVOKE returns, and the row after it."""
    operator = RowSlides(counts_of(), 3, 2)
    epochs = [[("a", n, 10 * n)] for n in range(1, 40)]
    assert driven(operator, epochs, compact_after=range(39)).state_rows == 4


def test_the_last_window_of_each_partition_is_found_in_the_state_alone() -> None:
    operator = RowSlides(rows_of(K), 2, 2)
    rows = [*SIX[:4], ("b", 9, 15), ("b", 8, 25), ("c", 7, 35)]
    left = driven(operator, [rows]).runs
    assert plain(operator.latest(left), "v") == [(25, 8), (25, 9), (40, 3), (40, 4)]
    assert operator.latest([]) is None
