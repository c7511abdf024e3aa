"""Sessions and `[DELTA d ON x]` by hand: where a frame ends, when that is known, and what of it is open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.algebra.expressions.expression import Cast
from headrace.operators.base.operator import Advance
from headrace.operators.row_windows.frame_cuts import ByDelta, ByGap
from headrace.operators.row_windows.frame_windows import FrameWindows
from headrace.operators.row_windows.partitioned_rows import PartitionedRows
from headrace.schema import DOUBLE
from tests.operators.by_hand import K, V, batches, counts_of, driven, emitted, layout, plain, rows_of, values

VISITS = [("a", 1, 10), ("a", 2, 12), ("a", 3, 20), ("a", 4, 23), ("a", 5, 40)]


def by_delta(threshold: float) -> FrameWindows:
    rows = layout(V, partition=(Cast(V, DOUBLE),))
    spec = PartitionedRows("q", "q", "s", 0, "s.", rows, None, values("v", first=1))
    return FrameWindows(spec, ByDelta(threshold, "c0"))


def test_a_session_ends_when_no_row_has_come_for_its_gap() -> None:
    """Gap 5:

    time  10 12 ..... 20 23 ............ 40
          -----+5     -----+5            --+5
    """
    rows = emitted(FrameWindows(rows_of(), ByGap(5)), [VISITS], "v")
    assert [v for _, v in rows] == [1, 2, 3, 4], "the last one may go on"
    assert len({at for at, _ in rows}) == 2
    whole = emitted(FrameWindows(rows_of(), ByGap(5)), [VISITS], "v", final=True)
    assert [v for _, v in whole] == [1, 2, 3, 4, 5]


def test_a_session_ends_as_time_passes_though_no_row_comes() -> None:
    operator = FrameWindows(counts_of(), ByGap(5))
    epochs: list[Any] = [VISITS[:2], []]
    assert emitted(operator, epochs, "k", "n", punctuations=[13, 17]) == []
    assert [row[1:] for row in emitted(operator, epochs, "k", "n", punctuations=[13, 18])] == [("a", 2)]


def test_a_delta_window_ends_when_a_value_is_far_from_its_first_one() -> None:
    """Values 1 2 3 6 7 1 with a threshold of 2: a row begins the next window, and the one before is emitted at it.

    7         x
    6       x
    3     x
    2   x
    1 x         x
    """
    rows = [("a", v, 10 * n) for n, v in enumerate((1, 2, 3, 6, 7, 1), 1)]
    assert emitted(by_delta(2), [rows], "v") == [*((40, v) for v in (1, 2, 3)), (60, 6), (60, 7)]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_window_in_progress_goes_on_in_the_next_epoch(cut: int) -> None:
    operator = FrameWindows(counts_of(), ByGap(5))
    whole = emitted(operator, [VISITS], "k", "n", final=True)
    assert [row[1:] for row in whole] == [("a", 2), ("a", 2), ("a", 1)]
    assert emitted(operator, [VISITS[:cut], VISITS[cut:]], "k", "n", compact_after=(0,), final=True) == whole


def test_partitions_are_cut_by_themselves() -> None:
    """The rows of b bridge the gap of a only where they are in one partition."""
    rows = [("a", 1, 10), ("b", 2, 13), ("a", 3, 16), ("b", 4, 30), ("a", 5, 31)]
    assert [n for _, n in emitted(FrameWindows(rows_of(K), ByGap(5)), [rows], "v", tasks=2)] == [1, 2, 3]
    together = emitted(FrameWindows(rows_of(), ByGap(5)), [rows], "v")
    assert len({at for at, _ in together}) == 1


def test_istream_emits_what_a_window_has_and_the_one_before_it_had_not() -> None:
    rows = [("a", 1, 10), ("a", 2, 11), ("a", 2, 20), ("a", 3, 21), ("a", 0, 30)]
    operator = FrameWindows(rows_of(emit_mode="istream"), ByGap(5))
    assert [v for _, v in emitted(operator, [rows[:3], rows[3:]], "v")] == [1, 2, 3]


def test_one_cell_of_each_open_window_is_kept_and_the_answer_of_the_last_one() -> None:
    operator = FrameWindows(counts_of(), ByGap(5))
    epochs = [[("a", n, 20 * n + index) for index in range(4)] for n in range(1, 30)]
    short = driven(operator, epochs[:5], compact_after=range(5)).state_rows
    assert driven(operator, epochs, compact_after=range(29)).state_rows == short


def test_it_says_how_many_windows_are_open() -> None:
    operator = FrameWindows(rows_of(K), ByGap(5))
    scanner = operator.scanner({})
    scanner.add(batches([[("a", 1, 10), ("b", 2, 11), ("c", 3, 90)]])[0])
    step = operator.advance([], [scanner.finish().deltas], Advance(0, 91, 90))
    assert step.open_windows == 1
    assert step.results is not None
    assert np.sort(step.results.column("v").to_numpy()).tolist() == [1, 2]


def test_the_last_window_that_ended_is_what_invoke_returns() -> None:
    operator = FrameWindows(rows_of(), ByGap(5))
    assert [v for _, v in plain(operator.latest(driven(operator, [VISITS]).runs), "v")] == [3, 4]
