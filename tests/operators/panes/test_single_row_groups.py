"""Rows of groups that have one row, read from their cells; groups numbered by size; sums of integers in one addition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.aggregates.aggregate_calls import lift
from headrace.operators.aggregates.cell_table import KEY, SLOT, Layout, merge
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import group, slots_of
from headrace.operators.panes.adaptive_panes import EVERY_ROW, SPARSE_OPEN
from headrace.operators.panes.pane_keys import between, parted
from headrace.operators.panes.single_row_groups import read_back
from headrace.operators.partials.encoding import as_doubles, summable, whole_numbers
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.schema import BIGINT, to_arrow
from tests.operators.panes.test_adaptive_panes import operator, rows

INTEGERS = st.sampled_from((0, 1, -1, 2**31, -(2**31) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)))
DOUBLES = st.sampled_from((0.0, -0.0, 1.5, -2.25, 1e300, math.nan, math.inf, -math.inf))


def layout_of(aggregates: str) -> Layout:
    return operator(f"SELECT k, {aggregates} FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k").layouts[
        0
    ]


def same(answered: Any, expected: Any) -> bool:
    if answered is None or expected is None:
        return answered is expected
    return bool(answered == expected or (math.isnan(answered) and math.isnan(expected)))


@pytest.mark.parametrize(
    "aggregates", ["SUM(v)", "AVG(v)", "MIN(v)", "MAX(v), COUNT(v)", "SUM(v), STDDEV(v)"]
)
@given(values=st.lists(st.none() | INTEGERS, min_size=1, max_size=6))
def test_a_cell_of_one_row_has_the_row(aggregates: str, values: list[int | None]) -> None:
    layout = layout_of(aggregates)
    (argument,) = layout.arguments
    rows = pa.array(values, to_arrow(BIGINT))
    answer = lift(layout.partial_columns, {argument: rows}, np.arange(len(rows)), len(rows))
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
    answer = lift(layout.partial_columns, {argument: rows}, np.arange(len(rows)), len(rows))
    read = read_back(layout, answer, slice(0, len(rows)))
    assert read is not None
    assert read[0].type == rows.type
    assert all(map(same, read[0].to_pylist(), rows.to_pylist()))


@pytest.mark.parametrize("aggregates", ["STDDEV(CAST(v AS DOUBLE))", "MAX(name)", "SUM(v), MIN(name)"])
def test_what_no_cell_has_is_searched_among_the_rows(aggregates: str) -> None:
    layout = layout_of(aggregates)
    kinds = {argument: to_arrow(argument.type) for argument in layout.arguments}
    rows = {argument: pa.array([7]).cast(kind) for argument, kind in kinds.items()}
    answer = lift(layout.partial_columns, rows, np.arange(1), 1)
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
    placed = group([column], len(column), small=small, placed=True)
    assert all(
        np.array_equal(one, other) for one, other in zip(astuple(placed.dense()), astuple(sized), strict=True)
    )


@given(values=st.lists(st.none() | INTEGERS | st.integers(-99, 99), min_size=1, max_size=8), data=st.data())
def test_sums_are_exact_whether_in_one_addition_or_limb_by_limb(
    values: list[int | None], data: st.DataObject
) -> None:
    layout = layout_of("SUM(v)")
    (argument,) = layout.arguments
    codes = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values))))
    rows = pa.array(values, pa.int64())
    limbs = lift(layout.partial_columns, {argument: rows}, codes, 3).cells[layout.partial_columns[-1]]
    expected = [
        sum(v for v, c in zip(values, codes, strict=True) if v is not None and c == n) for n in range(3)
    ]
    sums, failed = whole_numbers(limbs, BIGINT)
    assert failed.tolist() == [not -(2**63) <= total < 2**63 for total in expected]
    assert [total for total in sums.to_pylist() if total is not None] == [
        total for total, bad in zip(expected, failed, strict=True) if not bad
    ]
    assert as_doubles(limbs).tolist() == pytest.approx(expected)
    most = sum(abs(each) for each in values if each is not None)
    assert most < 2**63 or summable(rows) is None
    # what the sum of a cell may grow by with each row, so that sums of sums never leave 64 bits
    assert (np.abs(limbs[0]) <= np.bincount(codes, minlength=3) << 32).all()


@given(keys=st.lists(st.integers(0, 5), min_size=1, max_size=30), cut=st.integers(0, 30))
def test_partials_and_rows_merged_are_the_partials_of_all_rows(keys: list[int], cut: int) -> None:
    aggregate = operator(
        "SELECT k, COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS t, MAX(v) AS m FROM s [RANGE 9 SECONDS SLIDE 9 SECONDS] GROUP BY k"
    )
    layout, batch = aggregate.layouts[0], rows(keys, np.zeros(len(keys)))
    whole = merge(layout, [folded(aggregate, batch)])
    halves = [batch.where(np.arange(len(keys)) < cut), batch.where(np.arange(len(keys)) >= cut)]
    tables = [
        folded(replace(aggregate, row_layout_limit=keeps), half)
        for keeps, half in zip((None, EVERY_ROW), halves, strict=True)
        if half.rows
    ]
    assert merge(layout, tables).sort_by("k0").equals(whole.sort_by("k0"))


def folded(aggregate: PaneAggregate, batch: Batch) -> pa.Table:
    deltas = _deltas(aggregate, batch)
    return deltas[SPARSE_OPEN] if SPARSE_OPEN in deltas else deltas["open0"]


@given(
    tables=st.lists(st.lists(st.integers(0, 9), max_size=6).map(sorted), max_size=3),
    border=st.integers(-1, 11),
)
def test_tables_are_parted_at_a_key_as_by_looking_on_both_sides(tables: list[list[int]], border: int) -> None:
    drawn_tables = [pa.table({KEY: pa.array(keys, pa.int64())}) for keys in tables]
    assert parted(drawn_tables, border) == (
        between(drawn_tables, -1, border),
        between(drawn_tables, border, 99),
    )


FAR = 10**9


@pytest.mark.parametrize(
    "aggregates",
    ["SUM(v)", "COUNT(*), SUM(v), MIN(v)", "COUNT(v), AVG(v), STDDEV(v)", "MAX(name)", "SUM(v * 5000000000)"],
)
@pytest.mark.parametrize("keeps", [None, 0, 1, 3])
@pytest.mark.parametrize("seconds", [1, 20])
@pytest.mark.parametrize("least", [0, -700])
def test_keys_in_a_narrow_range_are_folded_like_any_others(
    aggregates: str, keeps: int | None, seconds: int, least: int
) -> None:
    aggregate = replace(
        operator(f"SELECT k, {aggregates} FROM s [RANGE 9 SECONDS SLIDE 9 SECONDS] GROUP BY k"),
        row_layout_limit=keeps,
    )
    rng = np.random.default_rng(keeps)
    keys = np.r_[rng.integers(0, 40, 2000), 50 + 2 * np.arange(300)] + least
    at = rng.integers(0, seconds, len(keys))
    near, far = (_deltas(aggregate, rows(some, at)) for some in (keys, keys * FAR))
    assert near.keys() == far.keys()
    assert (SPARSE_OPEN in near) == (keeps not in (None, 0))
    for name, table in near.items():
        wide = table.set_column(
            2, "k0", pa.array(table.column("k0").to_numpy() * FAR)
        )  # the slot is that of the key
        names = [name for name in table.column_names if name != SLOT]
        order = [(each, "ascending") for each in names]
        folded, expected = (some.select(names).sort_by(order) for some in (wide, far[name]))
        assert folded.to_pydict() == expected.to_pydict()
        assert table.column(SLOT).to_pylist() == slots_of([table.column("k0")], table.num_rows).tolist()


def _deltas(aggregate: PaneAggregate, batch: Batch) -> Mapping[str, pa.Table]:
    scanner = aggregate.scanner({})
    scanner.add(batch)
    return scanner.finish().deltas
