"""Windows that slide, worked by hand."""

from __future__ import annotations

import pytest

from headrace.algebra.expressions.expression import Call
from headrace.algebra.query import Distinct, Emit, Filter, Join, Query, StreamScan, Windowed
from headrace.algebra.windows.window import Landmark, RowsSlide, TimeRange, TimeSlide
from headrace.errors import UnsupportedQuery
from headrace.reference.evaluate import invoke, stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.reference.relational import Rejects
from headrace.schema import BIGINT, Field, Schema
from headrace.time import BEGINNING, FOREVER, MINUTE
from tests.reference.building import (
    SECOND,
    TABLE,
    agg,
    at,
    col,
    compare,
    count_of,
    grouped,
    history,
    number,
    once,
    query,
    row,
    select,
    top,
    windowed,
    with_names,
)

TEN_BY_ONE = TimeSlide(10 * MINUTE, MINUTE)


def final(asked: Query, past: History):
    return at(windows_answer(asked, past, BEGINNING, final=True))


@pytest.mark.parametrize("origin", [0, 36_000])
def test_a_row_is_in_ten_windows_when_the_range_is_ten_slides(origin):
    asked = count_of(TimeSlide(10 * MINUTE, MINUTE, origin * SECOND))
    assert final(asked, once(row("a", 1, origin + 5))) == [(origin + 60 * end, 1) for end in range(1, 11)]


def test_windows_before_the_first_full_range_are_partial():
    rows = [row("a", 1, 60 * minute) for minute in range(12)]
    counts = [count for _, count in final(count_of(TEN_BY_ONE), once(*rows))]
    assert counts == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]


def test_punctuation_closes_exactly_the_windows_that_end_at_or_before_it():
    noon = 12 * 3600
    asked = count_of(TimeSlide(600 * SECOND, 60 * SECOND, noon * SECOND))
    past = once(row("a", 1, noon + 605))
    closed = at(windows_answer(asked, past, (noon + 660) * SECOND))
    assert closed == [(noon + 660, 1)]
    assert at(windows_answer(asked, past, (noon + 660) * SECOND - 1)) == []


def test_start_is_in_the_window_and_end_is_not():
    asked = count_of(TimeSlide(10 * SECOND, 10 * SECOND))
    assert final(asked, once(row("a", 1, 10), row("a", 1, 20 - 1e-6), row("a", 1, 20))) == [(20, 2), (30, 1)]


def test_a_slide_that_does_not_divide_the_range_gives_windows_that_overlap_unevenly():
    asked = query(
        select(
            grouped(windowed(TimeSlide(9 * SECOND, 6 * SECOND)), [], n=agg("count")), "n", "s.window_start"
        )
    )
    assert final(asked, once(row("a", 1, 4), row("a", 1, 5))) == [(6, 2, -3 * SECOND), (12, 2, 3 * SECOND)]
    assert final(asked, once(row("a", 1, 1))) == [(6, 1, -3 * SECOND)]


def test_rows_between_the_windows_of_a_slide_above_the_range_are_in_none():
    asked = count_of(TimeSlide(2 * SECOND, 5 * SECOND))
    assert final(asked, once(row("a", 1, 2), row("a", 1, 3), row("a", 1, 9.5))) == [(5, 1), (10, 1)]


def test_negative_times_fall_into_windows_as_positive_ones_do():
    asked = count_of(TimeSlide(4 * SECOND, 2 * SECOND))
    assert final(asked, once(row("a", 1, -3))) == [(-2, 1), (0, 1)]


def test_windows_appear_with_their_bounds_and_id():
    asked = query(
        select(
            windowed(TimeSlide(4 * SECOND, 2 * SECOND)),
            "s.v",
            "s.window_start",
            "s.window_end",
            "s.window_id",
        )
    )
    assert final(asked, once(row("a", 7, 1))) == [
        (2, 7, -2 * SECOND, 2 * SECOND, 1),
        (4, 7, 0, 4 * SECOND, 2),
    ]


def test_landmark_windows_grow_and_end_with_the_first_end_after_the_last_row():
    asked = count_of(Landmark(10 * SECOND))
    past = once(row("a", 1, 3), row("a", 1, 30))
    assert final(asked, past) == [(10, 1), (20, 1), (30, 1), (40, 2)]
    assert at(windows_answer(asked, past, 20 * SECOND)) == [(10, 1), (20, 1)]
    assert at(windows_answer(asked, past, FOREVER)) == final(asked, past)


