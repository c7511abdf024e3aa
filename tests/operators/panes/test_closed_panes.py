"""Panes that no window to come holds: they are merged, and their blocks built, only when a window asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import Column, Named
from headrace.operators.aggregates import cell_table
from headrace.operators.aggregates.cell_table import disjoint_tables
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.panes import pane_sealing
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.pane_keys import extent, pane_keys
from headrace.operators.panes.pane_sealing import PaneStore, Sealed
from headrace.operators.panes.panes import Panes
from headrace.operators.panes.window_cost_model import Cost
from headrace.operators.window_assembly import assemble
from headrace.operators.window_assembly.assemble import closing, windows
from headrace.schema import BIGINT
from headrace.time import BEGINNING

CALLS = [AggregateCall(name, Column("v", BIGINT), result_type(name, BIGINT)) for name in ("sum", "max")]
GROUPED = Grouped(
    (Named("k", Column("k", BIGINT)),), tuple(NamedAggregate(f"a{n}", call) for n, call in enumerate(CALLS))
)
LAYOUT = GROUPED.layouts[0]
ROWS = st.lists(st.tuples(st.integers(-40, 90), st.integers(0, 3), st.integers(-9, 9)), min_size=1)


def delta(rows: Sequence[tuple[int, int, int]]) -> Sections:
    """What a scan task sends of its rows."""
    at, k, v = (np.array(part, np.int64) for part in zip(*rows, strict=True))
    return {"open0": fold(GROUPED, pane_keys(at), [pa.array(k), pa.array(v)], None)[0]}


def store_of(panes: Panes) -> PaneStore:
    return PaneStore(panes, (panes.per_window or 1).bit_length() - 1, None, None)


def sealed(
    panes: Panes, runs: Sequence[Sections], deltas: Sequence[Sections], closed: int, now: int
) -> Sealed:
    return store_of(panes).seal(LAYOUT, 0, runs, deltas, Advance(closed, now, now))


def emitted(panes: Panes, closed: ClosedPanes, due: range) -> set[tuple[Any, ...]]:
    answers = set()
    for chunk in windows(LAYOUT, panes, closed, due, store_of(panes).top):
        cells = [
            part.tolist()
            for partial_column in LAYOUT.partial_columns
            for part in chunk.answer.cells[partial_column]
        ]
        answers |= set(zip(chunk.windows.tolist(), chunk.keys[0].to_pylist(), *cells, strict=True))
    return answers


def by_definition(
    rows: Sequence[tuple[int, int, int]], panes: Panes, due: range
) -> set[tuple[int, int, int]]:
    """(window, key, greatest value): a window holds the panes from `first` up to `stop`."""
    greatest: dict[tuple[int, int], int] = {}
    for window in due:
        first, stop = panes.first(window), panes.stop(window)
        assert first is not None
        for at, k, v in rows:
            if first <= at < stop:
                greatest[window, k] = max(v, greatest.get((window, k), v))
    return {(*key, top) for key, top in greatest.items()}


@given(
    ROWS,
    ROWS,
    st.integers(1, 12).flatmap(
        lambda back: st.sampled_from([Panes(1, 0, 0, back), Panes(2, 0, 1, back + 1)])
    ),
    st.integers(-45, 30),
    st.integers(0, 70),
    st.booleans(),
)
@example([(-34, 0, 0)], [(0, 0, 0)], Panes(1, 0, 0, 2), -33, 2, False).via(
    "a window whose rows had all closed before"
)
def test_windows_hold_the_same_whether_spent_panes_were_merged_or_not(
    first: list[tuple[int, int, int]],
    second: list[tuple[int, int, int]],
    panes: Panes,
    closed: int,
    further: int,
    rolls: bool,
) -> None:
    """Two epochs of two tasks each; the second's rows are above the punctuation of the first."""
    now = closed + further
    second = [row for row in second if panes.of_instant(closed) <= row[0]] or [(90, 0, 0)]
    earlier = sealed(panes, [], [delta(first), delta(first[:1])], BEGINNING, closed)
    later = sealed(panes, [earlier.sections], [delta(second), delta(second[-1:])], closed, now)
    due = closing(panes, panes.last_closed(closed), panes.last_closed(now), extent(later.closed.panes))
    with pytest.MonkeyPatch.context() as patch:
        made = Cost(2, 2, 0, 0) if rolls else Cost(2, 0, 2, 2)
        patch.setattr(assemble, "cost", lambda *_: made)
        emitted_rows = emitted(panes, later.closed, due)
    rows = [*first, *second]
    assert {(window, key, top) for window, key, *_, top in emitted_rows} == by_definition(rows, panes, due)


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(-9, 9)), max_size=2),
            st.integers(0, 25),
        ),
        min_size=2,
        max_size=6,
    ),
    st.integers(1, 20).flatmap(
        lambda back: st.sampled_from([Panes(1, 0, 0, back), Panes(2, 0, 1, back + 1)])
    ),
    st.sampled_from([Cost(2, 2, 0, 0), Cost(2, 0, 2, 2)]),
)
@example([([(5, 0, 0)], 19), ([], 16)], Panes(1, 0, 0, 16), Cost(2, 0, 2, 2)).via("an epoch without rows")
def test_windows_of_every_epoch_hold_the_rows_of_all_epochs(
    epochs: list[tuple[list[tuple[int, int, int]], int]], panes: Panes, made: Cost
) -> None:
    """Epochs with rows, each of a task of its own, and without; the punctuation goes far, or nowhere."""
    closed, now = BEGINNING, -20
    rows, runs = list[tuple[int, int, int]](), list[Sections]()
    for arrived, further in epochs:
        fresh = [(panes.of_instant(now) + behind, k, v) for behind, k, v in arrived]
        rows += fresh
        now += further
        step = sealed(panes, runs, [delta([row]) for row in fresh], closed, now)
        before = panes.last_closed(now - further if closed != BEGINNING else -200)
        due = closing(panes, before, panes.last_closed(now), extent(step.closed.panes))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(assemble, "cost", lambda *_: made)
            emitted_rows = emitted(panes, step.closed, due)
        every = range(before + 1, panes.last_closed(now) + 1)
        assert {(window, key, top) for window, key, *_, top in emitted_rows} == by_definition(
            rows, panes, every
        )
        runs.append(step.sections)
        closed = now


