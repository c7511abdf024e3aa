"""Two-level aggregation: the sums are right for a table of any size, windows are complete when they are reported to be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.two_level import FirstLevel, rolled_up
from benchmarks.suite.two_level import sustained

FLUSHES = ["in order", "slow", "lazy"]
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=120)


def windows(drawn: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(window, group) of rows, windows in order: the first number is the end of the window."""
    rows, window = [], 0
    for step, group in drawn:
        window += step == 0
        rows.append((window, group))
    return rows


@pytest.mark.parametrize("flush", FLUSHES)
@given(drawn=ROWS, size=st.integers(1, 20), every=st.integers(1, 5), most=st.integers(1, 3))
def test_partial_sums_are_the_counts_for_a_table_of_any_size(
    flush: Any, drawn: list[tuple[int, int]], size: int, every: int, most: int
) -> None:
    rows = windows(drawn)
    table = FirstLevel(size, flush, every, most)
    for window, group in rows:
        table.row(window, group)
        assert all(held > window - most for held in table.held()), "nothing stays for longer than it may"
    table.end()
    assert rolled_up(table.sent) == Counter(rows)


@pytest.mark.parametrize("flush", FLUSHES)
@given(drawn=ROWS, size=st.integers(1, 20), every=st.integers(1, 5))
def test_a_window_said_to_be_complete_sends_nothing_more(
    flush: Any, drawn: list[tuple[int, int]], size: int, every: int
) -> None:
    table = FirstLevel(size, flush, every)
    for window, group in windows(drawn):
        said = table.complete
        before = len(table.sent)
        table.row(window, group)
        assert all(sent[0] >= said for sent in table.sent[before:])
        assert all(held >= table.complete for held in table.held())


@given(drawn=ROWS, size=st.integers(1, 20))
def test_in_order_no_entry_of_an_earlier_window_leaves_after_one_of_a_later(
    drawn: list[tuple[int, int]], size: int
) -> None:
    table = FirstLevel(size, "in order")
    for window, group in windows(drawn):
        table.row(window, group)
    sent = [window for window, _, _ in table.sent]
    assert sent == sorted(sent)


def test_repair_20_what_was_new_becomes_old_when_a_window_ends() -> None:
    """Figure 8-6 as printed never marks new entries as old: rows of two windows are counted as one, and none is flushed."""
    rows = [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3), (2, 1)]

    def counted(printed: bool) -> dict[tuple[int, int], int]:
        table = FirstLevel(64, "in order", printed=printed)
        for window, group in rows:
            table.row(window, group)
        table.end()
        return rolled_up(table.sent)

    assert counted(printed=False) == Counter(rows)
    assert counted(printed=True) == {(0, 1): 3, (0, 2): 2, (1, 3): 1}


def test_repair_20_one_old_entry_leaves_for_each_row_and_the_position_never_sticks() -> None:
    table = FirstLevel(64, "in order")
    for group in range(10):
        table.row(0, group)
    assert [table.row(1, 3) for _ in range(12)] == [2, *[1] * 8, 0, 0, 0], (
        "the first row also meets its own old entry"
    )
    assert table.complete == 1
    stuck = FirstLevel(64, "in order", printed=True)
    for group in range(10):
        stuck.row(0, group)
    assert sum(stuck.row(1, 3) for _ in range(12)) == 0


def test_out_of_order_a_table_much_smaller_than_the_groups_takes_more_rows_a_second() -> None:
    assert sustained("slow", 520, 1040).rate >= 1.5 * sustained("in order", 520, 1040).rate
