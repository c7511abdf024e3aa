"""Cells of several folds that are added up in dense arrays are those that a merge of their rows gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Named
from headrace.algebra.windows.window import TimeSlide, Window
from headrace.operators.aggregates.cell_table import FIRST_KEY, fresh_slots
from headrace.operators.base.group_codes import group
from headrace.operators.base.operator import Operator
from headrace.operators.families.numbering import id_of
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.native import cells as native_cells
from headrace.operators.shared_aggregation import compiled_bitmaps, histograms, query_cells, strategy
from headrace.operators.sharing import dense_cells, shared_predicates
from headrace.operators.sharing.dense_cells import DenseCells, DenseFold, Pairs
from headrace.operators.sharing.shared_predicates import SharedPredicates
from headrace.planner.lowering.lower import lower
from headrace.schema import BIGINT, DOUBLE
from tests.laws import streams
from tests.laws.strategies import TICK, column
from tests.operators.sharing.test_few_conditions import above
from tests.operators.sharing.test_shared_panes import counted, harvested, query, rows

CALLS = [
    AggregateCall("count", None, BIGINT),
    AggregateCall("sum", column("x"), BIGINT),
    AggregateCall("sum", column("y"), DOUBLE),
    AggregateCall("min", column("x"), BIGINT),
    AggregateCall("max", column("y"), DOUBLE),
]
SLIDES = (TimeSlide(4 * TICK, TICK), TimeSlide(6 * TICK, 2 * TICK), TimeSlide(5 * TICK, 3 * TICK))


def operators_of(windows: list[Window], keys: tuple[str, ...], calls: list[AggregateCall]) -> list[Operator]:
    named = tuple(Named(name, column(name)) for name in keys)
    return [
        lower(f"q{n}", query(window, above(n % 3), named, calls), f"q{n}") for n, window in enumerate(windows)
    ]


def cells(output: ScanOutput) -> dict[str, list[str]]:
    """The rows of each section, in the order of panes and else in any; the greatest of 0.0 and -0.0 is either.

    Each is one cell, and they are counted by query.
    """
    listed, by_query = {}, Counter[str]()
    for section, tables in output.sections.items():
        (table,) = tables
        keys = table.column(0).to_pylist()
        assert keys == sorted(keys)
        names = [name for name in table.column_names if name[0] == "k" and name[1:].isdigit()]
        identities = zip(keys, *(table.column(name).to_pylist() for name in names), strict=True)
        assert len(set(identities)) == table.num_rows
        by_query.update(map(id_of, table.column(FIRST_KEY).to_pylist()))
        columns = ([0.0 if value == 0.0 else value for value in part.to_pylist()] for part in table.columns)
        listed[section] = sorted(map(repr, zip(*columns, strict=True)))
    assert {query: rows for query, rows in output.delta_rows.items() if rows} == by_query
    return listed


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether dense arrays were used by each finish of several folds."""
    seen, original = list[bool](), DenseCells.of

    def of(*arguments: Any) -> list[DenseCells]:
        dense = original(*arguments)
        seen.append(bool(dense))
        return dense

    monkeypatch.setattr(DenseCells, "of", staticmethod(of))
    for name, value in (("_LEAST_ROWS", 0), ("_LEAST_GAIN", 0), ("FOLDED_AT_ONCE", 1)):
        monkeypatch.setattr(shared_predicates, name, value)
    return seen


@given(
    windows=st.lists(st.sampled_from(SLIDES), min_size=2, max_size=6),
    keys=st.sampled_from(((), ("k",), ("k", "g"))),
    calls=st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True),
    drawn=st.lists(streams.rows(), min_size=1, max_size=4),
    portion=st.sampled_from((1, 9, 1 << 18)),
)
def test_added_up_or_merged(
    windows: list[Window], keys: tuple[str, ...], calls: list[AggregateCall], drawn: list[Any], portion: int
) -> None:
    operators, batches = operators_of(windows, keys, calls), [rows(epoch) for epoch in drawn]
    outputs = []
    for least, merges in ((0, False), (1 << 40, False), (0, True), (1 << 40, True)):
        with pytest.MonkeyPatch.context() as patch:
            at_once = ("_LEAST_AT_ONCE", 0)  # groups are numbered by slot
            for name, value in (("_LEAST_ROWS", 0), ("_LEAST_GAIN", 0), ("FOLDED_AT_ONCE", 1), at_once):
                patch.setattr(shared_predicates, name, value)
            for name, value in (("MOST_EMPTY", 1 << 20), ("_LEAST", least), ("_PORTION", portion)):
                patch.setattr(dense_cells, name, value)
            patch.setattr(query_cells, "MOST_EMPTY", 1 << 20)
            if merges:
                patch.setattr(DenseCells, "of", staticmethod(lambda *_: []))
            outputs.append(harvested(operators, batches))
    assert all(cells(output) == cells(outputs[0]) for output in outputs)
    assert all(counted(output) == counted(outputs[0]) for output in outputs)


