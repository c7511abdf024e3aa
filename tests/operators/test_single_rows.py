"""Rows of groups that have one row, read from their cells; groups numbered by size; sums of integers in one addition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.aggregation import lift
from headrace.operators.cells import as_doubles, summable, whole_numbers
from headrace.operators.grouping import group
from headrace.operators.pane_store import Layout
from headrace.operators.single_rows import read_back
from headrace.schema import BIGINT, to_arrow
from tests.operators.test_adaptive_panes import operator

INTEGERS = st.sampled_from((0, 1, -1, 2**31, -(2**31) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)))
DOUBLES = st.sampled_from((0.0, -0.0, 1.5, -2.25, 1e300, math.nan, math.inf, -math.inf))


def layout_of(aggregates: str) -> Layout:
    return operator(f"SELECT k, {aggregates} FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k").layouts[
        0
    ]


def same(found: Any, given: Any) -> bool:
    if found is None or given is None:
        return found is given
    return bool(found == given or (math.isnan(found) and math.isnan(given)))


@pytest.mark.parametrize(
    "aggregates", ["SUM(v)", "AVG(v)", "MIN(v)", "MAX(v), COUNT(v)", "SUM(v), STDDEV(v)"]
)
@given(values=st.lists(st.none() | INTEGERS, min_size=1, max_size=6))
def test_a_cell_of_one_row_tells_the_row(aggregates: str, values: list[int | None]) -> None:
    layout = layout_of(aggregates)
    (argument,) = layout.arguments
    rows = pa.array(values, to_arrow(BIGINT))
    answer = lift(layout.feds, {argument: rows}, np.arange(len(rows)), len(rows))
    read = read_back(layout, answer, np.arange(len(rows)))
    assert read is not None
    assert read[0].equals(rows)


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "SMALLINT"])
@pytest.mark.parametrize("function", ["SUM", "MIN", "MAX"])
@given(data=st.data())
def test_of_every_number_type(kind: str, function: str, data: st.DataObject) -> None:
    layout = layout_of(f"{function}(CAST(v AS {kind}))")
    (argument,) = layout.arguments
    drawn = st.integers(-(2**15), 2**15 - 1) if kind == "SMALLINT" else DOUBLES
    values = data.draw(st.lists(st.none() | drawn, min_size=1, max_size=6))
    rows = pa.array(values, pa.float64() if kind != "SMALLINT" else pa.int64()).cast(
        to_arrow(argument.type), safe=False
    )
    answer = lift(layout.feds, {argument: rows}, np.arange(len(rows)), len(rows))
    read = read_back(layout, answer, slice(0, len(rows)))
    assert read is not None
    assert read[0].type == rows.type
    assert all(map(same, read[0].to_pylist(), rows.to_pylist()))


@pytest.mark.parametrize("aggregates", ["STDDEV(v)", "MAX(name)", "SUM(v), MIN(name)"])
def test_what_no_cell_tells_is_looked_for_among_the_rows(aggregates: str) -> None:
    layout = layout_of(aggregates)
    kinds = {argument: to_arrow(argument.type) for argument in layout.arguments}
    rows = {argument: pa.array([7]).cast(kind) for argument, kind in kinds.items()}
    answer = lift(layout.feds, rows, np.arange(1), 1)
    assert read_back(layout, answer, np.arange(1)) is None


@given(
    keys=st.lists(st.integers(-5, 40), min_size=1, max_size=30),
    small=st.integers(0, 50),
    repeats=st.sampled_from((1, 300)),
)
def test_groups_are_the_same_in_any_numbering_and_the_small_ones_come_last(
    keys: list[int], small: int, repeats: int
) -> None:
    column = pa.array(np.r_[np.repeat(keys, repeats), np.full(1024, 41)])
    plain, sized = group([column], len(column)), group([column], len(column), small=small)
    assert sized.keys[0].take(pa.array(sized.codes)).equals(column)
    assert (sized.count, len(sized.keys[0])) == (plain.count, plain.count)
    assert sized.sizes is not None
    assert sized.large is not None
    assert sized.sizes.tolist() == np.bincount(sized.codes, minlength=sized.count).tolist()
    assert (sized.sizes[: sized.large] > small).all()
    assert (sized.sizes[sized.large :] <= small).all()
    if small == 0:
        assert sized.codes.tolist() == plain.codes.tolist()


@given(values=st.lists(st.none() | INTEGERS | st.integers(-99, 99), min_size=1, max_size=8), data=st.data())
def test_sums_are_exact_whether_in_one_addition_or_limb_by_limb(
    values: list[int | None], data: st.DataObject
) -> None:
    layout = layout_of("SUM(v)")
    (argument,) = layout.arguments
    codes = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values))))
    rows = pa.array(values, pa.int64())
    limbs = lift(layout.feds, {argument: rows}, codes, 3).cells[layout.feds[-1]]
    expected = [
        sum(v for v, c in zip(values, codes, strict=True) if v is not None and c == n) for n in range(3)
    ]
    told, failed = whole_numbers(limbs, BIGINT)
    assert failed.tolist() == [not -(2**63) <= each < 2**63 for each in expected]
    assert [each for each in told.to_pylist() if each is not None] == [
        each for each, bad in zip(expected, failed, strict=True) if not bad
    ]
    assert as_doubles(limbs).tolist() == pytest.approx(expected)
    most = sum(abs(each) for each in values if each is not None)
    assert most < 2**63 or summable(rows) is None