def test_landmark_windows_have_no_beginning():
    asked = query(select(windowed(Landmark(10 * SECOND)), "s.window_start", "s.window_id"))
    assert final(asked, once(row("a", 1, 13))) == [(20, None, 2)]


def test_only_groups_that_have_a_row_are_emitted():
    past = once(row("a", 1, 1), row("b", 1, 11), row(None, 1, 11))
    asked = count_of(TimeSlide(10 * SECOND, 10 * SECOND), ["k"])
    assert final(asked, past) == [(10, "a", 1), (20, None, 1), (20, "b", 1)]


def test_a_window_whose_rows_fail_where_is_silent_but_not_under_emit_empty():
    where = compare(">", col("v"), number(5))
    counted = grouped(
        Filter(windowed(TimeSlide(10 * SECOND, 10 * SECOND)), where),
        [],
        n=agg("count"),
        total=agg("sum", col("v")),
    )
    past = once(row("a", 1, 1), row("a", 9, 21), row("a", 2, 45))
    assert final(query(select(counted, "n", "total")), past) == [(30, 1, 9)]
    all_windows = [(10, 0, None), (20, 0, None), (30, 1, 9), (40, 0, None), (50, 0, None)]
    assert final(query(select(counted, "n", "total"), emit_empty=True), past) == all_windows


def test_emit_empty_adds_no_groups():
    asked = count_of(TimeSlide(10 * SECOND, 10 * SECOND), ["k"], emit_empty=True)
    assert final(asked, once(row("a", 1, 1), row("a", 1, 21))) == [(10, "a", 1), (30, "a", 1)]


def test_having_sees_the_groups_and_drops_those_for_which_it_is_not_true():
    counted = grouped(
        windowed(TimeSlide(10 * SECOND, 10 * SECOND)), ["k"], n=agg("count"), total=agg("sum", col("v"))
    )
    having = Filter(counted, compare(">", col("total", BIGINT), number(3)))
    past = once(row("a", 1, 1), row("a", 3, 2), row("b", None, 3), row("c", 3, 4))
    assert final(query(select(having, "k", "n")), past) == [(10, "a", 2)]


def test_top_cuts_ties_by_all_columns_ascending_with_nulls_first():
    rows = [row(key, 1, 1) for key in ("b", None, "c", "a")] + [row("z", 5, 1)]
    asked = query(
        top(select(windowed(TimeSlide(10 * SECOND, 10 * SECOND)), "s.v", "s.k"), "v", 3, descending=True)
    )
    assert final(asked, once(*rows)) == [(10, 5, "z"), (10, 1, None), (10, 1, "a")]


def test_top_below_the_select_list_cuts_ties_by_the_columns_that_are_selected():
    """As the binder makes it, where ORDER BY may read what is not selected."""
    first = top(windowed(TimeSlide(10 * SECOND, 10 * SECOND)), "s.at", 1)
    asked = query(select(first, "s.v", "s.k"))
    assert final(asked, once(row("a", 5, 1), row("b", 1, 1))) == [(10, 1, "b")]


def test_distinct_keeps_one_of_each_row_per_window():
    asked = query(Distinct(select(windowed(TimeSlide(20 * SECOND, 10 * SECOND)), "s.k")))
    past = once(row("a", 1, 1), row("a", 2, 2), row(None, 1, 3), row(None, 1, 12))
    assert final(asked, past) == [(10, None), (10, "a"), (20, None), (20, "a"), (30, None)]


def test_istream_and_dstream_compare_a_window_with_the_one_before():
    selected = select(windowed(TimeSlide(20 * SECOND, 10 * SECOND)), "s.k")
    past = once(row("a", 1, 1), row("b", 1, 11), row("b", 1, 12))
    assert final(query(Emit(selected, "istream")), past) == [(10, "a"), (20, "b"), (20, "b")]
    assert final(query(Emit(selected, "dstream")), past) == [(30, "a"), (40, "b"), (40, "b")]
    assert final(query(Emit(selected, "rstream")), past) == final(query(selected), past)
    assert at(windows_answer(query(Emit(selected, "dstream")), past, 30 * SECOND)) == [(30, "a")]


def test_dstream_of_landmark_windows_never_speaks():
    selected = select(windowed(Landmark(10 * SECOND)), "s.k")
    assert final(query(Emit(selected, "dstream")), once(row("a", 1, 1), row("b", 1, 33))) == []


