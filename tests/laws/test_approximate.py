"""Laws 1-4 with "within the bound" for "equal": approximate aggregates over generated histories, for any cut, order, tasks and
compaction, against the reference's exact answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Expression, Named
from headrace.algebra.query import Aggregate, Filter, Node, Project, Query, Windowed
from headrace.algebra.windows.window import TimeRange, TimeSlide, Window
from headrace.operators.approximate import histogram_store
from headrace.operators.approximate.approximate_instants import ApproximateInstants
from headrace.operators.approximate.approximate_windows import ApproximateWindows
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import changes, relation_at, windows_answer
from headrace.reference.history import History, record
from headrace.schema import BIGINT
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.driving import described, epochs, plain, run

SCHEMAS = {"s": some.SCHEMA, "names": some.NAMES}


@pytest.fixture(autouse=True, scope="module")
def _thin_at_once() -> Iterator[None]:
    """Generated histories are short: a histogram is made from the first cells on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram_store, "_LEAST_CELLS", 0)
        yield


def windows() -> st.SearchStrategy[Window]:
    """Windows of many panes, where synopses are used."""
    return st.builds(
        TimeSlide,
        st.sampled_from((8, 9, 20, 33)).map(lambda n: n * some.TICK),
        st.sampled_from((1, 2, 4)).map(lambda n: n * some.TICK // 2),
        st.sampled_from((0, some.TICK // 3)),
    )


@st.composite
def calls(draw: st.DrawFn) -> AggregateCall:
    within = draw(st.sampled_from((Fraction(1), Fraction(1, 2), Fraction(1, 4))))
    condition = draw(st.sampled_from((None, some.call(">", some.column("x"), some.literal(3, BIGINT)))))
    function, argument = draw(
        st.sampled_from((("approx_count", None), ("approx_count", "k"), ("approx_sum", "x")))
    )
    column = None if argument is None else some.column(argument)
    return AggregateCall(function, column, BIGINT, condition=condition, within=within)


@st.composite
def queries(draw: st.DrawFn, over: st.SearchStrategy[Window]) -> Query:
    """Some approximate aggregates with their bounds, by no, one or two keys."""
    node: Node = Windowed(some.SCAN, "s", draw(over))
    if draw(st.booleans()):
        node = Filter(node, some.call(">", some.column("x"), some.literal(-5, BIGINT)))
    chosen = draw(st.lists(calls(), min_size=1, max_size=3))
    parts = [part for call in chosen for part in (call, bound_of(call))]
    named = tuple(NamedAggregate(f"a{index}", part) for index, part in enumerate(parts))
    keys = tuple(
        Named(f"key{name}", some.column(name)) for name in draw(st.sampled_from(((), ("k",), ("k", "g"))))
    )
    shown: list[Expression] = [Column(key.name, key.expression.type) for key in keys]
    shown += [Column(item.name, item.call.type) for item in named]
    columns = tuple(Named(column.name, column) for column in shown if isinstance(column, Column))
    return Query(Project(Aggregate(node, keys, named), columns), "windows")


def bound_of(call: AggregateCall) -> AggregateCall:
    return AggregateCall(
        call.function, call.argument, BIGINT, condition=call.condition, within=call.within, part="bound"
    )


def within_bounds(query: Query, given_rows: list[Any], expected: list[Any]) -> None:
    assert isinstance(query.root, Project)
    assert isinstance(query.root.source, Aggregate)
    aggregate = query.root.source
    keys = [key.name for key in aggregate.keys]

    def by_group(rows: list[Any]) -> dict[str, Any]:
        placed = {repr((at, canonical([(0, {key: row[key] for key in keys})]))): row for at, row in rows}
        assert len(placed) == len(rows)
        return placed

    answers, truths = by_group(given_rows), by_group(expected)
    assert answers.keys() == truths.keys()
    pairs = zip(aggregate.aggregates[::2], aggregate.aggregates[1::2], strict=True)
    for value, bound in pairs:
        for group, row in answers.items():
            true, answered, slack = truths[group][value.name], row[value.name], row[bound.name]
            if true is None:
                assert answered is None
                continue
            assert value.call.within is not None
            assert abs(answered - true) <= slack <= value.call.within * true


@given(data=st.data())
def test_answers_are_within_their_bounds_for_any_cut_order_tasks_and_compaction(data: st.DataObject) -> None:
    query = data.draw(queries(windows()), "query")
    history = data.draw(streams.histories(), "history")
    note(described(query))
    final = data.draw(st.booleans(), "final")
    cut = [
        data.draw(streams.splits(data.draw(st.permutations(e), "order")), "splits")
        for e in epochs(history.streams["s"])
    ]
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=len(cut), max_size=len(cut)), "tasks")
    merges = st.dictionaries(st.integers(0, max(len(cut) - 1, 0)), st.integers(1, 4), max_size=3)
    results = run(
        query,
        history,
        SCHEMAS,
        splits=cut,
        tasks=tasks,
        final=final,
        compact_after=data.draw(merges, "compactions"),
    )
    expected = windows_answer(query, history, history.punctuation(query), final=final)
    within_bounds(query, plain(results, query), expected)


@given(
    st.lists(st.integers(0, 3), min_size=60, max_size=300), st.integers(1, 3), st.integers(1, 25), st.data()
)
def test_long_streams_are_thinned_over_many_epochs_and_stay_within_their_bounds(
    steps: list[int], k: int, size: int, data: st.DataObject
) -> None:
    """Every instant: a window ends at each tick, and an epoch is `size` rows."""
    within = Fraction(1, k)
    calls = [AggregateCall("approx_count", None, BIGINT, within=within)]
    calls.append(AggregateCall("approx_sum", some.column("x"), BIGINT, within=within))
    parts = [part for call in calls for part in (call, bound_of(call))]
    named = tuple(NamedAggregate(f"a{index}", part) for index, part in enumerate(parts))
    columns = tuple(Named(item.name, Column(item.name, BIGINT)) for item in named)
    window = TimeSlide(data.draw(st.sampled_from((10, 50))) * some.TICK, some.TICK, 0)
    query = Query(Project(Aggregate(Windowed(some.SCAN, "s", window), (), named), columns), "windows")
    at, rows = 0, []
    for step in steps:
        at += step * some.TICK // 2
        rows.append({"k": "a", "g": 0, "x": step**9 % 1000, "y": None, "at": at})
    history = History(
        {"s": record([rows[low : low + size] for low in range(0, len(rows), size)], "at", 0)}, {"names": ()}
    )
    operator = lower("q", query, "q")
    assert isinstance(operator, ApproximateWindows)
    compactions = dict.fromkeys(range(2, len(rows) // size, 3), 3)
    results = run(query, history, SCHEMAS, final=False, compact_after=compactions, operator=operator)
    expected = windows_answer(query, history, history.punctuation(query), final=False)
    within_bounds(query, plain(results, query), expected)


def relations() -> st.SearchStrategy[Window]:
    """`[RANGE d]`, which holds at every instant."""
    return st.builds(TimeRange, st.sampled_from((3, 8, 20)).map(lambda n: n * some.TICK))


def held(changelog: list[Any], instants: list[int]) -> Iterator[tuple[int, list[Any]]]:
    """The bag that changes make at each instant."""
    counts: Counter[str] = Counter()
    rows: dict[str, Any] = {}
    for at in instants:
        for instant, sign, row in changelog:
            if instant == at:
                rows[repr(row)] = row
                counts[repr(row)] += sign
        assert min(counts.values(), default=0) >= 0
        yield at, [(at, rows[name]) for name, count in counts.items() for _ in range(count)]


@pytest.mark.parametrize("size", [7, 40])
def test_long_relations_stay_within_their_bounds_at_every_instant_over_many_epochs(size: int) -> None:
    """Rows are thinned while others come and leave: what was summed up exactly must not be mixed with what was not."""
    calls = [
        AggregateCall(
            name, None if name == "approx_count" else some.column("x"), BIGINT, within=Fraction(1, 3)
        )
        for name in ("approx_count", "approx_sum")
    ]
    parts = [part for call in calls for part in (call, bound_of(call))]
    named = tuple(NamedAggregate(f"a{index}", part) for index, part in enumerate(parts))
    keys = (Named("keyk", some.column("k")),)
    shown = [Column("keyk", some.SCHEMA.field("k").type), *(Column(item.name, BIGINT) for item in named)]
    node = Aggregate(Windowed(some.SCAN, "s", TimeRange(40 * some.TICK)), keys, named)
    query = Query(Project(node, tuple(Named(column.name, column) for column in shown)), "relation")
    rows = [
        {"k": "aab"[n % 3], "g": 0, "x": n * n % 97, "y": None, "at": n * some.TICK // 2} for n in range(180)
    ]
    history = History(
        {"s": record([rows[low : low + size] for low in range(0, len(rows), size)], "at", 0)}, {"names": ()}
    )
    compactions = dict.fromkeys(range(2, len(rows) // size, 3), 3)
    results = run(query, history, SCHEMAS, final=True, compact_after=compactions)
    changelog, greatest = plain(results, query, changes=True), rows[-1]["at"]
    instants = sorted(
        {at for at, _, _ in changelog}
        | {at + off for at in range(0, greatest, 9 * some.TICK) for off in (0, 1)}
    )
    worst = 0
    for at, now in held(changelog, [instant for instant in instants if instant <= greatest]):
        within_bounds(query, now, [(at, row) for row in relation_at(query, history, at)])
        worst = max(worst, *(row["a1"] for _, row in now), 0)
    assert worst > 0, "something is approximate"


@given(data=st.data())
def test_relations_are_within_their_bounds_at_every_instant(data: st.DataObject) -> None:
    query = replace(data.draw(queries(relations()), "query"), emission="relation")
    history = data.draw(streams.histories(), "history")
    note(described(query))
    assert isinstance(lower("q", query, "q"), ApproximateInstants)
    cut = [data.draw(streams.splits(epoch), "splits") for epoch in epochs(history.streams["s"])]
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=len(cut), max_size=len(cut)), "tasks")
    merges = st.dictionaries(st.integers(0, max(len(cut) - 1, 0)), st.integers(1, 4), max_size=3)
    compactions = data.draw(merges, "compactions")
    results = run(query, history, SCHEMAS, splits=cut, tasks=tasks, final=False, compact_after=compactions)
    changelog = plain(results, query, changes=True)
    limit = history.punctuation(query)
    instants = {at for at, _, _ in changes(query, history, limit)} | {at for at, _, _ in changelog}
    for at, now in held(changelog, sorted(instants)):
        within_bounds(query, now, [(at, row) for row in relation_at(query, history, at)])
