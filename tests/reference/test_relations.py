"""Relations at every instant and the streams made of them, worked by hand."""

from __future__ import annotations

import pytest

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import Column, Named
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Emit,
    Filter,
    Join,
    QueryScan,
    Revisions,
    StreamScan,
    Windowed,
)
from headrace.algebra.windows.window import Rows, TimeRange, TimeSlide, Unbounded
from headrace.errors import UnsupportedQuery
from headrace.reference.evaluate import changes, invoke, relation_at, stream_answer
from headrace.reference.history import History, record
from headrace.schema import BIGINT, DOUBLE, TIMESTAMP, Field, Schema
from headrace.time import BEGINNING, FOREVER
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


def values_at(asked, past, seconds):
    return [tuple(values.values()) for values in relation_at(asked, past, round(seconds * SECOND))]


def test_a_range_window_holds_both_of_its_ends():
    asked = query(select(windowed(TimeRange(10 * SECOND)), "s.v"))
    past = once(row("a", 1, 5))
    assert values_at(asked, past, 5) == [(1,)]
    assert values_at(asked, past, 15) == [(1,)]
    assert values_at(asked, past, 15 + 1e-6) == []
    assert values_at(asked, past, 5 - 1e-6) == []


def test_now_holds_the_rows_of_the_very_instant():
    asked = query(select(windowed(TimeRange(0)), "s.v"))
    past = once(row("a", 1, 5), row("a", 2, 5), row("a", 3, 6))
    assert values_at(asked, past, 5) == [(1,), (2,)]
    assert values_at(asked, past, 5.5) == []


def test_rows_holds_the_last_rows_and_breaks_ties_by_ingestion():
    asked = query(select(windowed(Rows(2)), "s.v"))
    past = once(row("a", 1, 5), row("a", 2, 6), row("a", 3, 5), row("a", 4, 5))
    assert values_at(asked, past, 5) == [(3,), (4,)]
    assert values_at(asked, past, 6) == [(2,), (4,)]


def test_partitioned_rows_hold_the_last_rows_of_each_partition_and_null_is_one():
    asked = query(select(windowed(Rows(1, (col("k"),))), "s.k", "s.v"))
    past = once(row("a", 1, 1), row(None, 2, 2), row("a", 3, 3), row(None, 4, 4))
    assert values_at(asked, past, 3) == [(None, 2), ("a", 3)]
    assert values_at(asked, past, 9) == [(None, 4), ("a", 3)]


def test_a_relation_without_group_by_has_one_row_from_the_first_row_of_its_stream_on():
    asked = count_of(TimeRange(2 * SECOND))
    past = once(row("a", 1, 5))
    assert values_at(asked, past, 4) == []
    assert values_at(asked, past, 7) == [(1,)]
    assert values_at(asked, past, 8) == [(0,)]


def test_changes_are_consolidated_per_instant_below_the_punctuation():
    asked = count_of(TimeRange(2 * SECOND))
    past = once(row("a", 1, 5), row("b", 1, 5), row("c", 1, 7 + 1e-6))
    changelog = [(instant, sign, values["n"]) for instant, sign, values in changes(asked, past, FOREVER)]
    left = 9 * SECOND + 2
    assert changelog == [
        (5 * SECOND, 1, 2),
        (7 * SECOND + 1, -1, 2),
        (7 * SECOND + 1, 1, 1),
        (left, -1, 1),
        (left, 1, 0),
    ]
    assert changes(asked, past, 5 * SECOND) == []


def test_istream_takes_the_bag_difference_of_successive_instants():
    """A value that comes while an equal one expires is not new."""
    selected = select(windowed(TimeRange(5 * SECOND)), "s.v")
    past = once(row("a", 1, 0), row("a", 1, 1), row("a", 1, 5 + 1e-6))
    assert at(stream_answer(query(Emit(selected, "istream")), past, FOREVER)) == [(0, 1), (1, 1)]
    assert at(stream_answer(query(Emit(selected, "dstream")), past, FOREVER)) == [
        (6.000001, 1),
        (10.000002, 1),
    ]
    assert at(stream_answer(query(Emit(selected, "dstream")), past, 7 * SECOND)) == [(6.000001, 1)]
    assert len(stream_answer(query(Emit(selected, "dstream")), past, 7 * SECOND, final=True)) == 2