def test_a_stream_valued_query_over_windows_reads_the_same():
    istream = Emit(select(windowed(TimeSlide(20 * SECOND, 10 * SECOND)), "s.k"), "istream")
    past = once(row("a", 1, 1))
    assert stream_answer(query(istream, "stream"), past, FOREVER) == windows_answer(
        query(istream), past, FOREVER
    )


# ----------------------------------------------------------------------------------------------------- windows of rows


def test_a_row_window_is_emitted_at_every_slide_th_row_over_the_last_rows():
    asked = query(
        select(
            grouped(windowed(RowsSlide(3, 2)), [], total=agg("sum", col("v"))),
            "total",
            "s.window_start",
            "s.window_id",
        )
    )
    past = once(*(row("a", 10**index, index + 1) for index in range(7)))
    assert final(asked, past) == [(2, 11, SECOND, 1), (4, 1110, 2 * SECOND, 2), (6, 111000, 4 * SECOND, 3)]


def test_partitions_of_a_row_window_count_for_themselves():
    rows = [row("a", 1, 1), row("b", 2, 2), row("a", 3, 3), row("b", 4, 4), row("a", 5, 5)]
    by_key = count_of(RowsSlide(2, 2, (col("k"),)), total=agg("sum", col("v")))
    assert final(by_key, once(*rows)) == [(3, 2, 4), (4, 2, 6)]
    grouped_after = count_of(RowsSlide(2, 2), ["k"], total=agg("sum", col("v")))
    assert final(grouped_after, once(*rows)) == [
        (2, "a", 1, 1),
        (2, "b", 1, 2),
        (4, "a", 1, 3),
        (4, "b", 1, 4),
    ]


def test_a_row_counts_only_once_punctuation_has_passed_it():
    asked = count_of(RowsSlide(1, 1))
    past = once(row("a", 1, 1), row("a", 1, 2))
    assert at(windows_answer(asked, past, 2 * SECOND)) == [(1, 1)]
    assert at(windows_answer(asked, past, 2 * SECOND + 1)) == [(1, 1), (2, 1)]


def test_ties_in_time_stand_in_the_order_of_ingestion():
    asked = query(select(windowed(RowsSlide(1, 2)), "s.v"))
    assert final(asked, once(row("a", 1, 5), row("a", 2, 5), row("a", 3, 4), row("a", 4, 5))) == [
        (5, 1),
        (5, 4),
    ]


def test_istream_over_row_windows_compares_within_a_partition():
    istream = Emit(select(windowed(RowsSlide(2, 1, (col("k"),))), "s.k", "s.v"), "istream")
    past = once(row("a", 1, 1), row("b", 1, 2), row("a", 2, 3))
    assert final(query(istream), past) == [(1, "a", 1), (2, "b", 1), (3, "a", 2)]


# ---------------------------------------------------------------------------------------------------- joins and INVOKE


def test_null_keys_never_match_and_left_keeps_them():
    names = ({"id": "a", "name": "one"}, {"id": "a", "name": "uno"}, {"id": None, "name": "none"})
    past = history([row("a", 1, 1), row(None, 2, 2), row("z", 3, 3)], names=names)
    source = windowed(TimeSlide(10 * SECOND, 10 * SECOND))
    inner = query(select(with_names(source, "inner"), "s.v", "names.name"))
    assert final(inner, past) == [(10, 1, "one"), (10, 1, "uno")]
    left = query(select(with_names(source, "left"), "s.v", "names.name"))
    assert final(left, past) == [(10, 1, "one"), (10, 1, "uno"), (10, 2, None), (10, 3, None)]


def test_windows_of_one_from_close_together_with_ranges_of_their_own():
    """Pairs whose right row is up to three slides back are found, wherever a window of the left row ends."""
    left = windowed(TimeSlide(3 * SECOND, SECOND), alias="s")
    right = Windowed(StreamScan("r", "r", TABLE, "at"), "r", TimeSlide(2 * SECOND, SECOND))
    joined = Join(left, right, "inner", None)
    past = History({"s": record([[row("l", 1, 10.5)]], "at"), "r": record([[row("r", 2, 11.5)]], "at")}, {})
    asked = query(select(joined, "s.window_end", "r.window_start"))
    assert final(asked, past) == [(12, 12 * SECOND, 10 * SECOND), (13, 13 * SECOND, 11 * SECOND)]


