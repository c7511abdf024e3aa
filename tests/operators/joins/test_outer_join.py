"""Outer joins, semijoins and antijoins by hand: a row without a pair is inserted, and retracted when its first pair begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.algebra.expressions.expression import Call, Column
from headrace.algebra.query import JoinKind
from headrace.algebra.windows.window import CHANGE
from headrace.operators.base.batch import Batch
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.outer_join import OuterJoin
from headrace.operators.joins.sliding_outer_join import SlidingOuterJoin
from headrace.operators.joins.window_join import UNTIL, Grid
from headrace.schema import BIGINT, BOOLEAN, STRING, TINYINT, Field, Schema
from headrace.time import FOREVER
from tests.operators.by_hand import plain
from tests.operators.local_driver import DriveResult, drive

X, Y = (Schema((Field(f"{side}.k", STRING), Field(f"{side}.v", BIGINT))) for side in "xy")
SAME = Call("=", (Column("x.k", STRING), Column("y.k", STRING)), BOOLEAN)
LAST = {CHANGE: TINYINT, UNTIL: BIGINT}


def spec(kind: JoinKind, last: str, reach: int) -> JoinSpec:
    sides = (
        Side((0,), X, (), (Column("x.k", STRING),), reach, None, reach),
        Side((1,), Y, (), (Column("y.k", STRING),), reach, None, reach),
    )
    shown = (
        (Field("x.v", BIGINT),) if kind in ("semi", "anti") else (Field("x.v", BIGINT), Field("y.v", BIGINT))
    )
    return JoinSpec("q1.inner", "q", "@met", sides, SAME, Schema((*shown, Field(last, LAST[last]))), 3)


def join(kind: JoinKind = "left", reach: int = 10) -> OuterJoin:
    """`x [RANGE reach] … JOIN y [RANGE reach] ON x.k = y.k`."""
    return OuterJoin(spec(kind, CHANGE, reach), kind=kind)


def rows(name: str, *given: tuple[str | None, int, int]) -> Batch:
    """Rows of x or y: (key, value, time)."""
    columns = {
        f"{name}.k": pa.array([row[0] for row in given], pa.string()),
        f"{name}.v": pa.array([row[1] for row in given], pa.int64()),
    }
    at = np.array([row[2] for row in given], np.int64)
    return Batch(columns, at, placed(np.arange(len(given)), "xy".index(name)))


def driven(
    operator: OuterJoin | SlidingOuterJoin,
    epochs: Sequence[Sequence[Batch]],
    passed: Sequence[int],
    **how: Any,
) -> DriveResult:
    return drive(operator, epochs, passed, **{"final": False, **how})


def changes(kind: JoinKind, *epochs: Sequence[Batch], **how: Any) -> list[tuple[Any, ...]]:
    """(instant, sign, x.v, y.v) up to instant 99."""
    names = ("x.v",) if kind in ("semi", "anti") else ("x.v", "y.v")
    passed = [*range(len(epochs) - 1), 100]
    return plain(driven(join(kind), epochs, passed, **how).results, *names)


def test_a_row_without_a_pair_is_retracted_when_its_first_pair_begins_and_inserted_when_its_last_one_ends() -> (
    None
):
    """The rows of y hold from 2 to 12 and from 4 to 14; that of x from 5 to 15, and is alone from 15 on.

    x            5 ------------- 15
    y      2 ----------- 12
    y         4 ------------ 14
    alone                     15
    """
    found = changes("left", [rows("y", ("a", 7, 2), ("a", 8, 4)), rows("x", ("a", 1, 5))])
    assert found == [
        (5, 1, 1, 7),
        (5, 1, 1, 8),
        (13, -1, 1, 7),
        (15, -1, 1, 8),
        (15, 1, 1, None),
        (16, -1, 1, None),
    ]


def test_each_kind_keeps_its_own_rows() -> None:
    epoch = [rows("x", ("a", 1, 5), ("b", 2, 6)), rows("y", ("a", 7, 8), ("c", 9, 9))]
    pair = [(8, 1, 1, 7), (16, -1, 1, 7)]
    left = [(5, 1, 1, None), (6, 1, 2, None), (8, -1, 1, None), (17, -1, 2, None)]
    right = [(9, 1, None, 9), (16, 1, None, 7), (19, -1, None, 7), (20, -1, None, 9)]
    assert sorted(changes("left", epoch), key=repr) == sorted(pair + left, key=repr)
    assert sorted(changes("right", epoch), key=repr) == sorted(pair + right, key=repr)
    assert sorted(changes("full", epoch), key=repr) == sorted(pair + left + right, key=repr)
    assert changes("semi", epoch) == [(8, 1, 1), (16, -1, 1)]
    assert changes("anti", epoch) == [(5, 1, 1), (6, 1, 2), (8, -1, 1), (17, -1, 2)]


def test_a_row_without_a_pair_waits_until_both_sides_have_passed_its_instant() -> None:
    epochs = [[rows("x", ("a", 1, 5))], [], [rows("y", ("a", 7, 5))]]
    assert plain(driven(join(), epochs[:2], [5, 5]).results, "x.v", "y.v") == []
    assert plain(driven(join(), epochs, [5, 5, 6]).results, "x.v", "y.v")[0] == (5, 1, 1, 7)
    alone = driven(join(), [*epochs[:2], []], [5, 5, 6])
    assert plain(alone.results, "x.v", "y.v") == [(5, 1, 1, None)]


def test_equal_rows_count_each_and_a_null_key_has_no_pair() -> None:
    epoch = [rows("x", ("a", 1, 5), ("a", 1, 5), (None, 2, 6)), rows("y", (None, 8, 6))]
    assert changes("left", epoch)[:3] == [(5, 1, 1, None), (5, 1, 1, None), (6, 1, 2, None)]
    assert changes("semi", [rows("x", ("a", 1, 5), ("a", 1, 5)), rows("y", ("a", 7, 5), ("a", 8, 5))]) == [
        (5, 1, 1),
        (5, 1, 1),
        (16, -1, 1),
        (16, -1, 1),
    ]


@pytest.mark.parametrize("kind", ["left", "right", "full", "semi", "anti"])
def test_cuts_tasks_and_merges_of_any_runs_do_not_show(kind: JoinKind) -> None:
    """Merging one run alone may leave pairs of a row there, and its occurrence in another run."""
    x = [("a", 1, 5), ("b", 2, 6), ("a", 1, 7), (None, 3, 8), ("a", 4, 30)]
    y = [("a", 7, 5), ("b", 8, 9), ("a", 7, 12), ("c", 9, 13), ("b", 5, 31)]
    names = ("x.v",) if kind in ("semi", "anti") else ("x.v", "y.v")
    whole = driven(join(kind), [[rows("x", *x), rows("y", *y)]], [100])
    cut = [batch for pair in zip(x, y, strict=True) for batch in ([rows("x", pair[0])], [rows("y", pair[1])])]
    passed = [1, 1, 1, 5, 6, 8, 9, 13, 14, 31]
    for merged in (
        {},
        dict.fromkeys(range(12), 1),
        dict.fromkeys(range(12), 2),
        dict.fromkeys(range(12), 99),
    ):
        found = driven(
            join(kind),
            [*cut, []],
            [*passed, 100],
            tasks=[1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2],
            compact_after=merged,
        )
        assert _net(found, names) == _net(whole, names)


def _net(found: DriveResult, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The sum of the changes of each row at each instant: readers see no more of them."""
    total: dict[tuple[Any, ...], int] = {}
    for at, sign, *row in plain(found.results, *names):
        total[at, *row] = total.get((at, *row), 0) + sign
    return sorted(((key, count) for key, count in total.items() if count), key=repr)


