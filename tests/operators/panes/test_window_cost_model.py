"""Differential windows and the cost model that chooses them: equal answers, and costs that are what is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import Column, Named
from headrace.operators.aggregates.cell_table import Layout, merge
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.panes.adaptive_panes import Sizes, panes_pay
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.pane_keys import pane_keys
from headrace.operators.panes.pane_sealing import parents
from headrace.operators.panes.panes import Panes
from headrace.operators.panes.window_cost_model import Cost, cost, rows_for_panes_to_pay
from headrace.operators.window_assembly import assemble, rolling_windows
from headrace.operators.window_assembly.assemble import windows
from headrace.schema import BIGINT, DOUBLE, Type

KEY = Named("k", Column("k", BIGINT))


def layout_of(*calls: tuple[str, Type]) -> Grouped:
    aggregates = [AggregateCall(name, Column("v", kind), result_type(name, kind)) for name, kind in calls]
    return Grouped((KEY,), tuple(NamedAggregate(f"a{n}", call) for n, call in enumerate(aggregates)))


def sealed(grouped: Grouped, panes: Panes, at: np.ndarray, k: np.ndarray, v: pa.Array) -> list[pa.Table]:
    layout = grouped.layouts[0]
    table = merge(layout, fold(grouped, pane_keys(at), [pa.array(k), v], None)[:1])
    top = (panes.per_window or 1).bit_length() - 1
    span = (int(at.min()), (int(at.max()) + 1 + (1 << top)) >> top << top)
    return [table, *parents(layout, [], [table], span, top)]


def forced(patch: pytest.MonkeyPatch, *, differences: bool) -> None:
    made = Cost(1, 1, 2, 0 if differences else 2)
    patch.setattr(assemble, "cost", lambda *_: made)


def emitted(
    layout: Layout, panes: Panes, tables: list[pa.Table], due: range, *, by_query: bool = False
) -> set[tuple[Any, ...]]:
    top = (panes.per_window or 1).bit_length() - 1
    answers = set()
    for chunk in windows(layout, panes, ClosedPanes(tables), due, top, by_query=by_query):
        cells = [
            part.tolist()
            for partial_column in layout.partial_columns
            for part in chunk.answer.cells[partial_column]
        ]
        answers |= set(zip(chunk.windows.tolist(), chunk.keys[0].to_pylist(), *cells, strict=True))
    return answers


@given(
    st.lists(st.tuples(st.integers(-30, 60), st.integers(0, 3), st.integers(-(2**62), 2**62)), min_size=1),
    st.builds(Panes, st.just(1), st.just(0), st.integers(0, 1), st.integers(1, 12)),
)
def test_windows_as_differences_are_those_made_of_blocks(
    drawn: list[tuple[int, int, int]], panes: Panes
) -> None:
    at, k, v = (np.array(part, np.int64) for part in zip(*drawn, strict=True))
    grouped = layout_of(("count", BIGINT), ("sum", BIGINT))
    tables = sealed(grouped, panes, at, k, pa.array(v))
    due = range(panes.first_window(int(at.min())), (panes.last_window(int(at.max())) or 0) + 1)
    answers = []
    for differences in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            forced(patch, differences=differences)
            answers.append(emitted(grouped.layouts[0], panes, tables, due))
            if panes.has_gaps:  # their rows are dropped when they are scanned
                continue
            patch.setattr(assemble, "_CELLS_OF_QUERIES", 1)
            halves = [table.slice(*half) for table in tables for half in ((0, 1), (1,))]
            kept = [table for table in halves if table.num_rows]
            answers.append(emitted(grouped.layouts[0], panes, kept, due, by_query=True))
    assert all(answer == answers[0] for answer in answers)


@given(
    st.lists(st.tuples(st.integers(-30, 60), st.integers(0, 3), st.integers(-(2**62), 2**62)), min_size=1),
    st.builds(Panes, st.just(2), st.just(0), st.integers(0, 1), st.integers(1, 9)),
    st.sampled_from((1, 1 << 20)),
    st.sampled_from((1, 120, 1 << 20)),
)
def test_windows_beyond_their_range_are_as_from_copies_of_rows_when_made_of_dense_panes(
    drawn: list[tuple[int, int, int]], panes: Panes, at_once: int, cells: int
) -> None:
    at, k, v = (np.array(part, np.int64) for part in zip(*drawn, strict=True))
    grouped = layout_of(("count", BIGINT), ("sum", BIGINT), ("max", BIGINT))
    layout = grouped.layouts[0]
    tables = sealed(grouped, panes, at, k, pa.array(v))
    due = range(-12, 45)
    answers, order = [], [[], []]
    for dense in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(assemble, "_rolled_length", lambda *_: 0)
            patch.setattr(assemble, "_is_dense", lambda *_, dense=dense: dense)
            patch.setattr(rolling_windows, "_CELLS_AT_ONCE", at_once)
            patch.setattr(assemble, "_CELLS_OF_QUERIES", cells)
            answers.append(emitted(layout, panes, tables, due))
            for chunk in windows(layout, panes, ClosedPanes(tables), due, 9, by_query=dense):
                keys, numbers = chunk.keys[0].to_pylist(), chunk.windows.tolist()
                order[dense] += zip(keys, numbers, strict=True)
                if dense and (panes.per_window or 0) > 1:
                    assert list(zip(keys, numbers, strict=True)) == sorted(zip(keys, numbers, strict=True))
                    if cells == 1:
                        assert len(set(keys)) == 1
            if dense:
                assert emitted(layout, panes, tables, due, by_query=True) == answers[0]
    assert answers[0] == answers[1]
    assert sorted(order[0]) == sorted(order[1])


@pytest.mark.parametrize(("groups", "is_dense"), [(50, True), (5000, False)])
def test_panes_are_made_dense_where_most_groups_are_in_all_of_them(groups: int, is_dense: bool) -> None:
    panes, grouped = Panes(1, 0, 0, 6), layout_of(("sum", BIGINT))
    at, k = np.arange(5000) % 5, np.arange(5000) * groups // 5000
    if is_dense:
        k = np.arange(5000) // 5 % groups
    tables, rolled = sealed(grouped, panes, at, k, pa.array(k)), []
    original = assemble.rolling
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_rolled_length", lambda *_: 0)
        patch.setattr(assemble, "rolling", lambda *given: rolled.append(1) or original(*given))
        emitted(grouped.layouts[0], panes, tables, range(12))
    assert bool(rolled) == is_dense


@pytest.mark.parametrize(("cells", "portions"), [(1 << 18, 1), (12 * 10, 5), (1, 50)])
def test_windows_are_made_of_as_many_queries_at_a_time_as_have_so_many_cells(
    cells: int, portions: int
) -> None:
    panes, grouped = Panes(1, 0, 0, 6), layout_of(("sum", BIGINT))
    at, k = np.arange(5000) % 5, np.arange(5000) // 5 % 50
    tables = sealed(grouped, panes, at, k, pa.array(k))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_rolled_length", lambda *_: 0)
        patch.setattr(assemble, "_CELLS_OF_QUERIES", cells)
        made = list(windows(grouped.layouts[0], panes, ClosedPanes(tables), range(12), 9, by_query=True))
    assert len(made) == portions


def read_by(grouped: Grouped, panes: Panes, due: range, *, differences: bool) -> int:
    """Rows of panes and blocks that were read to make the windows, one group."""
    at = np.arange(0, panes.stop(due[-1]) + 1)
    values = pa.array(at.astype(np.float64) if grouped.arguments[0].type == DOUBLE else at)
    tables = sealed(grouped, panes, at, np.zeros_like(at), values)
    read: list[int] = []
    original = assemble.gather

    def counting(layout: Layout, held: Any) -> Any:
        gathered = original(layout, held)
        read.append(gathered.rows)
        return gathered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "gather", counting)
        forced(patch, differences=differences)
        assert emitted(grouped.layouts[0], panes, tables, due)
    return sum(read)


@pytest.mark.parametrize("cut", [0, 1])
def test_repair_12_what_differences_cost_is_what_they_read_also_with_two_panes_a_slide(cut: int) -> None:
    """Equation 6.2 as printed counts one pane per slide: with two it would give half of the cost."""
    panes = Panes(2, 0, cut, 20)
    due = range(30, 130)
    held = panes.per_window or 0
    grouped = layout_of(("sum", BIGINT))
    read = read_by(grouped, panes, due, differences=True)
    assert read == held + 99 * panes.per_slide
    assert cost(panes, 100).differences == 2 * read + 100
    assert read < read_by(grouped, panes, due, differences=False)


def test_doubles_and_extremes_are_never_subtracted() -> None:
    """Also where the model would find it cheaper: digits lost stay lost, and NaN never leaves a running total."""
    panes, due = Panes(1, 0, 0, 20), range(30, 130)
    for call in (("sum", DOUBLE), ("avg", DOUBLE), ("max", BIGINT), ("var_pop", DOUBLE)):
        grouped = layout_of(call)
        assert read_by(grouped, panes, due, differences=True) == read_by(
            grouped, panes, due, differences=False
        )


def test_one_window_alone_is_made_of_blocks_and_many_short_ones_as_differences() -> None:
    minute_by_second, hour_by_second = Panes(1, 0, 0, 60), Panes(1, 0, 0, 3600)
    assert cost(minute_by_second, 1).least(subtracts=True) == "blocks"
    assert cost(minute_by_second, 512).least(subtracts=True) == "differences"
    assert cost(minute_by_second, 512).least(subtracts=False) == "rolling"
    assert cost(minute_by_second, 50).least(subtracts=False) == "blocks"
    assert cost(hour_by_second, 512).least(subtracts=True) == "blocks"
    assert cost(Panes(1, 0, 0, 2), 1).least(subtracts=True) == "each"


def test_panes_pay_from_a_few_rows_of_a_group_in_a_window_and_never_where_the_window_is_its_pane() -> None:
    assert rows_for_panes_to_pay(Panes(1, 0, 0, 1)) == float("inf")
    needed = [rows_for_panes_to_pay(Panes(1, 0, 0, back)) for back in (2, 5, 60, 3600)]
    assert all(1 < rows < 12 for rows in needed)


def test_panes_pay_by_how_many_rows_share_one_and_by_how_many_rows_of_a_group_a_window_holds() -> None:
    short, long, alone = Panes(1, 0, 0, 2), Panes(1, 0, 0, 600), Panes(1, 0, 0, 1)
    rare, frequent = Sizes(1000, 1000, 1000, 900, 1000), Sizes(1000, 1000, 1000, 100, 2000)
    assert not panes_pay(short, rare, do=True), "a row alone in its pane goes into its windows by itself"
    assert not panes_pay(long, rare, do=True), "however many these are, if its group has no other row in them"
    assert panes_pay(long, frequent, do=True), "where it has, blocks of panes are smaller than those of rows"
    assert panes_pay(short, frequent, do=True)
    assert not panes_pay(alone, frequent, do=True), "a pane that is its window saves no combination"
    assert panes_pay(short, replace(rare, groups=500, sparse_groups=200), do=True), (
        "most rows are of groups that fold"
    )
    assert panes_pay(short, Sizes(20, 20, 20, 20, 20), do=True), "too few to tell"
    assert not panes_pay(short, Sizes(20, 20, 20, 20, 20), do=False), "so it stays"
    assert panes_pay(short, replace(rare, pairs=0, held=0), do=True), "as while no window has closed"
    between = replace(rare, groups=700, sparse_groups=700)
    assert panes_pay(short, between, do=True)
    assert not panes_pay(short, between, do=False), "hysteresis"
    nearly = replace(frequent, held=round(90 * rows_for_panes_to_pay(short)))
    assert panes_pay(short, nearly, do=True)
    assert not panes_pay(short, nearly, do=False), "of the other measure too"
