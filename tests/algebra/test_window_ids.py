"""Rows and windows, both ways, for every window that slides: `extent` has the rows of a window, `wids` the windows of a row."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Column, Expression, Literal
from headrace.algebra.windows.context import Context, context_of
from headrace.algebra.windows.user_code import Code
from headrace.algebra.windows.user_windows import UserWindow
from headrace.algebra.windows.window import (
    Custom,
    Delta,
    Landmark,
    Numbering,
    Rows,
    RowsSlide,
    Session,
    SlidingWindow,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
)
from headrace.algebra.windows.window_ids import Arrival, WindowId, extent, wids, windows
from headrace.examples.windows import Shifts
from headrace.schema import BIGINT, DOUBLE, STRING
from headrace.time import MINUTE, SECOND
from tests.laws.kinds import Lasting, Striped

PART = (Column("s.k", STRING),)
VALUE = Column("s.y", DOUBLE)
BY: tuple[Numbering, ...] = ("rank", "row_num")


def numberings() -> st.SearchStrategy[Numbering]:
    return st.sampled_from(BY)


def user(name: str, kind: type[UserWindow], *arguments: int, on: tuple[Expression, ...] = ()) -> Custom:
    return Custom(name, tuple(Literal(value, BIGINT) for value in arguments), Code(pickle.dumps(kind)), on)


KINDS: dict[str, st.SearchStrategy[SlidingWindow]] = {
    "sliding": st.builds(TimeSlide, st.integers(1, 12), st.integers(1, 12), st.integers(-9, 9)),
    "tumbling": st.builds(lambda length: TimeSlide(length, length), st.integers(1, 12)),
    "landmark": st.builds(Landmark, st.integers(1, 12), st.integers(-9, 9)),
    "rows": st.builds(RowsSlide, st.integers(1, 6), st.integers(1, 6), st.just(()), numberings()),
    "partitioned rows": st.builds(
        RowsSlide, st.integers(1, 6), st.integers(1, 6), st.just(PART), numberings()
    ),
    "slide by tuple": st.builds(lambda length: TupleSlide(length, 1), st.integers(1, 12)),
    "slide by n on row_num": st.builds(
        TupleSlide, st.integers(1, 12), st.integers(1, 5), st.just(()), st.just("row_num")
    ),
    "slide by n on rank": st.builds(TupleSlide, st.integers(1, 12), st.integers(1, 5)),
    "delta": st.builds(Delta, st.sampled_from((0.0, 1.0, 3.0)), st.just(VALUE)),
    "partitioned delta": st.builds(Delta, st.sampled_from((0.0, 2.0)), st.just(VALUE), st.just(PART)),
    "session": st.builds(Session, st.integers(1, 8)),
    "partitioned session": st.builds(Session, st.integers(1, 8), st.just(PART)),
    "users, linear": st.builds(
        lambda length, every: user("shifts", Shifts, length, every), st.integers(1, 12), st.integers(1, 5)
    ),
    "users, not consecutive": st.integers(1, 4).map(lambda n: user("striped", Striped, n)),
    "users, by value": st.integers(1, 4).map(lambda n: user("lasting", Lasting, n, on=(VALUE,))),
    "partitioned slide by n": st.builds(
        TupleSlide, st.integers(1, 12), st.integers(1, 5), st.just(PART), numberings()
    ),
}


def values() -> st.SearchStrategy[float | None]:
    return st.one_of(st.none(), st.integers(0, 9).map(float))


def streams(window: SlidingWindow) -> st.SearchStrategy[list[Arrival]]:
    """Rows in the order of arrival, with ties and disorder; one partition where the window has none."""
    keys = ("a", "b") if getattr(window, "partition", ()) else ("",)
    row = st.tuples(st.integers(-15, 15), st.sampled_from(keys), values())
    return st.lists(row, max_size=14).map(
        lambda rows: [Arrival(at, index, part, value) for index, (at, part, value) in enumerate(rows)]
    )


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_row_is_in_a_window_s_extent_exactly_when_the_window_is_among_its_wids(
    kind: str, data: st.DataObject
) -> None:
    window = data.draw(KINDS[kind])
    rows = data.draw(streams(window))
    every = windows(window, rows)
    assert len(set(every)) == len(every)
    for wanted in every:
        held = extent(window, rows, wanted)
        assert held, "a window that is there holds a row"
        assert set(held) == {row for row in rows if wanted in wids(window, rows, row)}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_wids_of_a_row_are_windows_that_exist(kind: str, data: st.DataObject) -> None:
    window = data.draw(KINDS[kind])
    rows = data.draw(streams(window))
    every = windows(window, rows)
    for row in rows:
        ids = wids(window, rows, row)
        if ids.stop is not None:
            named = {WindowId(number, ids.part) for number in range(ids.first, ids.stop)}
            assert {one for one in named if one in ids} <= set(every)


@pytest.mark.parametrize(
    "kind",
    [
        "sliding",
        "landmark",
        "rows",
        "slide by tuple",
        "slide by n on rank",
        "delta",
        "session",
        "users, by value",
    ],
)
@given(data=st.data())
def test_windows_are_of_the_set_of_rows_whatever_order_they_are_looked_at(
    kind: str, data: st.DataObject
) -> None:
    window = data.draw(KINDS[kind])
    rows = data.draw(streams(window))
    shuffled = data.draw(st.permutations(rows))
    assert windows(window, rows) == windows(window, shuffled)
    for wanted in windows(window, rows):
        assert set(extent(window, rows, wanted)) == set(extent(window, shuffled, wanted))


# ---------------------------------------------------------------------------------------------------------------- classes


def depends_on(window: SlidingWindow, *, before: bool) -> bool:
    """Whether some row's wids change when rows that arrived before (or after) it are taken away."""
    times = (3, 7, 5, 20, 1, 9, 4, 2, 8, 6)
    stream = [Arrival(at, index, value=float(7 * at % 5)) for index, at in enumerate(times)]
    for index, row in enumerate(stream):
        known = stream[index:] if before else stream[: index + 1]
        mine = {wanted for wanted in windows(window, stream) if wanted in wids(window, stream, row)}
        less = {wanted for wanted in windows(window, stream) if wanted in wids(window, known, row)}
        if mine != less:
            return True
    return False