def test_what_has_expired_on_both_sides_leaves_the_state() -> None:
    epochs = [[rows("x", ("a", n, 10 * n)), rows("y", ("a", n, 10 * n + 1))] for n in range(50)]
    passed = [10 * n + 5 for n in range(50)]
    half = driven(join("full"), epochs[:25], passed[:25], compact_after=range(25)).state_rows
    assert driven(join("full"), epochs, passed, compact_after=range(50)).state_rows == half
    gone = driven(join("full"), [*epochs, []], [*passed, 10_000], compact_after=range(51))
    assert gone.state_rows == 0


def sliding(kind: JoinKind = "left", reach: int = 10) -> SlidingOuterJoin:
    """`x [RANGE reach SLIDE 5] … JOIN y [RANGE reach SLIDE 5] ON x.k = y.k`."""
    return SlidingOuterJoin(spec(kind, UNTIL, reach), Grid(5, 0), kind)


def in_windows(found: DriveResult) -> list[tuple[Any, ...]]:
    """(end, x.v, y.v) of each window in which a result is."""
    ends = [
        (end, left, right)
        for at, left, right, until in plain(found.results, "x.v", "y.v", UNTIL)
        for end in range(at - at % 5 + 5, until + 1, 5)
    ]
    return sorted(ends, key=repr)


