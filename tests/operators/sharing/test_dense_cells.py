"""Cells of several folds that are added up in dense arrays are those that a merge of their rows gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Named
from headrace.algebra.windows.window import TimeSlide, Window
from headrace.operators.base.operator import Operator
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.sharing import shared_predicates
from headrace.operators.sharing.dense_cells import DenseCells
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
    """The rows of each section, in the order of panes and else in any."""
    listed = {}
    for section, tables in output.sections.items():
        (table,) = tables
        keys = table.column(0).to_pylist()
        assert keys == sorted(keys)
        listed[section] = sorted(map(repr, zip(*(part.to_pylist() for part in table.columns), strict=True)))
    return listed


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether dense arrays were used by each finish of several folds."""
    seen, original = list[bool](), DenseCells.of

    def of(*arguments: Any) -> DenseCells | None:
        dense = original(*arguments)
        seen.append(dense is not None)
        return dense

    monkeypatch.setattr(DenseCells, "of", staticmethod(of))
    for name, value in (("_LEAST_ROWS", 0), ("_LEAST_GAIN", 0), ("FOLDED_AT_ONCE", 1)):
        monkeypatch.setattr(shared_predicates, name, value)
    return seen


@given(
    windows=st.lists(st.sampled_from(SLIDES), min_size=2, max_size=6),
    keys=st.sampled_from(((), ("k",), ("k", "g"))),
    calls=st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True),
    drawn=st.lists(streams.rows(), min_size=2, max_size=4),
)
def test_added_up_or_merged(
    windows: list[Window], keys: tuple[str, ...], calls: list[AggregateCall], drawn: list[Any]
) -> None:
    operators, batches = operators_of(windows, keys, calls), [rows(epoch) for epoch in drawn]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_LEAST_ROWS", 0), ("_LEAST_GAIN", 0), ("FOLDED_AT_ONCE", 1)):
            patch.setattr(shared_predicates, name, value)
        patch.setattr("headrace.operators.sharing.dense_cells._MOST", 1 << 20)
        added = harvested(operators, batches)
        patch.setattr(DenseCells, "of", staticmethod(lambda *_: None))
        merged = harvested(operators, batches)
    assert cells(added) == cells(merged)
    assert counted(added) == counted(merged)


def many(values: np.ndarray) -> list[dict[str, Any]]:
    return [
        {"k": f"k{n % 4}", "g": 1, "x": int(x), "y": 0.5, "at": n % 8 * TICK} for n, x in enumerate(values)
    ]


def test_dense_where_conditions_select_nearly_all_groups_and_not_where_most_would_be_empty(
    uses: list[bool],
) -> None:
    operators = operators_of([SLIDES[0]] * 3, ("k",), CALLS[:1])
    harvested(operators, [rows(many(np.full(64, 9))), rows(many(np.full(64, 5)))])
    assert uses == [True]
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
