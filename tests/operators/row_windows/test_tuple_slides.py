"""`[RANGE r SLIDE n ROWS]` by hand: a window ends at every n-th row and reaches back in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.algebra.expressions.expression import Call, Literal
from headrace.algebra.windows.window import Numbering
from headrace.operators.aggregates.group_by import Grouped
from headrace.operators.row_windows.tuple_slides import TupleSlides
from headrace.schema import BIGINT, BOOLEAN
from tests.operators.by_hand import COUNT, K, V, counts_of, driven, emitted, layout, plain, rows_of

ROWS = [("a", 1, 1), ("a", 2, 3), ("b", 3, 4), ("a", 4, 8), ("b", 5, 9), ("a", 6, 10)]


def test_a_window_ends_at_every_nth_row_and_holds_the_time_before_it() -> None:
    """[RANGE 4 SLIDE 2 ROWS]:

    time  1 . 3 4 . . . 8 9 10
        ------|                  (-1, 3]
                ----------|      (4, 8]
                      --------|  (6, 10]
    """
    assert emitted(TupleSlides(rows_of(), 4, 2, "rank"), [ROWS], "v") == [
        *((3, v) for v in (1, 2)),
        (8, 4),
        *((10, v) for v in (4, 5, 6)),
    ]


@pytest.mark.parametrize("cut", [1, 3, 4])
def test_groups_are_counted_whatever_the_cut(cut: int) -> None:
    operator = TupleSlides(counts_of(), 4, 2, "rank")
    whole = [(3, "a", 2), (8, "a", 1), (10, "a", 2), (10, "b", 1)]
    assert emitted(operator, [ROWS], "k", "n") == whole
    assert emitted(operator, [ROWS[:cut], ROWS[cut:]], "k", "n", compact_after=(0,)) == whole


def test_a_row_that_comes_late_within_the_slack_moves_the_ends_after_it() -> None:
    epochs = [[("a", 1, 10), ("a", 3, 30)], [("a", 2, 20)]]
    operator = TupleSlides(rows_of(), 100, 2, "rank")
    assert emitted(operator, epochs, "v", punctuations=[5, 31]) == [(20, 1), (20, 2)]


def test_numbers_by_arrival_are_known_at_once_and_windows_end_when_punctuation_passes() -> None:
    epochs = [[("a", 1, 10), ("a", 3, 30)], [("a", 2, 20)]]
    operator = TupleSlides(rows_of(), 100, 2, "row_num")
    assert emitted(operator, epochs, "v", punctuations=[5, 31]) == [(30, 1), (30, 2), (30, 3)]


def test_each_partition_has_ends_of_its_own() -> None:
    rows = emitted(TupleSlides(counts_of(K), 4, 2, "rank"), [ROWS], "k", "n", tasks=2)
    assert rows == [(3, "a", 2), (9, "b", 1), (10, "a", 2)]


def test_a_window_that_holds_no_row_is_emitted_where_empty_ones_are_wanted() -> None:
    """Without groups: `COUNT(*)` of each window, of which WHERE dropped all rows, is 0."""
    never = layout(where=Call(">", (V, Literal(9, BIGINT)), BOOLEAN))
    spec = replace(counts_of(grouped=Grouped((), COUNT.aggregates), emit_empty=True), rows=never)
    assert emitted(TupleSlides(spec, 4, 3, "rank"), [ROWS], "n") == [(4, 0), (10, 0)]


def test_cells_before_the_range_are_dropped_when_runs_are_merged() -> None:
    operator = TupleSlides(counts_of(), 20, 2, "rank")
    epochs = [[("a", n, 10 * n)] for n in range(1, 60)]
    short = driven(operator, epochs[:20], compact_after=range(20)).state_rows
    assert driven(operator, epochs, compact_after=range(59)).state_rows <= short + 1


def test_the_last_window_is_what_invoke_returns() -> None:
    operator = TupleSlides(counts_of(), 4, 2, "rank")
    assert plain(operator.latest(driven(operator, [ROWS[:3], ROWS[3:]]).runs), "k", "n") == [
        (10, "a", 2),
        (10, "b", 1),
    ]


def test_numbers_by_arrival_follow_the_order_in_which_rows_come_within_an_epoch_too() -> None:
    """Every second row ends a window: by arrival those at 10 and 40, by time those at 20 and 40."""
    epochs = [[("a", 3, 30), ("a", 1, 10), ("a", 2, 20), ("a", 4, 40)]]
    assert emitted(TupleSlides(rows_of(), 5, 2, "row_num"), epochs, "v") == [(10, 1), (40, 4)]
    assert emitted(TupleSlides(rows_of(), 5, 2, "rank"), epochs, "v") == [(20, 2), (40, 4)]


@pytest.mark.parametrize("numbered", ["rank", "row_num"])
@pytest.mark.parametrize("every", [1, 2, 5])
def test_merged_runs_go_on_counting_the_rows_of_all_of_them(numbered: Numbering, every: int) -> None:
    rows = [("ab"[n % 2], n, 10 * n) for n in range(1, 25)]
    operator = TupleSlides(counts_of(K), 45, 4, numbered)
    whole = emitted(operator, [rows], "k", "n")
    assert [at for at, *_ in whole] == [70, 80, 150, 160, 230, 240]
    merged = range(0, 24, every)
    assert emitted(operator, [[row] for row in rows], "k", "n", compact_after=merged) == whole
