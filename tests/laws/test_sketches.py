"""Laws 1-4 with "within the bound" for "equal": sketches of panes and comparisons with a row's own group, over generated histories,
for any cut, order, tasks and compaction, against the reference's exact answers."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.correlated import depends_on
from headrace.algebra.expressions.expression import Call, Cast, Column, Expression, Named
from headrace.algebra.query import Aggregate, Filter, Node, Project, Query, Windowed
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.aggregates.synopsis_calls import is_synopsis
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, record
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, STRING
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.driving import described, epochs, plain, run
from tests.laws.test_laws import landmarks

SCHEMAS = {"s": some.SCHEMA, "names": some.NAMES}
WITHIN = st.sampled_from((Fraction(1, 4), Fraction(1, 10), Fraction(1, 2)))


@st.composite
def sketched(draw: st.DrawFn) -> AggregateCall:
    """One of the approximate aggregates that panes keep sketches for."""
    function = draw(st.sampled_from(("approx_distinct", "approx_percentile", "approx_top_k", "l2_norm")))
    x, k, y = (some.column(name) for name in ("x", "k", "y"))
    condition = draw(st.sampled_from((None, some.call(">", x, some.literal(-3, BIGINT)))))
    number = draw(st.sampled_from((x, y)))
    argument: Expression = draw(st.sampled_from((x, k, y)))
    argument = {"approx_percentile": number, "approx_top_k": k}.get(function, argument)
    return AggregateCall(
        function,
        argument,
        result_type(function, argument.type),
        condition=condition,
        within=draw(WITHIN),
        share=draw(st.sampled_from((0.0, 0.3, 0.5, 1.0))) if function == "approx_percentile" else None,
        most=draw(st.integers(1, 3)) if function == "approx_top_k" else None,
    )


@st.composite
def comparing(draw: st.DrawFn) -> tuple[NamedAggregate, NamedAggregate]:
    """A value of the group, and how many rows, or how much of them, compare with it: on one side or on two."""
    x = some.column("x")
    function = draw(st.sampled_from(("avg", "min", "max")))
    base = NamedAggregate("base", AggregateCall(function, x, DOUBLE if function == "avg" else BIGINT))
    value: Expression = Column("base", base.call.type)
    kind = base.call.type
    row: Expression = Cast(x, DOUBLE) if kind == DOUBLE else x
    literal = some.literal(4.0 if kind == DOUBLE else 4, kind)
    tests = {
        "one": (some.call(draw(st.sampled_from((">", ">=", "<", "<=", "="))), row, value),),
        "turned": (some.call(draw(st.sampled_from((">", "<="))), value, row),),
        "two": (
            some.call(">", row, Call("-", (value, literal), kind)),
            some.call("<=", row, Call("+", (value, literal), kind)),
        ),
    }[draw(st.sampled_from(("one", "turned", "two")))]
    if draw(st.booleans()):
        tests = (some.call("isnotnull", some.column("g")), *tests)
    condition = tests[0] if len(tests) == 1 else Call("and", tests, BOOLEAN)
    call = draw(
        st.sampled_from(
            (
                AggregateCall("count", None, BIGINT),
                AggregateCall("count", some.column("y"), BIGINT),
                AggregateCall("sum", x, BIGINT),
                AggregateCall("avg", x, DOUBLE),
                AggregateCall("avg", Cast(some.column("g"), DOUBLE), DOUBLE),
            )
        )
    )
    within = draw(WITHIN)
    return base, NamedAggregate(
        "found", AggregateCall(call.function, call.argument, call.type, condition=condition, within=within)
    )


def bound_of(call: AggregateCall) -> AggregateCall:
    return replace(call, type=call.type if call.type.is_fractional else BIGINT, part="bound")


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Approximate aggregates with their bounds, and an exact one, by no, one or two keys."""
    node: Node = Windowed(some.SCAN, "s", draw(st.one_of(some.time_slides(), landmarks())))
    if draw(st.booleans()):
        node = Filter(node, some.call(">", some.column("x"), some.literal(-5, BIGINT)))
    named = [NamedAggregate("rows", AggregateCall("count", None, BIGINT))]
    for index, call in enumerate(draw(st.lists(sketched(), max_size=2))):
        named += [NamedAggregate(f"a{index}", call), NamedAggregate(f"a{index}_bound", bound_of(call))]
    if draw(st.booleans()) or len(named) == 1:
        base, compared = draw(comparing())
        named += [base, compared, NamedAggregate("found_bound", bound_of(compared.call))]
    keys = tuple(
        Named(f"key{name}", some.column(name)) for name in draw(st.sampled_from(((), ("k",), ("k", "g"))))
    )
    shown = [Column(key.name, key.expression.type) for key in keys]
    shown += [Column(item.name, item.call.type) for item in named]
    columns = tuple(Named(column.name, column) for column in shown)
    return Query(Project(Aggregate(node, keys, tuple(named)), columns), "windows")


