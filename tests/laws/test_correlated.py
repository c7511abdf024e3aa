"""Laws 1-4 for aggregates that compare rows with aggregates of their own group, over windows of every kind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Call, Cast, Column, Expression, Named
from headrace.algebra.query import Aggregate, Emission, Emit, Filter, Node, Project, Query, Windowed
from headrace.algebra.windows.window import Window, slides
from headrace.errors import UnsupportedQuery
from headrace.language.binder.query_binder import bind_query
from headrace.planner.lowering.lower import lower
from headrace.schema import BIGINT, BOOLEAN, DOUBLE
from tests.language.catalog import Catalog
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.test_laws import expected, found, is_said, landmarks


@st.composite
def aggregates(draw: st.DrawFn) -> tuple[NamedAggregate, ...]:
    """One of rows alone, at times of some rows; one or two that depend on it; at times one of level 2."""
    x = some.column("x")
    function = draw(st.sampled_from(("avg", "min", "max", "sum", "count")))
    kind = DOUBLE if function == "avg" else BIGINT
    of_some = some.call(">", x, some.literal(-3, BIGINT)) if draw(st.booleans()) else None
    named = [NamedAggregate("agg0", AggregateCall(function, x, kind, condition=of_some))]
    for index in range(1, draw(st.integers(2, 4))):
        below = draw(st.sampled_from(named))
        value = Column(below.name, below.call.type)
        left: Expression = Cast(x, DOUBLE) if below.call.type == DOUBLE else x
        condition: Expression = some.call(draw(st.sampled_from((">", "<=", "="))), left, value)
        if draw(st.booleans()):
            condition = Call("and", (some.call("isnotnull", some.column("g")), condition), BOOLEAN)
        call = draw(
            st.sampled_from(
                (
                    AggregateCall("count", None, BIGINT),
                    AggregateCall("sum", x, BIGINT),
                    AggregateCall("avg", x, DOUBLE),
                    AggregateCall("count", some.column("k"), BIGINT, distinct=True),
                    AggregateCall("max", some.column("y"), DOUBLE),
                    AggregateCall("percentile", x, DOUBLE, share=0.5),
                )
            )
        )
        named.append(NamedAggregate(f"agg{index}", replace(call, condition=condition)))
    return tuple(named)


@st.composite
def queries(draw: st.DrawFn) -> Query:
    windows: st.SearchStrategy[Window] = st.one_of(
        some.time_slides(),
        landmarks(),
        some.rows_slides(),
        some.tuple_slides(),
        some.deltas(),
        some.instant_windows(),
    )
    window = draw(windows)
    node: Node = Windowed(some.SCAN, "s", window)
    if draw(st.booleans()):
        node = Filter(node, some.call(">", some.column("x"), some.literal(-10, BIGINT)))
    named = draw(aggregates())
    choices = [("k",), ("k", "g")] if not slides(window) else [(), ("k",), ("k", "g")]
    keys = tuple(Named(f"key_{name}", some.column(name)) for name in draw(st.sampled_from(choices)))
    node = Aggregate(node, keys, named)
    last = Column(named[-1].name, named[-1].call.type)
    if draw(st.booleans()):
        node = Filter(node, some.call("isnotnull", last))
    columns = [Column(key.name, key.expression.type) for key in keys]
    columns += [Column(item.name, item.call.type) for item in named]
    root: Node = Project(node, tuple(Named(column.name, column) for column in columns))
    emission: Emission = "windows" if slides(window) else "relation"
    if draw(st.integers(0, 3)) == 0:
        root = Emit(root, draw(st.sampled_from(("istream", "dstream"))))
        emission = "windows" if slides(window) else "stream"
    return Query(root, emission)


@given(data=st.data())
def test_the_answer_is_the_reference_s_for_any_cut_order_tasks_and_compaction(data: st.DataObject) -> None:
    query, history = data.draw(queries().filter(is_said), "query"), data.draw(streams.histories(), "history")
    final = data.draw(st.booleans(), "final")
    answer = found(data, query, history, final)
    assert canonical(answer) == canonical(expected(query, history, final))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "SELECT COUNT_IF(price > AVG(price)) FROM bids [RANGE 1 HOUR]",
            "needs GROUP BY or a window with SLIDE",
        ),
        (
            "SELECT COUNT_IF(price > AVG(price)) FROM bids [RANGE TUMBLING 1 HOUR] EMIT EMPTY",
            "EMIT EMPTY is not available",
        ),
    ],
)
def test_what_rows_that_are_gone_would_have_to_answer_is_refused(text: str, said: str) -> None:
    with pytest.raises(UnsupportedQuery, match=said):
        lower("q", bind_query(text, Catalog()), "q")