def test_rstream_over_now_gives_every_row_at_its_instant():
    past = once(row("a", 1, 5), row("a", 1, 5), row("a", 2, 6))
    asked = query(Emit(select(windowed(TimeRange(0)), "s.v"), "rstream"))
    assert at(stream_answer(asked, past, FOREVER)) == [(5, 1), (5, 1), (6, 2)]


def test_rstream_over_a_longer_window_is_refused():
    asked = query(Emit(select(windowed(TimeRange(1)), "s.v"), "rstream"))
    with pytest.raises(UnsupportedQuery, match="RSTREAM needs a window with SLIDE"):
        stream_answer(asked, once(row("a", 1, 1)), FOREVER)


def test_a_select_over_a_bare_stream_speaks_at_commit_and_equals_istream():
    where = compare(">", col("v"), number(1))
    selected = select(Filter(windowed(Unbounded()), where), "s.v")
    past = history([row("a", 1, 1), row("a", 5, 9)], [row("a", 3, 4)], slack=100)
    assert at(stream_answer(query(selected, "stream"), past, BEGINNING)) == [(4, 3), (9, 5)]
    assert stream_answer(query(Emit(selected, "istream")), past, BEGINNING) == stream_answer(
        query(selected, "stream"), past, BEGINNING
    )


def test_an_aggregate_over_a_bare_stream_waits_for_punctuation():
    asked = query(Emit(select(grouped(windowed(Unbounded()), [], n=agg("count")), "n"), "istream"))
    past = once(row("a", 1, 1), row("a", 1, 2))
    assert stream_answer(asked, past, BEGINNING) == []
    assert at(stream_answer(asked, past, FOREVER)) == [(1, 1), (2, 2)]


def test_late_rows_enter_no_query_but_are_a_stream_of_their_own():
    past = history([row("a", 1, 10)], [row("b", 2, 9), row("c", 3, 10)])
    asked = query(select(windowed(Unbounded()), "s.k"), "stream")
    assert [values["k"] for _, values in stream_answer(asked, past, BEGINNING)] == ["a", "c"]
    late = Windowed(StreamScan("s", "s", TABLE, "at", "late"), "s", Unbounded())
    assert [
        values["k"] for _, values in stream_answer(query(select(late, "s.k"), "stream"), past, BEGINNING)
    ] == ["b"]
    revised = type(asked)(asked.root, "stream", revisions=Revisions())
    assert [values["k"] for _, values in stream_answer(revised, past, BEGINNING)] == ["b", "a", "c"]


def test_invoke_reads_a_relation_now_over_all_committed_rows():
    past = history([row("a", 1, 10), row("b", 2, 20)], slack=60)
    assert invoke(
        query(select(windowed(TimeRange(5 * SECOND)), "s.k")), past, past.streams["s"].punctuation
    ) == [{"k": "b"}]
    assert invoke(count_of(Unbounded()), past, BEGINNING) == [{"n": 2}]
    assert invoke(count_of(Unbounded()), history([]), BEGINNING) == []


def test_invoke_returns_the_rows_of_a_stream_so_far():
    asked = query(select(windowed(Unbounded()), "s.k"), "stream")
    assert invoke(asked, once(row("b", 1, 2), row("a", 1, 1)), BEGINNING) == [{"k": "a"}, {"k": "b"}]


def test_begin_and_end_are_both_included_and_bound_every_stream_of_from():
    bounded = Bounds(windowed(Unbounded()), 2 * SECOND, 4 * SECOND)
    past = once(*(row("a", second, second) for second in range(1, 7)))
    assert invoke(query(select(bounded, "s.v")), past, BEGINNING) == [{"v": 2}, {"v": 3}, {"v": 4}]
    other = Windowed(StreamScan("s", "r", TABLE, "at"), "r", Unbounded())
    pairs = Bounds(Join(windowed(Unbounded()), other, "inner", None), 2 * SECOND, 4 * SECOND)
    assert invoke(query(select(grouped(pairs, [], n=agg("count")), "n"), "relation"), past, BEGINNING) == [
        {"n": 9}
    ]


