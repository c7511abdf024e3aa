"""Laws 1-4 of the design for every operator: oracle, split, restart, disorder, against the slow reference.

One check draws all of it at once: how epochs are cut into splits, the order within an epoch, how many tasks hold the state
(another number in every epoch is what a restart elsewhere amounts to), when runs are compacted, and whether the stream
ends. Late rows are judged by the recorded punctuations, so the reference sees the same rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import OF_PAIRS, OF_SHAPE
from headrace.algebra.expressions.expression import Call, Column, Literal, Named
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Query,
    QueryScan,
    RelationScan,
    StreamScan,
    Windowed,
    find_window,
    walk,
)
from headrace.algebra.windows.user_code import Code
from headrace.algebra.windows.window import Custom, Landmark, TimeRange, Unbounded, Window
from headrace.errors import UnsupportedQuery
from headrace.operators.panes.adaptive_panes import EVERY_ROW
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import changes, relation_at, stream_answer, windows_answer
from headrace.reference.history import History
from headrace.reference.values import row_identity
from headrace.schema import BIGINT, BOOLEAN, STRING
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.driving import described, epochs, plain, run
from tests.laws.kinds import Striped

SCHEMAS = {"s": some.SCHEMA, "names": some.NAMES}
ROUNDED = ("sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop", *OF_PAIRS, *OF_SHAPE, "ewma")


def expected(query: Query, history: History, final: bool) -> list[Any]:
    punctuation = history.punctuation(query)
    if query.emission == "windows":
        return windows_answer(query, history, punctuation, final=final)
    if query.emission == "stream":
        return stream_answer(query, history, punctuation, final=final)
    now = history.now(query)
    return changes(query, history, punctuation if not final or now is None else now + 1)


def found(data: st.DataObject, query: Query, history: History, final: bool) -> list[Any]:
    """The operator's answer, for drawn cuts, tasks, compactions and order within epochs."""
    note(described(query))
    cut = [
        data.draw(streams.splits(data.draw(st.permutations(e), "order")), "splits")
        for e in epochs(history.streams["s"])
    ]
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=len(cut), max_size=len(cut)), "tasks")
    merges = st.dictionaries(st.integers(0, max(len(cut) - 1, 0)), st.integers(1, 4), max_size=3)
    compact_after = data.draw(merges, "compactions: after which epoch, how many of the newest runs")
    epoch_numbers = st.integers(0, max(len(cut) - 1, 0))
    keeping = data.draw(
        st.dictionaries(epoch_numbers, st.sampled_from((0, 1, 2, 3, EVERY_ROW)), max_size=3),
        "epochs that keep few rows, or all of them",
    )
    results = run(
        query,
        history,
        SCHEMAS,
        splits=cut,
        tasks=tasks,
        final=final,
        compact_after=compact_after,
        keeping=keeping,
    )
    return plain(results, query, changes=query.emission == "relation")


# ------------------------------------------------------------------------------------------------- kinds of queries


def aggregates(query: Query) -> bool:
    return any(isinstance(node, Aggregate) for node in walk(query.root))


def rounds(query: Query) -> bool:
    """Sums of doubles differ in the last bits with the cut, which may show as a change where there is none."""
    calls = [
        item.call for node in walk(query.root) if isinstance(node, Aggregate) for item in node.aggregates
    ]
    return any(call.function in ROUNDED and call.type.name == "DOUBLE" for call in calls)


def can_be_said(query: Query) -> bool:
    """Conditions below a window come from `GROUP BY window()`, which has no landmarks."""
    windowed = find_window(query.root)
    assert windowed is not None
    return not (isinstance(windowed.window, Landmark) and isinstance(windowed.source, Filter))


