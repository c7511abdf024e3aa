"""Laws 1-4 of the design for every operator: oracle, split, restart, disorder, against the slow reference."""

from __future__ import annotations

from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.query import Aggregate, Emit, Filter, Query, find_window, walk
from headrace.algebra.windows import Landmark, TimeSlide, Window
from headrace.reference.evaluate import changes, stream_answer, windows_answer
from headrace.reference.history import History
from tests.laws import strategies as some
from tests.laws.driving import described, epochs, plain, run

SCHEMAS = {"s": some.SCHEMA, "names": some.NAMES}


def expected(query: Query, history: History, final: bool) -> list[Any]:
    punctuation = history.punctuation(query)
    if query.emission == "windows":
        return windows_answer(query, history, punctuation, final=final)
    if query.emission == "stream":
        return stream_answer(query, history, punctuation, final=final)
    now = history.now(query)
    return changes(query, history, punctuation if not final or now is None else now + 1)


def check(data: st.DataObject, query: Query, history: History) -> None:
    """Draw cuts, tasks, compactions and an order within epochs; the answer must be the reference's."""
    final = data.draw(st.booleans(), "final")
    cut = [
        data.draw(some.splits(data.draw(st.permutations(e), "order")), "splits")
        for e in epochs(history.streams["s"])
    ]
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=len(cut), max_size=len(cut)), "tasks")
    compact_after = data.draw(st.lists(st.integers(0, max(len(cut) - 1, 0)), max_size=3), "compactions")
    found = run(query, history, SCHEMAS, splits=cut, tasks=tasks, final=final, compact_after=compact_after)
    got = plain(found, query, changes=query.emission == "relation")
    note(described(query))
    assert some.canonical(got) == some.canonical(expected(query, history, final))


def aggregates(query: Query) -> bool:
    return any(isinstance(node, Aggregate) for node in walk(query.root))


def landmarks() -> st.SearchStrategy[Window]:
    return st.builds(
        Landmark,
        st.sampled_from((1, 4, 7)).map(lambda n: n * some.TICK),
        st.sampled_from((0, some.TICK // 2)),
    )


def can_be_said(query: Query) -> bool:
    """Conditions below a window come from `GROUP BY window()`, which has no landmarks.

    EMIT EMPTY over windows with gaps between them differs by design: an empty window is told when punctuation passes
    it, the reference waits for a later one that holds a row.
    """
    windowed = find_window(query.root)
    assert windowed is not None
    window = windowed.window
    if isinstance(window, TimeSlide) and window.slide > window.range and query.emit_empty:
        return False
    return not (isinstance(window, Landmark) and isinstance(windowed.source, Filter))


def pane_queries() -> st.SearchStrategy[Query]:
    windows = st.one_of(some.time_slides(), some.time_slides(), landmarks())
    return some.queries(windows, some.Shape(emits=False)).filter(aggregates).filter(can_be_said)


@given(st.data(), pane_queries(), some.histories())
def test_panes_answer_as_the_reference_for_any_cut_into_epochs_splits_and_tasks(
    data: st.DataObject, query: Query, history: History
) -> None:
    check(data, query, history)


def without_doubles(query: Query) -> bool:
    """Sums of doubles differ in the last bits with the cut, which may show as a change where there is none."""
    rounding = ("sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop")
    calls = [
        item.call for node in walk(query.root) if isinstance(node, Aggregate) for item in node.aggregates
    ]
    return all(call.function not in rounding or call.type.name != "DOUBLE" for call in calls)


def row_windows() -> st.SearchStrategy[Query]:
    windows = st.one_of(some.time_slides(), landmarks())
    return (
        some.queries(windows, some.Shape(emits=False)).filter(lambda q: not aggregates(q)).filter(can_be_said)
    )


def window_changes() -> st.SearchStrategy[Query]:
    windows = st.one_of(some.time_slides(), landmarks())
    wanted = some.queries(windows, some.Shape()).filter(can_be_said)
    return wanted.filter(lambda q: isinstance(q.root, Emit)).filter(without_doubles)


def row_slides() -> st.SearchStrategy[Query]:
    return some.queries(some.rows_slides(), some.Shape()).filter(
        lambda q: not isinstance(q.root, Emit) or without_doubles(q)
    )


def instant_rows() -> st.SearchStrategy[Query]:
    return some.queries(some.instant_windows(), some.Shape()).filter(lambda q: not aggregates(q))


def instant_aggregates() -> st.SearchStrategy[Query]:
    return some.queries(some.instant_windows(), some.Shape()).filter(aggregates).filter(without_doubles)


FUZZ = {
    "passing": some.bare_streams,
    "window_rows": row_windows,
    "window_changes": window_changes,
    "row_slides": row_slides,
    "instant_rows": instant_rows,
    "instant_aggregates": instant_aggregates,
}