def test_blocks_of_spent_panes_are_built_for_windows_that_are_made_of_them_alone() -> None:
    rows = [(at, key, at) for at in range(600) for key in range(4)]
    panes, asked = Panes(1, 0, 0, 60), list[tuple[int, int]]()
    build = pane_sealing.parents

    def counted(*given: Any) -> list[pa.Table]:
        asked.append(given[3])
        return build(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pane_sealing, "parents", counted)
        closed = sealed(panes, [], [delta(rows)], BEGINNING, 600).closed
        assert sum(table.num_rows for table in closed.expired) == 4 * 512, (
            "the panes before the last window's"
        )
        many = emitted(panes, closed, range(1, 600))
        assert asked == [(512, 600)], "rolled over: blocks of the panes that windows to come hold"
        few = emitted(panes, closed, range(300, 310))
        assert asked[1:] == [(0, 512)]
    assert few <= many


@given(
    st.lists(ROWS, min_size=1, max_size=3),
    st.builds(Panes, st.just(1), st.just(0), st.just(0), st.integers(1, 5)),
)
def test_tables_of_different_panes_stay_as_they_are_and_answer_as_one(
    drawn: list[list[tuple[int, int, int]]], panes: Panes
) -> None:
    moved = [[(at + 200 * index, k, v) for at, k, v in rows] for index, rows in enumerate(drawn)]
    everything = [row for rows in moved for row in rows]
    due, now = range(-45, 700), 10_000
    answers = []
    for many in (1, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cell_table, "_MANY", many)
            closed = sealed(panes, [], [delta(rows) for rows in reversed(moved)], BEGINNING, now)
            answers.append(emitted(panes, closed.closed, due))
    assert answers[0] == answers[1]
    assert {(window, key, top) for window, key, *_, top in answers[0]} == by_definition(
        everything, panes, due
    )


def test_tables_are_merged_where_a_block_is_in_two_or_a_group_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_table, "_MANY", 1)
    first, second, third = (delta([(at, 1, 5)])["open0"] for at in (3, 5, 9))
    assert disjoint_tables(LAYOUT, [third, first, second]) == [first, second, third]
    assert disjoint_tables(LAYOUT, [first, second.slice(0, 0)]) == [first]
    assert disjoint_tables(LAYOUT, [first, first]) is None
    assert disjoint_tables(LAYOUT, [pa.concat_tables([first, third]), second]) is None
    assert disjoint_tables(LAYOUT, [pa.concat_tables([first, first])]) is None
    assert disjoint_tables(LAYOUT, [pa.concat_tables([second, first])]) is None
    monkeypatch.setattr(cell_table, "_MANY", 3)
    assert disjoint_tables(LAYOUT, [first, second]) is None
