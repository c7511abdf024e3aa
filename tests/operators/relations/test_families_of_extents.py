"""Queries of one family over windows of other extents answer as they do alone, over many epochs, tasks and merges."""

from __future__ import annotations

import pytest

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import Column, Named
from headrace.algebra.query import Aggregate, Distinct, Node, Project, Query, Windowed
from headrace.algebra.windows.window import Rows, RowsSlide, Session, TimeRange, TupleSlide, Window
from headrace.planner.lowering.lower import lower
from headrace.reference.history import History, record
from tests.laws.comparing import canonical
from tests.laws.driving import epochs, plain, run
from tests.laws.families import Families, Registered
from tests.laws.strategies import SCAN, SCHEMA, TICK, column

CALLS = (("count", None, False), ("sum", "x", False), ("max", "x", False), ("count", "x", True))
K = (column("k"),)
WINDOWS: dict[str, list[Window]] = {
    "ranges": [TimeRange(n * TICK) for n in (2, 5, 9, 30)],
    "equal ranges": [TimeRange(9 * TICK)] * 3,
    "counts": [Rows(n, K) for n in (1, 2, 4, 9)],
    "slides": [RowsSlide(n, 4, K) for n in (1, 4, 5, 14)],
    "ends at rows": [TupleSlide(n * TICK, 3, K) for n in (1, 4, 20)],
    "sessions": [Session(n * TICK // 2, K) for n in (1, 2, 4)],
}
IDS = ("q0", "q4", "q6", "q7")
"""Their slots are of different tasks."""
KEYS = {"by k": ("k",), "by k and g": ("k", "g"), "of all": ()}


def query(window: Window, keys: tuple[str, ...], *, rows: bool) -> Query:
    node: Node = Windowed(SCAN, "s", window)
    if rows:
        names = [f"s.{key}" for key in (*keys, "x")]
        node = Distinct(
            Project(node, tuple(Named(n[2:], Column(n, SCHEMA.field(n[2:]).type)) for n in names))
        )
    else:
        calls = tuple(
            NamedAggregate(f"a{n}", AggregateCall(f, c, result_type(f, c.type if c else None), distinct))
            for n, (f, name, distinct) in enumerate(CALLS)
            for c in [None if name is None else column(name)]
        )
        node = Aggregate(node, tuple(Named(key, column(key)) for key in keys), calls)
        fields = {field.name: field.type for field in node.schema}
        node = Project(node, tuple(Named(name, Column(name, kind)) for name, kind in fields.items()))
    is_relation = isinstance(window, TimeRange | Rows)
    return Query(node, "relation" if is_relation else "windows")


def history() -> History:
    """A hundred rows of three keys, some times equal, now and then a pause; punctuation follows them."""
    rows, at = [], 0
    for n in range(100):
        at += (0, TICK, TICK // 2, TICK // 3)[n * 7 % 4] + (6 * TICK if n % 31 == 30 else 0)
        rows.append({"k": "abc"[n * 5 % 3], "g": n % 2, "x": n * 11 % 17, "y": 0.5, "at": at})
    return History({"s": record([rows[low : low + 4] for low in range(0, 100, 4)], "at", TICK)}, {})


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("windows", WINDOWS)
def test_each_answers_as_alone(windows: str, keys: str, rows: bool) -> None:
    past = history()
    wanted = [query(window, KEYS[keys], rows=rows) for window in WINDOWS[windows]]
    queries = [
        Registered(each, lower(id_, each, id_), 9 if id_ == "q6" else 0, 1 << 30)
        for id_, each in zip(IDS, wanted, strict=False)
    ]
    assert len({each.operator.family_key for each in queries}) == 1
    assert queries[0].operator.family_key is not None
    count = len(past.streams["s"].punctuations)
    driven = Families(queries, past, {"s": SCHEMA})
    cut = [[epoch[0::2], epoch[1::2]] for epoch in epochs(past.streams["s"])]
    driven.run(cut, [1 + n % 3 for n in range(count)], {n: 3 + n % 5 for n in range(5, count, 4)})
    for each in queries:
        relation = each.query.emission == "relation"
        answer = [row for part in each.results for row in plain(part, each.query, changes=relation)]
        alone = plain(run(each.query, past, {"s": SCHEMA}, final=False), each.query, changes=relation)
        assert len(alone) > 5
        assert canonical(answer) == canonical(alone)
