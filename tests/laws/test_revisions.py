"""WITH REVISIONS, for every operator that has windows of time: after each epoch the answer is the reference's over all rows.

Late rows too, that is, as late as the query allows; whatever the cut, the tasks and the compaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Named
from headrace.algebra.query import Aggregate, Query, Revisions, Windowed
from headrace.algebra.windows.window import TimeSlide
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import revisions, windows_answer
from headrace.reference.history import History, RecordedStream, StreamRow, record
from headrace.schema import BIGINT
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.driving import batch, plain, table
from tests.laws.test_laws import SCHEMAS, rounds, time_queries
from tests.operators.local_driver import drive


def session_queries() -> st.SearchStrategy[Query]:
    return some.queries(some.sessions(), some.Shape(emits=False))


def admitted(stream: RecordedStream, within: int | None) -> list[list[StreamRow]]:
    """The rows that a query WITH REVISIONS sees, by epoch."""
    seen = {row.position for row in stream.revised(within)}
    return [
        [row for row in stream.rows if row.epoch == epoch and row.position in seen]
        for epoch in range(1, len(stream.punctuations) + 1)
    ]


def changelog(
    query: Query, history: History, cut: list[Any], tasks: list[int], merges: Mapping[int, int], final: bool
) -> list[tuple[int, int, dict[str, Any]]]:
    """The operator's changelog."""
    operator, stream = lower("q", query, "q"), history.streams["s"]
    batches = [[batch(part, some.SCHEMA).only(operator.columns) for part in parts] for parts in cut]
    relations: dict[str, pa.Table] = {
        name: table(rows, SCHEMAS[name]) for name, rows in history.relations.items()
    }
    run = drive(
        operator,
        batches,
        stream.punctuations[: len(cut)],
        tasks[: len(cut)],
        final=final,
        relations=relations,
        compact_after=merges,
    )
    return plain(run.results, query, changes=True)


def standing(changes: list[tuple[int, int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    """What a changelog leaves; nothing is retracted that was not emitted."""
    rows: Counter[Any] = Counter()
    latest: dict[Any, tuple[int, dict[str, Any]]] = {}
    for at, sign, row in changes:
        same = repr((at, row))
        latest[same] = (at, row)
        rows[same] += sign
    assert all(count >= 0 for count in rows.values())
    return [latest[same] for same, count in rows.items() for _ in range(count)]


@given(data=st.data())
def test_after_every_epoch_the_standing_answer_is_the_reference_s_over_all_rows(data: st.DataObject) -> None:
    within = data.draw(st.one_of(st.none(), st.integers(0, 12).map(lambda n: n * some.TICK)), "within")
    kind = data.draw(st.sampled_from((time_queries(emits=False), session_queries())), "kind")
    query = replace(data.draw(kind, "query"), revisions=Revisions(within))
    history = data.draw(streams.histories(), "history")
    stream = history.streams["s"]
    cut = [
        data.draw(streams.splits(data.draw(st.permutations(e))), "splits") for e in admitted(stream, within)
    ]
    tasks = data.draw(st.lists(st.integers(1, 3), min_size=len(cut), max_size=len(cut)), "tasks")
    merges = data.draw(st.dictionaries(st.integers(0, 4), st.integers(1, 3), max_size=3), "compactions")
    for last in range(1, len(cut) + 1):
        known = replace(history, streams={"s": stream.after(last)})
        expected = windows_answer(query, known, known.punctuation(query))
        changes = changelog(query, known, cut[:last], tasks, merges, final=False)
        assert canonical(standing(changes)) == canonical(expected)
    final = changelog(query, history, cut, tasks, merges, final=True)
    assert canonical(standing(final)) == canonical(
        windows_answer(query, history, history.punctuation(query), final=True)
    )
    if not rounds(query):
        exact = [(at, sign, row) for _, at, sign, row in revisions(query, history, final=True)]
        assert canonical(net(final)) == canonical(net(exact))


def net(changes: list[tuple[int, int, dict[str, Any]]]) -> list[tuple[int, int, dict[str, Any]]]:
    """The sum of a changelog over its epochs."""
    return [(at, 1, row) for at, row in standing(changes)]


COUNT = NamedAggregate("n", AggregateCall("count", None, BIGINT))
SECOND = some.TICK


def counted(range_: int, slide: int, within: int | None) -> Query:
    window = Windowed(some.SCAN, "s", TimeSlide(range_ * SECOND, slide * SECOND))
    groups = Aggregate(window, (Named("k", some.column("k")),), (COUNT,))
    return Query(some._projected(groups, ["k", "n"]), "windows", revisions=Revisions(within))


def row(at: int) -> dict[str, Any]:
    return {"k": "a", "g": 1, "x": 1, "y": 0.5, "at": at * SECOND}


def replies(query: Query, epochs: list[list[int]]) -> list[tuple[int, int, int]]:
    """(seconds of the window's end, sign, count) as emitted, in order."""
    stream = record([[row(at) for at in epoch] for epoch in epochs], "at", 0)
    assert query.revisions is not None
    cut = [[epoch] for epoch in admitted(stream, query.revisions.within)]
    history = History({"s": stream}, {"names": ()})
    changes = changelog(query, history, cut, [1] * len(cut), {1: 9}, final=False)
    assert Counter((at, sign, values["n"]) for at, sign, values in changes) == Counter(
        (at, sign, values["n"]) for _, at, sign, values in revisions(query, history)
    )
    return [(at // SECOND, sign, values["n"]) for at, sign, values in changes]


def test_by_hand_a_late_row_takes_back_the_count_of_every_window_it_is_in() -> None:
    """Windows of 10 every 5: the row at 7 is in those that end at 10 and 15, which had closed."""
    assert sorted(replies(counted(10, 5, None), [[6, 20], [7], [30]])) == [
        (10, -1, 1),
        (10, 1, 1),
        (10, 1, 2),
        (15, -1, 1),
        (15, 1, 1),
        (15, 1, 2),
        (25, 1, 1),
        (30, 1, 1),
    ]


def test_a_row_later_than_allowed_stays_late_alone() -> None:
    """Punctuation is 20 when the second epoch begins: 7 is 13 behind it."""
    assert (10, -1, 1) not in replies(counted(10, 5, 12 * SECOND), [[6, 20], [7], [30]])
    assert (10, -1, 1) in replies(counted(10, 5, 13 * SECOND), [[6, 20], [7], [30]])


def test_a_late_row_reaches_windows_made_of_many_blocks() -> None:
    """Windows of 64 panes: the late pane is in a block of each level that had been built."""
    epochs = [[*range(100)], [130], [3, 3, 17], [135, 200]]
    changes = replies(counted(64, 1, None), epochs)
    assert (20, -1, 20) in changes
    assert (20, 1, 23) in changes


def test_the_state_of_a_bounded_query_does_not_grow() -> None:
    """Law 8: what no late row can reach any more is dropped when runs are merged."""
    query = counted(10, 5, 20 * SECOND)
    operator = lower("q", query, "q")
    rows = {}
    for epochs in (20, 80):
        stream = record([[row(10 * epoch + at) for at in range(10)] for epoch in range(epochs)], "at", 0)
        batches = [[batch(epoch, some.SCHEMA).only(operator.columns)] for epoch in admitted(stream, None)]
        run = drive(operator, batches, stream.punctuations, final=False, compact_after={epochs - 1: 999})
        rows[epochs] = run.state_rows
    assert rows[20] == rows[80]