def test_bounds_relative_to_now_move_with_it_and_meet_the_bracket():
    recent = Bounds(windowed(Unbounded()), Ago(2 * SECOND), Ago(1 * SECOND))
    past = once(*(row("a", second, second) for second in range(1, 7)))
    assert invoke(query(select(recent, "s.v")), past, BEGINNING) == [{"v": 4}, {"v": 5}]
    bracketed = Bounds(windowed(Rows(2)), Ago(2 * SECOND), Ago(1 * SECOND))
    assert invoke(query(select(bracketed, "s.v")), past, BEGINNING) == [{"v": 5}]
    changelog = [
        (instant // SECOND, sign, values["v"])
        for instant, sign, values in changes(query(select(recent, "s.v")), once(row("a", 1, 1)), FOREVER)
    ]
    assert changelog == [(2, 1, 1), (3, -1, 1)]


def test_null_keys_never_match_a_relation():
    names = ({"id": "a", "name": "one"}, {"id": None, "name": "none"})
    past = history([row("a", 1, 1), row(None, 2, 2)], names=names)
    asked = query(Emit(select(with_names(windowed(Unbounded()), "left"), "s.v", "names.name"), "istream"))
    assert at(stream_answer(asked, past, BEGINNING)) == [(1, 1, "one"), (2, 2, None)]


def test_the_cars_of_an_accident_stopped_for_four_reports():
    """A block of the Linear Road query: the last four reports of each car, all from one place."""
    last = windowed(Rows(4, (col("k"),)))
    stopped = grouped(last, ["k"], n=agg("count"), places=agg("count", col("v"), distinct=True))
    both = compare(
        "and", compare("=", Column("n", BIGINT), number(4)), compare("=", Column("places", BIGINT), number(1))
    )
    asked = query(select(Filter(stopped, both), "k"))
    rows = (
        [row("a", 7, second) for second in range(5)]
        + [row("b", second, second) for second in range(5)]
        + [row("c", 7, 0)]
    )
    assert values_at(asked, once(*rows), 3) == [("a",)]


def test_top_is_taken_per_instant():
    asked = query(top(select(windowed(TimeRange(5 * SECOND)), "s.v"), "v", 1, descending=True))
    past = once(row("a", 9, 0), row("a", 1, 1))
    assert values_at(asked, past, 5) == [(9,)]
    assert values_at(asked, past, 6) == [(1,)]


def test_nan_and_negative_zero_group_as_sql_has_them():
    y = Named("y", Column("s.y", DOUBLE))
    scan = StreamScan("s", "s", Schema((Field("y", DOUBLE), Field("at", TIMESTAMP))), "at")
    asked = query(Aggregate(Windowed(scan, "s", Unbounded()), (y,), (NamedAggregate("n", agg("count")),)))
    doubles = [float("nan"), float("nan"), 0.0, -0.0, None, None]
    rows = [{"y": value, "at": 0} for value in doubles]
    relation = relation_at(asked, History({"s": record([rows], "at")}), 0)
    assert [(str(values["y"]), values["n"]) for values in relation] == [("None", 2), ("0.0", 2), ("nan", 2)]


def test_a_sliding_window_has_no_relation_at_an_instant():
    with pytest.raises(UnsupportedQuery, match="per window"):
        relation_at(count_of(TimeSlide(5, 5)), once(row("a", 1, 1)), 0)


def test_a_nested_relation_to_stream_operator_is_refused():
    nested = Emit(select(windowed(Unbounded()), "s.v"), "istream")
    with pytest.raises(UnsupportedQuery, match="at the top of a query"):
        relation_at(
            query(Filter(nested, compare(">", Column("v", BIGINT), number(1))), "relation"),
            once(row("a", 1, 1)),
            FOREVER,
        )


def test_a_window_over_something_else_than_a_stream_is_refused():
    window = Windowed(Aggregate(windowed(Unbounded()), (), ()), "s", Unbounded())
    with pytest.raises(UnsupportedQuery, match="is taken over a stream and its filters, not over Aggregate"):
        relation_at(query(window, "relation"), once(row("a", 1, 1)), FOREVER)


def test_a_query_over_a_relation_valued_query_reads_its_changes_as_a_stream():
    inner = query(Emit(select(windowed(Unbounded()), "s.v"), "istream"))
    past = once(row("a", 4, 1), row("a", 5, 2))
    derived = past.with_results("q", stream_answer(inner, past, FOREVER), inner)
    outer = query(
        grouped(
            Windowed(QueryScan("q", "q", inner.schema), "q", Rows(1)), [], last=agg("max", col("q.v", BIGINT))
        )
    )
    assert [
        values["last"] for values in (relation_at(outer, derived, at)[0] for at in (SECOND, 2 * SECOND))
    ] == [4, 5]