@pytest.mark.parametrize(
    ("window", "context"),
    [
        (TimeSlide(10, 3), Context.FREE),
        (Landmark(4), Context.FREE),
        (RowsSlide(3, 1, (), "row_num"), Context.FORWARD_FREE),
        (RowsSlide(3, 1), Context.FORWARD_AWARE),
        (TupleSlide(6, 1), Context.FORWARD_AWARE),
        (TupleSlide(6, 2, (), "row_num"), Context.FORWARD_AWARE),
        (TupleSlide(6, 2), Context.FORWARD_AWARE),
        (Delta(2.0, VALUE), Context.FORWARD_AWARE),
        (Session(1), Context.FORWARD_AWARE),
        (user("shifts", Shifts, 7, 3), Context.FREE),
    ],
    ids=repr,
)
def test_the_class_of_a_window_says_what_its_wids_depend_on(window: SlidingWindow, context: Context) -> None:
    assert context_of(window) is context
    if context is Context.FREE:
        assert not depends_on(window, before=True)
        assert not depends_on(window, before=False)
    if context is Context.FORWARD_FREE:
        assert depends_on(window, before=True)
        rows = [Arrival(at, index) for index, at in enumerate((3, 7, 5, 20, 1, 9))]
        for index, row in enumerate(rows):  # whether its windows fill is open; which they are is not
            assert wids(window, rows, row).first == wids(window, rows[: index + 1], row).first
    if context is Context.FORWARD_AWARE:
        assert depends_on(window, before=False)


def test_windows_at_every_instant_are_context_free_unless_rows_are_counted() -> None:
    assert context_of(TimeRange(0)) is context_of(Unbounded()) is Context.FREE
    assert context_of(Rows(3)) is Context.FORWARD_AWARE


# ------------------------------------------------------------------------------------------------------- golden examples
#
# Window i of the thesis ends at origin + (i + 1)*slide; ours are numbered by where they end, one more.