@pytest.mark.parametrize("least", [0, 1 << 40])
def test_cells_of_panes_that_are_parts_of_another_are_merged_for_it(
    monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    for name, value in (("_LEAST_ROWS", 0), ("_LEAST_GAIN", 0), ("FOLDED_AT_ONCE", 1)):
        monkeypatch.setattr(shared_predicates, name, value)
    monkeypatch.setattr(dense_cells, "_LEAST", least)
    operators = operators_of(list(SLIDES[:2]) * 2, ("k",), CALLS[:2])
    drawn = [{**row, "k": "same", "at": at * TICK} for row in many(np.full(3, 9)) for at in (0, 1, 4)]
    fine, coarse = sorted(map(len, cells(harvested(operators, [rows(drawn)])).values()), reverse=True)
    assert (fine, coarse) == (2 * 3, 2 * 2)


def test_folds_of_the_same_panes_and_groups_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[int]()
    original = DenseCells.of

    def of(layout: Any, folds: Any, slots: int) -> list[DenseCells]:
        kept.append(len(folds))
        return original(layout, folds, slots)

    monkeypatch.setattr(DenseCells, "of", staticmethod(of))
    monkeypatch.setattr(dense_cells, "_LEAST", 0)
    for name in ("_LEAST_ROWS", "_LEAST_GAIN", "FOLDED_AT_ONCE"):
        monkeypatch.setattr(shared_predicates, name, 0)
    operators = operators_of([SLIDES[0]] * 3, ("k",), CALLS[:2])
    first, second = many(np.full(64, 9)), many(np.full(64, 5))
    same = [first, second[::-1], second[:5], [{**second[2], "at": 6 * TICK}]]
    others = [{**row, "k": f"other{row['k']}"} for row in first]
    batches = [rows(epoch) for epoch in (*same, others, others[::-1])]
    output = harvested(operators, batches)
    assert kept == [2]
    monkeypatch.setattr(dense_cells, "_LEAST", 1 << 40)
    assert cells(harvested(operators, batches)) == cells(output)
    assert kept == [2, len(batches)]


@pytest.mark.parametrize("is_compiled", [True, False])
def test_counts_are_one_array_until_one_of_them_differs(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    if not is_compiled:
        for module in (histograms, compiled_bitmaps, native_cells):
            monkeypatch.setattr(module, "library", lambda: None)
    folds = list[list[int]]()
    original = DenseCells.of

    def of(layout: Any, kept: Any, slots: int) -> list[DenseCells]:
        folds.append([len({id(part) for parts in fold.cells.values() for part in parts}) for fold in kept])
        return original(layout, kept, slots)

    monkeypatch.setattr(DenseCells, "of", staticmethod(of))
    monkeypatch.setattr(dense_cells, "_LEAST", 0)
    for name in ("_LEAST_ROWS", "_LEAST_GAIN", "FOLDED_AT_ONCE"):
        monkeypatch.setattr(shared_predicates, name, 0)
    operators = operators_of([SLIDES[0]] * 3, ("k",), [CALLS[0], CALLS[2]])
    first = many(np.full(64, 9))
    without = [{**row, "y": None} if number % 3 == 0 else row for number, row in enumerate(first)]
    outputs = [
        harvested(operators, [rows(epoch) for epoch in epochs])
        for epochs in ([first, first], [first, without, first])
    ]
    assert folds == [[2], [3]], "rows and values are counted, and values are added up"
    for output, are_one in zip(outputs, (True, False), strict=True):
        for (table,) in output.sections.values():
            counts = [table["p0_0"].chunk(0), table["p1_0"].chunk(0)]
            assert (counts[0].buffers()[1].address == counts[1].buffers()[1].address) == are_one
            assert (counts[0] == counts[1]) == are_one


def test_strategies_are_chosen_again_for_other_numbers_of_rows_and_after_some_folds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen_for, folded = list[int](), list[int]()
    original, fold = strategy.chosen, shared_predicates.fold

    def chosen(batch: Any, *arguments: Any, **others: Any) -> Any:
        chosen_for.append(batch.rows)
        return original(batch, *arguments, **others)

    def folding(*arguments: Any, **others: Any) -> Any:
        done = fold(*arguments, **others)
        folded.append(done.fold_input.rows)
        return done

    monkeypatch.setattr(strategy, "chosen", chosen)
    monkeypatch.setattr(shared_predicates, "fold", folding)
    for name in ("_LEAST_ROWS", "_LEAST_GAIN", "FOLDED_AT_ONCE"):
        monkeypatch.setattr(shared_predicates, name, 0)
    operators = operators_of([SLIDES[0]] * 3, ("k",), CALLS[:2])
    row = many(np.full(64, 9))[0]
    harvested(operators, [rows([row] * size) for size in (60, 100, 120, 121, 100, 61, 60, *[90] * 8)])
    assert folded == [60, 100, 120, 121, 100, 61, 60, *[90] * 8]
    assert chosen_for == [60, 121, 60, 90], (
        "121 is more than twice 60, 60 less than half of 121, 90 for the eighth time"
    )


def test_numbers_of_other_pairs_are_found_in_any_order_and_one_fold_is_not_copied() -> None:
    def pairs(at: list[tuple[int, str]]) -> Pairs:
        names = list(dict.fromkeys(name for _, name in at))
        starts, owner = np.array([start for start, _ in at]), np.array([names.index(name) for _, name in at])
        return Pairs(starts, owner, (pa.array(names),), np.zeros(len(names), np.int16))

    held = pairs([(10, "b"), (0, "a"), (0, "b"), (10, "c")])
    for others in ([(0, "b"), (10, "c"), (0, "a")], [(10, "c")], [(10, "b"), (0, "a"), (0, "b"), (10, "c")]):
        columns = held.columns_of(pairs(others))
        assert columns is not None
        assert [(held.starts[at], held.keys[0][held.owner[at]].as_py()) for at in columns] == others
    for missing in ([(0, "b"), (0, "c")], [(5, "b")], [(20, "b")], [(0, "d")]):
        assert held.columns_of(pairs(missing)) is None
    (operator,) = operators_of([SLIDES[0]], ("k",), CALLS[:1])
    layout = operator.layouts[0]  # type: ignore[attr-defined]
    fold = DenseFold.of(layout, held, 3)
    (whole,) = DenseCells.of(layout, [fold], 3)
    assert whole.cells is fold.cells


def test_rows_wait_for_fewer_others_only_while_folds_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_cells, "_LEAST", 0)
    for name, value in (("_LEAST_AT_ONCE", 0), ("_ROWS_A_PAIR", 1), ("_ROWS_A_CELL", 100)):
        monkeypatch.setattr(shared_predicates, name, value)
    operators = operators_of([SLIDES[0]] * 3, ("k",), CALLS[:1])
    scan = SharedPredicates.of(tuple(operators), {})  # type: ignore[arg-type]
    waits = []
    for prefix in ("k", "k", "other", "third", "third", "k"):
        scan.add(rows([{**row, "k": f"{prefix}{row['k']}"} for row in many(np.full(64, 9))]))
        scan._fold()
        waits.append(scan.enough)
    assert waits[0] == waits[1] == waits[2] == waits[4] == waits[5] < waits[3]


@pytest.mark.parametrize(
    ("panes", "parts"),
    [
        (((0, 1), (2, 3)), 2),  # of both families no pane is in both folds
        (((2, 3), (0, 1)), 2),
        (((0, 1, 2), (3,)), 2),  # of the second family a pane is in both
        (((0, 2), (3,)), 2),  # and in each once
        (((0, 1), (1, 2)), 1),  # a pane is in both folds
        (((0, 2), (1, 3)), 1),
    ],
)
@pytest.mark.parametrize("small", [0, 1 << 18])
def test_folds_with_no_pane_in_common_stay_several(
    monkeypatch: pytest.MonkeyPatch, panes: tuple[tuple[int, ...], ...], parts: int, small: int
) -> None:
    for name, value in (("_LEAST", 10), ("_SMALL", small), ("MOST_EMPTY", 1 << 20)):
        monkeypatch.setattr(dense_cells, name, value)
    monkeypatch.setattr(shared_predicates, "_LEAST_AT_ONCE", 0)
    seen, original = list[int](), DenseCells.of

    def of(*arguments: Any) -> list[DenseCells]:
        dense = original(*arguments)
        seen.append(len(dense))
        return dense

    batches = [
        rows([{"k": k, "g": 1, "x": 9, "y": 0.5, "at": pane * TICK} for pane in own for k in "abc"])
        for own in panes
    ]
    outputs = []
    for choose in (of, lambda *_: []):
        monkeypatch.setattr(DenseCells, "of", staticmethod(choose))
        operators = operators_of([TimeSlide(4 * TICK, TICK)] * 3, ("k",), CALLS[:2])
        operators += operators_of([TimeSlide(6 * TICK, 2 * TICK)] * 3, ("k",), CALLS[:2])
        scan = SharedPredicates.of(tuple(operators), {})  # type: ignore[arg-type]
        for batch in batches:
            scan.add(batch)
            scan._fold()
        outputs.append(scan.finish())
    is_sparse = any(len(own) == 1 for own in panes)
    assert seen == [1 if is_sparse and not small else parts]
    assert cells(outputs[0]) == cells(outputs[1])


@given(keys=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=40))
def test_groups_by_slot_are_the_same_groups(keys: list[str]) -> None:
    groups = group([pa.array(keys)], len(keys))
    ordered, slots = shared_predicates._by_slot(groups, fresh_slots(groups.keys, groups.count, None))
    assert ordered.keys[0].take(pa.array(ordered.codes)).to_pylist() == keys
    assert (np.diff(slots) >= 0).all()
    assert slots.tolist() == fresh_slots(ordered.keys, ordered.count, None).tolist()