def landmarks() -> st.SearchStrategy[Window]:
    return st.builds(
        Landmark,
        st.sampled_from((1, 4, 7)).map(lambda n: n * some.TICK),
        st.sampled_from((0, some.TICK // 2)),
    )


def time_queries(*, emits: bool) -> st.SearchStrategy[Query]:
    windows = st.one_of(some.time_slides(), some.time_slides(), landmarks())
    return some.queries(windows, some.Shape(emits=emits)).filter(can_be_said)


def instant_queries() -> st.SearchStrategy[Query]:
    """A condition below a window at every instant comes from nowhere; RSTREAM covers the rows it drops."""
    return some.queries(some.instant_windows(), some.Shape()).filter(is_said)


def is_said(query: Query) -> bool:
    windowed = find_window(query.root)
    speaks = isinstance(query.root, Emit) and query.root.kind == "rstream"
    return not (speaks and windowed is not None and isinstance(windowed.source, Filter))


def bounds() -> st.SearchStrategy[tuple[Any, Any]]:
    ago = st.integers(0, 9).map(lambda n: Ago(n * some.TICK))
    constant = st.integers(-5, 25).map(lambda n: n * some.TICK)
    return st.tuples(st.one_of(ago, constant), st.one_of(st.just(Ago(0)), ago, constant))


@st.composite
def snapshots(draw: st.DrawFn) -> Query:
    """`BEGIN b END e` over a bare stream or `[RANGE r]`: between WHERE and GROUP BY."""
    windows = st.one_of(st.just(Unbounded()), st.builds(TimeRange, st.sampled_from((0, 3 * some.TICK))))
    query = draw(some.queries(windows, some.Shape(emits=False)))
    begin, end = draw(bounds())
    return Query(bounded(query.root, begin, end), "relation")


def may_not_see_windows(query: Query) -> bool:
    """Changes between windows of users are refused where WHERE or a join may empty a window."""
    try:
        lower("q", query, "q")
    except UnsupportedQuery as refused:
        return "would not be seen" in str(refused)
    return False


def bounded(node: Node, begin: Any, end: Any) -> Node:
    """The same tree with bounds over what windows, WHERE and joins give: below the aggregate, else the select list."""
    assert not isinstance(node, Join | StreamScan | QueryScan | RelationScan)
    grouped = any(isinstance(below, Aggregate) for below in walk(node))
    if isinstance(node, Aggregate) or (isinstance(node, Project) and not grouped):
        return replace(node, source=Bounds(node.source, begin, end))
    return replace(node, source=bounded(node.source, begin, end))


KINDS: dict[str, Callable[[], st.SearchStrategy[Query]]] = {
    "pane aggregates": lambda: time_queries(emits=False).filter(aggregates),
    "rows in windows of time": lambda: time_queries(emits=False).filter(lambda q: not aggregates(q)),
    "changes from window to window": lambda: time_queries(emits=True).filter(
        lambda q: isinstance(q.root, Emit) and not rounds(q)
    ),
    "windows of rows": lambda: some.queries(some.rows_slides(), some.Shape()).filter(
        lambda q: not (isinstance(q.root, Emit) and rounds(q))
    ),
    "windows that end at rows": lambda: some.queries(some.tuple_slides(), some.Shape()).filter(
        lambda q: not (isinstance(q.root, Emit) and rounds(q))
    ),
    "delta windows": lambda: some.queries(some.deltas(), some.Shape()).filter(
        lambda q: not (isinstance(q.root, Emit) and rounds(q))
    ),
    "sessions": lambda: some.queries(some.sessions(), some.Shape()).filter(
        lambda q: not (isinstance(q.root, Emit) and rounds(q))
    ),
    "windows of users": lambda: (
        some.queries(some.user_windows(), some.Shape())
        .filter(lambda q: not (isinstance(q.root, Emit) and rounds(q)))
        .map(lambda q: replace(q, emit_empty=False))
        .filter(lambda q: not may_not_see_windows(q))
    ),
    "rows at instants": lambda: instant_queries().filter(lambda q: not aggregates(q)),
    "aggregates at instants": lambda: instant_queries().filter(lambda q: aggregates(q) and not rounds(q)),
    "rows that pass": some.bare_streams,
    "snapshots": lambda: snapshots().filter(lambda q: not rounds(q)),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_answer_is_the_reference_s_for_any_cut_order_tasks_and_compaction(
    kind: str, data: st.DataObject
) -> None:
    query, history = data.draw(KINDS[kind](), "query"), data.draw(streams.histories(), "history")
    final = data.draw(st.booleans(), "final")
    answer = found(data, query, history, final)
    assert canonical(answer) == canonical(expected(query, history, final))


@given(data=st.data())
def test_changes_of_a_relation_with_doubles_add_up_to_the_relation_at_every_instant(
    data: st.DataObject,
) -> None:
    queries = some.queries(some.instant_windows(), some.Shape(emits=False, top=False, having=False))
    query = data.draw(queries.filter(lambda q: aggregates(q) and rounds(q)), "query")
    history = data.draw(streams.histories(), "history")
    changelog = found(data, query, history, final=False)
    names = query.schema.names
    held: dict[Any, list[Any]] = {}
    for at in sorted({instant for instant, _, _ in changelog}):
        here = [(sign, row) for instant, sign, row in changelog if instant == at]
        for sign, row in sorted(here, key=lambda pair: pair[0]):
            same = held.setdefault(row_identity(row, names), [])
            if sign > 0:
                same.append(row)
            else:
                assert same, "what is retracted was emitted before, to the last bit"
                same.pop()
        now = [row for same in held.values() for row in same]
        assert canonical(now) == canonical(relation_at(query, history, at))


def test_changes_between_windows_of_users_are_refused_where_a_window_may_be_emptied() -> None:
    """The engine sees the rows that pass WHERE alone, the meaning counts every window that holds a row."""
    window = Custom("striped", (Literal(1, BIGINT),), Code(pickle.dumps(Striped)))
    scan = Windowed(some.SCAN, "s", window)
    passed = Filter(scan, Call("=", (Column("s.k", STRING), Literal("a", STRING)), BOOLEAN))
    for node, refused in ((scan, False), (passed, True)):
        query = Query(Emit(Project(node, (Named("k", Column("s.k", STRING)),)), "dstream"), "windows")
        assert may_not_see_windows(query) == refused