def test_windows_that_share_no_ends_are_refused():
    left = windowed(TimeSlide(3 * SECOND, SECOND))
    right = Windowed(StreamScan("s", "r", TABLE, "at"), "r", TimeSlide(3 * SECOND, 2 * SECOND))
    with pytest.raises(UnsupportedQuery, match="share slide and origin"):
        final(query(select(Join(left, right, "inner", None), "s.v")), once(row("a", 1, 1)))


def test_row_windows_stand_alone():
    right = Windowed(StreamScan("s", "r", TABLE, "at"), "r", RowsSlide(1, 1))
    with pytest.raises(UnsupportedQuery, match="is the only source of its FROM"):
        final(
            query(select(Join(windowed(RowsSlide(1, 1)), right, "inner", None), "s.v")), once(row("a", 1, 1))
        )


def test_a_window_beside_one_that_slides_is_read_at_the_last_instant_inside():
    right = Windowed(StreamScan("r", "r", TABLE, "at"), "r", TimeRange(5 * SECOND))
    past = History(
        {"s": record([[row("l", 1, 7)]], "at"), "r": record([[row("r", v, v) for v in (4, 5, 9, 10)]], "at")}
    )
    joined = Join(windowed(TimeSlide(10 * SECOND, 10 * SECOND)), right, "inner", None)
    asked = query(grouped(joined, [], total=agg("sum", col("r.v", BIGINT))))
    assert [values[1] for values in final(asked, past)] == [5 + 9]


def test_invoke_returns_the_latest_closed_window_even_when_it_is_empty():
    past = once(row("a", 1, 1), row("a", 1, 35))
    asked = count_of(TimeSlide(10 * SECOND, 10 * SECOND))
    assert invoke(asked, past, 19 * SECOND) == [{"n": 1}]
    assert invoke(asked, past, 35 * SECOND) == []
    assert invoke(count_of(TimeSlide(10 * SECOND, 10 * SECOND), emit_empty=True), past, 35 * SECOND) == [
        {"n": 0}
    ]
    assert invoke(asked, past, FOREVER) == [{"n": 1}]
    assert invoke(asked, past, 5 * SECOND) == []
    assert invoke(asked, history([]), BEGINNING) == []


def test_invoke_returns_the_last_row_window_of_each_partition():
    asked = query(select(windowed(RowsSlide(1, 1, (col("k"),))), "s.k", "s.v"))
    past = once(row("a", 1, 1), row("b", 2, 2), row("a", 3, 3))
    assert invoke(asked, past, FOREVER) == [{"k": "a", "v": 3}, {"k": "b", "v": 2}]


def test_windows_over_the_results_of_windows_see_them_inside_the_window_they_end():
    inner = count_of(TimeSlide(10 * SECOND, 10 * SECOND))
    past = once(row("a", 1, 1), row("a", 1, 2), row("a", 1, 15), row("a", 1, 25))
    table = Schema((Field("n", BIGINT),))
    outer = Windowed(StreamScan("inner", "i", table, None), "i", TimeSlide(20 * SECOND, 20 * SECOND))
    asked = query(grouped(outer, [], total=agg("sum", col("i.n", BIGINT))))
    derived = past.with_results("inner", windows_answer(inner, past, FOREVER), inner)
    assert [values[:2] for values in final(asked, derived)] == [(20, 3), (40, 1)]


# --------------------------------------------------------------------------------------------------------- failing rows


def test_a_row_that_fails_leaves_the_query_once_however_many_windows_hold_it():
    rejects = Rejects()
    inverse = compare("=", Call("/", (number(6), col("v")), BIGINT), number(3))
    asked = query(select(Filter(windowed(TimeSlide(4 * SECOND, SECOND)), inverse), "s.k"))
    answer = windows_answer(asked, once(row("a", 0, 1), row("b", 2, 1)), FOREVER, rejects=rejects)
    assert [values for _, values in answer] == [{"k": "b"}] * 4
    assert [(rejected["s.k"], reason) for rejected, reason in rejects.rows.values()] == [
        ("a", "division by zero")
    ]


def test_a_sum_that_overflows_rejects_its_group_and_no_other():
    rejects = Rejects()
    asked = count_of(TimeSlide(10 * SECOND, 10 * SECOND), ["k"], total=agg("sum", col("v")))
    past = once(row("a", 2**63 - 1, 1), row("a", 1, 1), row("b", 1, 1))
    answer = windows_answer(asked, past, FOREVER, rejects=rejects)
    assert at(answer) == [(10, "b", 1, 1)]
    ((rejected, reason),) = rejects.rows.values()
    assert (rejected["k"], reason) == ("a", "9223372036854775808 does not fit BIGINT")