def test_a_row_without_a_pair_is_in_each_window_that_has_none_once_that_closes() -> None:
    """The row of x at 2 is in the windows that end at 5 and 10, that of y at 7 in those at 10 and 15."""
    epochs = [[rows("x", ("a", 1, 2)), rows("y", ("a", 7, 7))]]
    full = [(10, 1, 7), (15, None, 7), (5, 1, None)]
    assert in_windows(driven(sliding("full"), epochs, [20])) == full
    assert in_windows(driven(sliding("left"), epochs, [20])) == [(10, 1, 7), (5, 1, None)]
    assert in_windows(driven(sliding("full"), epochs, [9])) == [(10, 1, 7), (5, 1, None)], (
        "10 is not closed yet"
    )
    assert in_windows(driven(sliding("full"), epochs, [0], final=True)) == full
    step_by_step = driven(sliding("full"), [*epochs, [], [], []], [4, 5, 14, 15], compact_after=range(4))
    assert in_windows(step_by_step) == full


def test_a_row_is_stored_as_long_as_a_row_of_the_other_side_may_be_in_a_window_with_it() -> None:
    """The last window of the row of x ends at 10, and rows of y from 5 to 10 are in it."""
    epochs = [[rows("x", ("a", 1, 2))], [rows("y", ("a", 7, 7))], []]
    found = driven(sliding("full"), epochs, [5, 8, 20], compact_after=range(3))
    assert in_windows(found) == [(10, 1, 7), (15, None, 7), (5, 1, None)]


def test_one_result_is_for_all_windows_without_a_pair_that_close_together() -> None:
    epochs = [[rows("x", ("a", 1, 2))], [], []]
    found = driven(sliding(reach=50), epochs, [2, 21, 100])
    assert plain(found.results, "x.v", UNTIL) == [(4, 1, 20), (24, 1, 50)]


def test_equal_rows_of_adjacent_windows_are_no_longer_in_windows_than_one_row_may_be() -> None:
    """The retraction of one and the insertion of the other cancel out; readers know how long a row is at most."""
    epochs = [[rows("x", ("a", 1, 2), ("a", 1, 7), ("a", 1, 12))], [], []]
    found = driven(sliding(reach=5), epochs, [0, 15, 100])
    assert plain(found.results, "x.v", UNTIL) == [(4, 1, 5), (9, 1, 10), (14, 1, 15)]
    apart = [[rows("x", ("a", 1, 2), ("a", 1, 12))], [], []]
    longer = driven(sliding(reach=10), apart, [0, 25, 100])
    assert plain(longer.results, "x.v", UNTIL) == [(4, 1, 10), (14, 1, 20)]


@pytest.mark.parametrize("operator", [sliding("full"), join("full")])
def test_after_the_end_of_both_streams_nothing_is_emitted_again(
    operator: OuterJoin | SlidingOuterJoin,
) -> None:
    epochs = [[rows("x", ("a", 1, 2)), rows("y", ("b", 7, 7))], [], []]
    once = driven(operator, epochs[:2], [0, FOREVER]).results
    again = driven(operator, epochs, [0, FOREVER, FOREVER]).results
    assert once is not None
    assert again is not None
    assert again.num_rows == once.num_rows


def test_windows_that_closed_leave_the_state() -> None:
    epochs = [[rows("x", ("a", n, 10 * n)), rows("y", ("b", n, 10 * n + 1))] for n in range(50)]
    passed = [10 * n + 5 for n in range(50)]
    half = driven(sliding("full"), epochs[:25], passed[:25], compact_after=range(25)).state_rows
    assert driven(sliding("full"), epochs, passed, compact_after=range(50)).state_rows == half
    gone = driven(sliding("full"), [*epochs, []], [*passed, FOREVER], compact_after=range(51))
    assert gone.state_rows == 0


@pytest.mark.parametrize("operator", [join("full"), join("anti"), join("semi"), sliding("full", 12)])
@pytest.mark.parametrize("merged", [0, 1, 99])
def test_a_visit_when_a_row_without_a_pair_is_due_misses_none(
    operator: OuterJoin | SlidingOuterJoin, merged: int
) -> None:
    """A row with a NULL key may be the only one of its task: then nothing but punctuation comes to it."""
    arrived = {
        2: [rows("x", (None, 3, 8))],
        4: [rows("y", ("a", 7, 9), ("b", 8, 30))],
        5: [rows("x", ("a", 1, 15))],
    }
    passed = range(1, 80)
    epochs = [arrived.get(at, []) for at in passed]
    how: dict[str, Any] = {"compact_after": dict.fromkeys(range(len(passed)), merged) if merged else ()}
    always = driven(operator, epochs, passed, **how)
    due = driven(operator, epochs, passed, when_due=True, **how)
    names = operator.spec.shown.names
    expected = sorted(plain(always.results, *names), key=repr)
    assert sorted(plain(due.results, *names), key=repr) == expected != []
    assert len(due.visits) < 20
    assert due.due == FOREVER
