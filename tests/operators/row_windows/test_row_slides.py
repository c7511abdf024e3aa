"""`[ROWS n SLIDE m]` by hand: which rows a window holds, when it ends, and what is kept for those to come."""

from __future__ import annotations

import pytest

from headrace.algebra.expressions.expression import Call, Literal
from headrace.algebra.windows.window import Numbering
from headrace.operators.output.changelog import EmitMode
from headrace.operators.row_windows.row_slides import RowSlides
from headrace.schema import BIGINT, BOOLEAN
from tests.operators.by_hand import K, V, counts_of, driven, emitted, plain, rows_of

SIX = [("a", n, 10 * n) for n in range(1, 7)]


def test_a_window_ends_at_every_slide_th_row_and_holds_the_last_count_rows() -> None:
    """Of six rows, [ROWS 3 SLIDE 2]:

    1 2 3 4 5 6
    ---|          at 20
      -----|      at 40
          -----|  at 60
    """
    assert emitted(RowSlides(rows_of(), 3, 2), [SIX], "v") == [
        *((20, v) for v in (1, 2)),
        *((40, v) for v in (2, 3, 4)),
        *((60, v) for v in (4, 5, 6)),
    ]


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_where_epochs_are_cut_does_not_show(cut: int) -> None:
    operator = RowSlides(counts_of(), 4, 3)
    whole = emitted(operator, [SIX], "k", "n")
    assert whole == [(30, "a", 3), (60, "a", 4)]
    assert emitted(operator, [SIX[:cut], SIX[cut:]], "k", "n", compact_after=(0,)) == whole


def test_each_partition_counts_its_own_rows() -> None:
    rows = [("a", 1, 10), ("b", 2, 20), ("a", 3, 30), ("a", 4, 40), ("b", 5, 50)]
    assert emitted(RowSlides(rows_of(K), 2, 2), [rows], "v", tasks=3) == [(30, 1), (30, 3), (50, 2), (50, 5)]


def test_rows_are_ranked_by_time_when_punctuation_has_passed_them_and_not_as_they_come() -> None:
    """The row at 30 comes first, but it is the second one: [ROWS 1 SLIDE 2] ends at it."""
    late_first = [[("a", 3, 30)], [("a", 1, 10)]]
    operator = RowSlides(rows_of(), 1, 2)
    assert emitted(operator, late_first, "v", punctuations=[5, 31]) == [(30, 3)]
    assert emitted(RowSlides(rows_of(), 1, 2, "row_num"), late_first, "v", punctuations=[5, 5]) == [(10, 1)]


def test_rows_that_where_drops_are_counted_and_not_shown() -> None:
    odd = Call("=", (Call("%", (V, Literal(2, BIGINT)), BIGINT), Literal(1, BIGINT)), BOOLEAN)
    assert emitted(RowSlides(rows_of(where=odd), 2, 2), [SIX], "v") == [(20, 1), (40, 3), (60, 5)]


def test_istream_and_dstream_compare_each_window_with_the_one_before_it() -> None:
    new = RowSlides(rows_of(emit_mode="istream"), 2, 1)
    gone = RowSlides(rows_of(emit_mode="dstream"), 2, 1)
    epochs = [SIX[:2], SIX[2:4]]
    assert emitted(new, epochs, "v") == [(10, 1), (20, 2), (30, 3), (40, 4)]
    assert emitted(gone, epochs, "v") == [(30, 1), (40, 2)]


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


def test_numbers_by_arrival_follow_the_order_in_which_rows_come_within_an_epoch_too() -> None:
    """[ROWS 2 SLIDE 2]: by arrival the first window holds the rows at 30 and 10, by time those at 10 and 20."""
    epochs = [[("a", 3, 30), ("a", 1, 10), ("a", 2, 20), ("a", 4, 40)]]
    assert emitted(RowSlides(rows_of(), 2, 2, "row_num"), epochs, "v") == [(10, 1), (10, 3), (40, 2), (40, 4)]
    assert emitted(RowSlides(rows_of(), 2, 2), epochs, "v") == [(20, 1), (20, 2), (40, 3), (40, 4)]


@pytest.mark.parametrize("numbered", ["rank", "row_num"])
@pytest.mark.parametrize("every", [1, 3])
def test_a_partition_goes_on_counting_after_epochs_without_it_and_merged_runs(
    numbered: Numbering, every: int
) -> None:
    """Each epoch has a row of one of two partitions, so every second one adds nothing to a partition's count."""
    rows = [("ab"[n % 2], n, 10 * n) for n in range(1, 25)]
    operator = RowSlides(counts_of(K), 3, 4, numbered)
    whole = emitted(operator, [rows], "k", "n")
    assert [at for at, *_ in whole] == [70, 80, 150, 160, 230, 240]
    assert {n for *_, n in whole} == {3}
    merged = range(0, 24, every)
    assert emitted(operator, [[row] for row in rows], "k", "n", compact_after=merged) == whole


@pytest.mark.parametrize("kind", ["istream", "dstream"])
def test_after_merging_a_window_is_still_compared_with_the_one_before_it(kind: EmitMode) -> None:
    """And INVOKE still shows what differs between the last two, of which the older one reaches further back."""
    rows = [("a", n, 10 * n) for n in range(1, 21)]
    operator = RowSlides(rows_of(emit_mode=kind), 5, 3)
    merged = driven(operator, [[row] for row in rows], compact_after=range(20))
    plainly = driven(operator, [rows])
    assert plain(merged.results, "v") == plain(plainly.results, "v")
    shown = plain(operator.latest(merged.runs), "v")
    assert shown == plain(operator.latest(plainly.runs), "v")
    assert [v for _, v in shown] == ([16, 17, 18] if kind == "istream" else [11, 12, 13])


def test_after_merging_invoke_shows_the_last_window_to_its_oldest_row() -> None:
    operator = RowSlides(rows_of(), 3, 2)
    for last in range(2, 12):
        rows = [("a", n, 10 * n) for n in range(1, last + 1)]
        left = driven(operator, [[row] for row in rows], compact_after=range(last)).runs
        end = last // 2 * 2
        assert [v for _, v in plain(operator.latest(left), "v")] == list(range(max(end - 2, 1), end + 1))
