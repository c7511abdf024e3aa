"""WITH REVISIONS by hand: a late row takes back what its windows had answered, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.algebra.expressions.expression import Column
from headrace.algebra.query import Revisions, SortKey
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.panes.panes import Panes
from headrace.operators.time_windows.window_revisions import Revising
from headrace.operators.time_windows.window_rows import WindowRows
from headrace.schema import BIGINT
from tests.operators.by_hand import K, V, driven, emitted, layout, values

PANES = Panes.of(TimeSlide(10, 5))


def revising(within: int | None = None) -> Revising:
    """`SELECT k, v FROM s [RANGE 10 SLIDE 5] WITH REVISIONS [FOR within]`."""
    revisions = Revisions(within)
    windows = WindowRows("q", "q", "s", PANES, 10, "s.", layout(K, V), values("k", "v"), revisions=revisions)
    return Revising(windows, PANES, revisions, windows.finish, 3)


def test_a_late_row_is_added_to_the_windows_that_had_closed_without_it() -> None:
    """The row at 7 comes when punctuation is at 20; it is in the windows that end at 10 and at 15.

    time  . . 3 . 7 . . . . . 20
      ---------------|         [0, 10)
           --------------|     [5, 15)
    """
    epochs = [[("a", 1, 3), ("a", 9, 20)], [("a", 2, 7)]]
    before = emitted(revising(), epochs[:1], "k", "v", punctuations=[20])
    assert before == [(5, 1, "a", 1), (10, 1, "a", 1)]
    both = emitted(revising(), epochs, "k", "v", punctuations=[20, 20])
    assert sorted(both) == sorted([*before, (10, 1, "a", 2), (15, 1, "a", 2)])


def test_what_a_late_row_changes_is_retracted_as_it_was_emitted() -> None:
    """The first row by value of each window: that of 3 gives way to that of 2."""
    whole = revising()
    first = replace(values("k", "v"), order=(SortKey(Column("c1", BIGINT)),), limit=1)
    operator = replace(whole, inner=replace(whole.inner, finish=first), finish=first)
    rows = emitted(operator, [[("a", 3, 8), ("a", 9, 20)], [("b", 2, 6)]], "k", "v", punctuations=[20, 20])
    assert [row for row in rows if row[0] == 10] == [(10, -1, "a", 3), (10, 1, "a", 3), (10, 1, "b", 2)]


def test_a_row_in_time_takes_nothing_back() -> None:
    epochs = [[("a", 1, 3)], [("a", 2, 12)]]
    assert all(sign == 1 for _, sign, *_ in emitted(revising(), epochs, "k", "v", punctuations=[10, 20]))


def test_what_was_emitted_is_dropped_when_no_late_row_can_change_it_any_more() -> None:
    epochs = [[("a", n, 5 * n)] for n in range(1, 60)]
    rows = {
        count: driven(revising(within=10), epochs[:count], compact_after=range(count)).state_rows
        for count in (20, 59)
    }
    assert rows[20] == rows[59]


@pytest.mark.parametrize("within", [None, 13])
def test_after_merging_a_late_row_finds_what_its_windows_held_and_what_was_emitted_of_them(
    within: int | None,
) -> None:
    """The row at 7 is 13 behind: the merge keeps what it may still revise, to the first row of the window that ends at 10."""
    whole = revising(within)
    first = replace(values("k", "v"), order=(SortKey(Column("c1", BIGINT)),), limit=1)
    operator = replace(whole, inner=replace(whole.inner, finish=first), finish=first)
    epochs = [[("a", 3, 2), ("a", 4, 8), ("a", 9, 20)], [("b", 2, 7)]]
    rows = emitted(operator, epochs, "k", "v", punctuations=[20, 20], compact_after=(0,))
    assert rows == emitted(operator, epochs, "k", "v", punctuations=[20, 20])
    assert [row for row in rows if row[0] == 10] == [(10, -1, "a", 3), (10, 1, "a", 3), (10, 1, "b", 2)]