def many(values: np.ndarray) -> list[dict[str, Any]]:
    return [
        {"k": f"k{n % 4}", "g": 1, "x": int(x), "y": 0.5, "at": n % 8 * TICK} for n, x in enumerate(values)
    ]


def test_dense_where_conditions_select_nearly_all_groups_and_not_where_most_would_be_empty(
    uses: list[bool],
) -> None:
    operators = operators_of([SLIDES[0]] * 3, ("k",), CALLS[:1])
    output = harvested(operators, [rows(many(np.full(64, 9))), rows(many(np.full(64, 5)))])
    assert uses == [True]
    assert cells_by_query(output) == output.delta_rows
    assert len(set(output.delta_rows.values())) == 1
    few = [{**row, "k": f"other{n}", "x": 9 if n < 2 else 0} for n, row in enumerate(many(np.zeros(64)))]
    harvested(operators, [rows(few), rows([{**row, "k": f"another{row['k']}"} for row in few])])
    assert uses == [True, False]


def test_a_pane_of_a_query_that_is_made_of_several_is_merged(uses: list[bool]) -> None:
    operators = operators_of([SLIDES[0], SLIDES[0], SLIDES[1], SLIDES[1]], ("k",), CALLS[:1])
    output = harvested(operators, [rows(many(np.full(64, 9))), rows(many(np.full(64, 5)))])
    assert uses == [True]
    for (table,) in output.sections.values():
        assert table.group_by(["__key", "k0", "k1"]).aggregate([]).num_rows == table.num_rows
        assert pa.compute.sum(table.column("p0_0")).as_py() == 2 * 128
    assert cells_by_query(output) == output.delta_rows


def cells_by_query(output: ScanOutput) -> dict[str, int]:
    """The cells of each query in the tables."""
    numbers = Counter(number for (table,) in output.sections.values() for number in table["k0"].to_pylist())
    return {id_of(number): cells for number, cells in numbers.items()}
