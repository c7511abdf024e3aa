"""Laws that the meaning itself must keep, on random histories: CQL's identities and the duality of windows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Named
from headrace.algebra.query import Aggregate, Emit, Filter, Project, Query, Windowed, find_window
from headrace.algebra.windows.window import (
    Delta,
    Landmark,
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
)
from headrace.reference.evaluate import changes, invoke, relation_at, stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.reference.values import row_identity
from headrace.schema import BIGINT
from headrace.time import BEGINNING, FOREVER
from tests.laws import strategies as gen
from tests.laws import streams
from tests.laws.comparing import canonical

ALL = tuple(Named(name, gen.column(name)) for name in ("k", "g", "x", "y", "at"))


def everything(window, *, below=None, above=None) -> Query:
    """SELECT * over a window, with filters before and after it."""
    source = gen.SCAN if below is None else Filter(gen.SCAN, below)
    node = Windowed(source, "s", window)
    node = node if above is None else Filter(node, above)
    return Query(
        Project(node, ALL), "windows" if isinstance(window, TimeSlide | RowsSlide | Landmark) else "relation"
    )


def bag(rows):
    return Counter(row_identity(row, sorted(row)) for row in rows)


def instants(history):
    times = [row.at for row in history.streams["s"].rows if row.fate != "rejected"]
    return sorted({at + shift for at in times for shift in (-1, 0, 1, 3 * gen.TICK, 3 * gen.TICK + 1)})


@given(gen.queries(gen.instant_windows(), gen.Shape(emits=False)), streams.histories())
def test_what_came_less_what_went_is_the_relation(query, history):
    sums = Counter()
    steps = changes(query, history, FOREVER)
    names = query.schema.names
    for at in instants(history):
        sums.clear()
        for instant, sign, row in steps:
            if instant <= at:
                sums[row_identity(row, sorted(names))] += sign
        assert +sums == bag(relation_at(query, history, at))
        assert all(count >= 0 for count in sums.values())


@given(gen.queries(gen.instant_windows(), gen.Shape(emits=False)), streams.histories())
def test_changes_are_what_istream_and_dstream_emit(query, history):
    for kind, sign in (("istream", 1), ("dstream", -1)):
        emitted = stream_answer(Query(Emit(query.root, kind), "stream"), history, FOREVER)
        ours = [(at, row) for at, change, row in changes(query, history, FOREVER) if change == sign]
        assert canonical(emitted) == canonical(ours)


@given(gen.predicates(), streams.histories(), st.sampled_from((0, gen.TICK, 5 * gen.TICK)))
def test_a_time_window_commutes_with_a_filter(predicate, history, length):
    before = everything(TimeRange(length), below=predicate)
    after = everything(TimeRange(length), above=predicate)
    for at in instants(history):
        assert bag(relation_at(before, history, at)) == bag(relation_at(after, history, at))


@given(gen.predicates(), streams.histories(), gen.time_slides())
def test_a_sliding_time_window_commutes_with_a_filter(predicate, history, window):
    before = windows_answer(everything(window, below=predicate), history, FOREVER)
    assert canonical(before) == canonical(
        windows_answer(everything(window, above=predicate), history, FOREVER)
    )


def test_a_row_window_does_not_commute_with_a_filter():
    predicate = gen.call("=", gen.column("k"), gen.literal("a", gen.column("k").type))
    rows = [{"k": key, "g": None, "x": None, "y": None, "at": at} for at, key in enumerate("ab")]
    history = History({"s": record([rows], "at")})
    assert len(relation_at(everything(Rows(1), below=predicate), history, 9)) == 1
    assert relation_at(everything(Rows(1), above=predicate), history, 9) == []


@given(streams.histories(), st.sampled_from((gen.TICK, 3 * gen.TICK, 7)))
def test_windows_whose_slide_is_their_range_part_the_stream(history, length):
    emitted = windows_answer(everything(TimeSlide(length, length)), history, FOREVER)
    accepted = [dict(row.values) for row in history.streams["s"].ordered()]
    assert bag(row for _, row in emitted) == bag(accepted)
    assert all(end - length <= row["at"] < end and end % length == 0 for end, row in emitted)


@given(streams.histories(), gen.time_slides())
def test_a_row_is_in_a_window_exactly_when_the_window_holds_its_time(history, window):
    emitted = bag({**row, "end": end} for end, row in windows_answer(everything(window), history, FOREVER))
    times = [row.at for row in history.streams["s"].ordered()]
    for row in history.streams["s"].ordered():
        numbers = range(-60, 60) if window.slide >= gen.TICK else ()
        ends = [window.bounds(number)[1] for number in numbers if window.holds(number, row.at)]
        for end in ends:
            assert emitted[row_identity({**row.values, "end": end}, ("at", "end", "g", "k", "x", "y"))] >= 1
    expected = sum(window.holds(number, at) for at in times for number in range(-60, 60))
    assert sum(emitted.values()) == expected


@given(streams.histories(), st.integers(1, 4))
def test_rows_without_partition_are_rows_of_one_partition(history, count):
    constant = gen.literal(1, BIGINT)
    alone, one = everything(Rows(count)), everything(Rows(count, (constant,)))
    for at in instants(history):
        held = relation_at(alone, history, at)
        assert bag(held) == bag(relation_at(one, history, at))
        past = [row for row in history.streams["s"].ordered() if row.at <= at]
        assert len(held) == min(count, len(past))


@given(streams.histories(), st.integers(1, 4))
def test_partitioned_rows_are_the_union_over_the_partitions(history, count):
    by_key = everything(Rows(count, (gen.column("k"),)))
    keys = {row.values["k"] for row in history.streams["s"].ordered()}
    for at in instants(history):
        union = Counter()
        for key in keys:
            same = gen.call("<=>", gen.column("k"), gen.literal(key, gen.column("k").type))
            union += bag(relation_at(everything(Rows(count), below=same), history, at))
        assert bag(relation_at(by_key, history, at)) == union


@given(streams.histories(), gen.rows_slides())
def test_a_row_window_is_the_rows_window_at_the_row_that_closes_it(history, window):
    """Against positions counted by hand, per partition, whatever the times are."""
    parts = {}
    rows = history.streams["s"].ordered()
    if window.numbered == "row_num":
        rows.sort(key=lambda row: row.position)
    for row in rows:
        parts.setdefault(tuple(row.values[part.name[2:]] for part in window.partition), []).append(row)
    expected = [
        (part[last - 1].at, dict(row.values))
        for part in parts.values()
        for last in range(window.slide, len(part) + 1, window.slide)
        for row in part[:last][-window.count :]
    ]
    assert canonical(windows_answer(everything(window), history, FOREVER)) == canonical(expected)


@given(streams.histories())
def test_a_window_of_all_rows_is_a_range_longer_than_the_stream(history):
    longest = everything(TimeRange(10**12))
    for at in instants(history):
        if at < 10**11:
            assert bag(relation_at(everything(Unbounded()), history, at)) == bag(
                relation_at(longest, history, at)
            )


@given(gen.window_queries(), streams.histories())
def test_punctuation_closes_windows_and_never_changes_one(query, history):
    window = window_of(query)
    assume(not (isinstance(window, RowsSlide) and window.numbered == "row_num"))  # those close by arrival
    assume(not isinstance(window, Delta))  # the end of a stream ends those in progress
    every = windows_answer(query, history, FOREVER)
    end_of_all = max((at for at, _ in every), default=0)
    for limit in sorted(
        {row.at + shift for row in history.streams["s"].ordered() for shift in (0, 1, 2 * gen.TICK)}
    ):
        closed = [pair for pair in windows_answer(query, history, limit) if pair[0] <= end_of_all]
        # One more row may fall on the very end of these, so they close a moment after it.
        reached = limit - 1 if isinstance(window, RowsSlide | TupleSlide | Session) else limit
        assert canonical(closed) == canonical(pair for pair in every if pair[0] <= reached)


def window_of(query):
    return find_window(query.root).window


@given(gen.window_queries(), streams.histories(with_late=False), st.randoms(use_true_random=False))
def test_the_cut_into_epochs_means_nothing_while_no_row_is_late(query, history, random):
    rows = [dict(row.values) for row in history.streams["s"].rows]
    at = sorted(random.randrange(len(rows) + 1) for _ in range(3))
    cut = [rows[start:end] for start, end in zip([0, *at], [*at, len(rows)], strict=True)]
    again = replace(history, streams={"s": record(cut, "at", 10**9)})
    assert canonical(windows_answer(query, history, FOREVER)) == canonical(
        windows_answer(query, again, FOREVER)
    )


@given(streams.histories())
def test_a_row_is_late_exactly_when_earlier_epochs_have_promised_more(history):
    stream = history.streams["s"]
    for row in stream.rows:
        promised = BEGINNING if row.epoch == 1 else stream.punctuations[row.epoch - 2]
        assert (row.fate == "late") == (row.at < promised)
    assert list(stream.punctuations) == sorted(stream.punctuations)


@given(gen.queries(gen.time_slides(), gen.Shape(emits=False)), streams.histories())
def test_invoke_is_the_last_window_that_was_streamed_unless_a_later_one_is_empty(query, history):
    punctuation = history.punctuation(query)
    answer = windows_answer(query, history, punctuation)
    window = window_of(query)
    latest = window.anchor + (punctuation - window.anchor) // window.slide * window.slide
    expected = [row for at, row in answer if at == latest]
    assert canonical(invoke(query, history, punctuation)) == canonical(expected)


@given(streams.histories(), gen.time_slides(), gen.aggregate_calls())
def test_groups_part_a_window(history, window, call):
    """Counts of the groups add up to the count of the window."""
    counted = NamedAggregate("n", AggregateCall("count", None, BIGINT, condition=call.condition))
    source = Windowed(gen.SCAN, "s", window)
    whole = Aggregate(source, (), (counted,))
    parts = Aggregate(source, (Named("y", gen.column("y")),), (counted,))
    column = (Named("n", Column("n", BIGINT)),)
    sums = Counter()
    for end, row in windows_answer(Query(Project(parts, column), "windows"), history, FOREVER):
        sums[end] += row["n"]
    answer = windows_answer(Query(Project(whole, column), "windows"), history, FOREVER)
    assert dict(sums) == {end: row["n"] for end, row in answer}