def within_bounds(query: Query, answered: list[Any], expected: list[Any]) -> None:
    assert isinstance(query.root, Project)
    assert isinstance(query.root.source, Aggregate)
    aggregate = query.root.source
    keys = [key.name for key in aggregate.keys]

    def by_group(rows: list[Any]) -> dict[str, Any]:
        placed = {repr((at, canonical([(0, {key: row[key] for key in keys})]))): row for at, row in rows}
        assert len(placed) == len(rows)
        return placed

    answers, truths = by_group(answered), by_group(expected)
    assert answers.keys() == truths.keys()
    for group, row in answers.items():
        assert row["rows"] == truths[group]["rows"]
        for item in aggregate.aggregates:
            if item.call.within is not None and item.call.part == "value":
                near(
                    item,
                    row[item.name],
                    truths[group][item.name],
                    row[f"{item.name}_bound"],
                    row["rows"],
                    is_sum=bool(depends_on(item.call, aggregate.aggregates)),
                )


def near(item: NamedAggregate, answered: Any, true: Any, bound: Any, rows: int, *, is_sum: bool) -> None:
    call = item.call
    assert call.within is not None
    if is_sum and call.function == "avg":  # where there may be a row there is a mean
        if answered is None or true is None:
            assert true is None
            assert (answered is None) == (bound is None)
            return
    elif is_sum:  # of no rows it is 0
        true = true or 0
        answered = answered or 0
        if call.function == "count":
            assert bound <= call.within * rows
    if true is None:
        assert answered is None
    elif call.type == STRING:
        counts = [
            [(entry["item"], entry["count"]) for entry in json.loads(text)] for text in (answered, true)
        ]
        assert bound <= call.within * rows
        assert len(counts[0]) == len(counts[1])
        for (_, estimate), (_, exact) in zip(*counts, strict=True):
            assert exact <= estimate <= exact + bound
    elif not math.isnan(true):
        fair = (
            4 if call.function == "l2_norm" else 1
        )  # its bound is three standard errors, which a search will find
        assert answered == true or abs(answered - true) <= fair * bound + 1e-9 * abs(true)


@given(data=st.data())
def test_answers_are_within_their_bounds_for_any_cut_order_tasks_and_compaction(data: st.DataObject) -> None:
    query = data.draw(queries(), "query")
    history = data.draw(streams.histories(), "history")
    note(described(query))
    operator = lower("q", query, "q")
    assert isinstance(operator, PaneAggregate)
    assert any(is_synopsis(item.call) for item in operator.aggregates)
    final = data.draw(st.booleans(), "final")
    cut = [
        data.draw(streams.splits(data.draw(st.permutations(e), "order")), "splits")
        for e in epochs(history.streams["s"])
    ]
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=len(cut), max_size=len(cut)), "tasks")
    merges = st.dictionaries(st.integers(0, max(len(cut) - 1, 0)), st.integers(1, 4), max_size=3)
    compactions = data.draw(merges, "compactions")
    results = run(query, history, SCHEMAS, splits=cut, tasks=tasks, final=final, compact_after=compactions)
    expected = windows_answer(query, history, history.punctuation(query), final=final)
    within_bounds(query, plain(results, query), expected)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_rows_in_the_same_batches_give_the_same_answer_to_the_byte(seed: int) -> None:
    """What a restart repeats must come out as it did."""
    drawn = random.Random(seed)
    rows = [
        {
            "k": drawn.choice("abc"),
            "g": drawn.randrange(3),
            "x": int(drawn.expovariate(0.01)),
            "y": drawn.random(),
            "at": index * some.TICK // 9,
        }
        for index in range(900)
    ]
    history = History(
        {"s": record([rows[low : low + 100] for low in range(0, len(rows), 100)], "at", 0)}, {"names": ()}
    )
    query = _everything()
    once, again = (run(query, history, SCHEMAS, final=True) for _ in range(2))
    assert once is not None
    assert once.equals(again)
    within_bounds(
        query, plain(once, query), windows_answer(query, history, history.punctuation(query), final=True)
    )


def _everything() -> Query:
    x, within = some.column("x"), Fraction(1, 20)
    calls = {
        "a": AggregateCall("approx_distinct", x, BIGINT, within=within),
        "b": AggregateCall("approx_percentile", x, DOUBLE, within=within, share=0.9),
        "c": AggregateCall("approx_top_k", Cast(x, STRING), STRING, within=within, most=3),
        "d": AggregateCall("l2_norm", x, DOUBLE, within=Fraction(1, 5)),
    }
    named = [NamedAggregate("rows", AggregateCall("count", None, BIGINT))]
    named.append(NamedAggregate("mean", AggregateCall("avg", x, DOUBLE)))
    condition = some.call(">", Cast(x, DOUBLE), Column("mean", DOUBLE))
    calls["e"] = AggregateCall("count", None, BIGINT, condition=condition, within=within)
    calls["f"] = AggregateCall("sum", x, BIGINT, condition=condition, within=within)
    for name, call in calls.items():
        named += [NamedAggregate(name, call), NamedAggregate(f"{name}_bound", bound_of(call))]
    keys = (Named("keyk", some.column("k")),)
    node = Aggregate(
        Windowed(some.SCAN, "s", TimeSlide(40 * some.TICK, 7 * some.TICK, 0)), keys, tuple(named)
    )
    shown = [Column("keyk", STRING), *(Column(item.name, item.call.type) for item in named)]
    return Query(Project(node, tuple(Named(column.name, column) for column in shown)), "windows")