@pytest.mark.parametrize(
    ("thesis", "bounds"), [(0, (-9, 1)), (8, (-1, 9)), (9, (0, 10)), (10, (1, 11)), (14, (5, 15))]
)
def test_golden_1_the_windows_of_ten_minutes_every_minute(thesis: int, bounds: tuple[int, int]) -> None:
    window = TimeSlide(10 * MINUTE, MINUTE)
    assert window.bounds(thesis + 1) == tuple(minute * MINUTE for minute in bounds)
    rows = [Arrival(minute * MINUTE, minute) for minute in range(30)]
    held = [row.at // MINUTE for row in extent(window, rows, WindowId(thesis + 1))]
    assert held == list(range(max(0, bounds[0]), bounds[1])), "windows 0 to 8 are partial"


@pytest.mark.parametrize("origin", [0, 10 * 60 * MINUTE])
def test_golden_2_a_row_five_seconds_after_the_origin_is_in_windows_0_to_9(origin: int) -> None:
    ids = wids(TimeSlide(10 * MINUTE, MINUTE, origin), [], Arrival(origin + 5 * SECOND, 0))
    assert (ids.first - 1, ids.stop) == (0, 9 + 2)


@pytest.mark.parametrize("second", [600, 601, 630, 659])
def test_golden_3_a_row_in_the_eleventh_minute_is_in_windows_10_to_19(second: int) -> None:
    noon = 12 * 60 * MINUTE
    ids = wids(TimeSlide(600 * SECOND, 60 * SECOND, noon), [], Arrival(noon + second * SECOND, 0))
    assert (ids.first - 1, ids.stop) == (10, 20 + 1)


def test_a_landmark_s_windows_are_not_enumerated() -> None:
    ids = wids(Landmark(MINUTE), [], Arrival(90 * SECOND, 0))
    assert (ids.first, ids.stop) == (2, None)
    assert WindowId(10**15) in ids
    assert WindowId(1) not in ids


# ---------------------------------------------------------------------------------------- the printed version


def ceiling(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def test_repair_2_with_ceilings_wids_and_extent_disagree_as_they_do_not_with_floors() -> None:
    wrong = 0
    for length in range(1, 13):
        for slide in range(1, 13):
            window = TimeSlide(length, slide)
            for at in range(40):
                row = Arrival(at, 0)
                held = {wanted.number for wanted in windows(window, [row])}
                ids = wids(window, [row], row)
                assert ids.stop is not None
                assert (
                    held
                    == set(range(ids.first, ids.stop))
                    == {number for number in range(-2, 60) if window.holds(number, at)}
                )
                printed = {n + 1 for n in range(ceiling(at, slide), ceiling(at + length, slide))}
                wrong += printed != held
    assert wrong > 5760 / 2, "most of the 5760 cases"


def test_repair_3_the_origin_is_given_and_not_the_least_time_that_came() -> None:
    window = TimeSlide(10, 4)
    early, late = Arrival(1, 1), Arrival(9, 0)
    assert wids(window, [late], late) == wids(window, [late, early], late)
    printed = [TimeSlide(10, 4, min(row.at for row in rows)) for rows in ([late], [late, early])]
    assert wids(printed[0], [], late) != wids(printed[1], [], late)


def test_repair_6_the_base_of_a_partition_s_rank_is_its_own() -> None:
    rows = [Arrival(0, 0, "a"), Arrival(1, 1, "a"), Arrival(2, 2, "b"), Arrival(3, 3, "b")]
    window = RowsSlide(2, 2, PART)
    assert windows(window, rows) == [WindowId(1, "a"), WindowId(1, "b")]
    assert extent(window, rows, WindowId(1, "b")) == rows[2:]
    base = min(row.position for row in rows)  # as printed: the least number of the whole stream
    printed = {(row.position - base) // window.slide + 1 for row in rows if row.part == "b"}
    assert printed == {2}, "the first window of b would be its second"


def test_repair_7_numbers_begin_at_one() -> None:
    rows = [Arrival(at, at) for at in range(6)]
    window = TupleSlide(10, 3)
    assert [wanted.number for wanted in windows(window, rows)] == [2, 5], "the third and the sixth row"
    printed = [row.at for row in rows if row.position % window.every == 0]
    assert printed == [0, 3]


def test_repair_8_rows_of_one_time_end_one_window_that_holds_them_all() -> None:
    rows = [Arrival(5, 0), Arrival(7, 1), Arrival(7, 2)]
    window = TupleSlide(3, 1)
    assert [wanted.number for wanted in windows(window, rows)] == [5, 7]
    assert extent(window, rows, WindowId(7)) == rows
    printed = [row.at for row in rows]
    assert len(printed) != len(set(printed)), "as printed there is a window a row, two of one id"


def test_ties_of_rank_are_broken_by_arrival() -> None:
    rows = [Arrival(5, 0), Arrival(5, 1), Arrival(6, 2), Arrival(5, 3)]
    assert [wanted.number for wanted in windows(TupleSlide(3, 4), rows)] == [6]
    assert [wanted.number for wanted in windows(TupleSlide(3, 3), rows)] == [5]
