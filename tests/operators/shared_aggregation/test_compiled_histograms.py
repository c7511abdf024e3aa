"""The compiled histograms are those that partials lift, and cells that the kernel adds are those that numpy adds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.native.cells import add_rows
from headrace.operators.native.histograms import RankedRows
from headrace.operators.partials import encoding as at_rest
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells
from headrace.operators.query_index.boxes.cut_ranks import Ranks
from headrace.operators.shared_aggregation.histograms import _compiled, _lifted
from headrace.operators.shared_aggregation.query_cells import FoldInput, fold_input_of
from tests.operators.query_index.predicates import batches
from tests.operators.shared_aggregation.test_shared_aggregation import ROWS, column, lowered

PARTIALS: tuple[PartialColumn, ...] = (
    ROWS,
    *(at_rest.count_partial(column(name)) for name in ("b", "m")),
    *(at_rest.sum_partial(column(name)) for name in ("t", "i", "b", "m", "w")),
)


def same(column_: PartialColumn, ours: Cells, theirs: Cells) -> bool:
    flat = [tuple(part.ravel() for part in cells) for cells in (ours, theirs)]
    return all(map(np.array_equal, *flat)) or lowered(column_, flat[0]) == lowered(column_, flat[1])


@pytest.mark.parametrize("in_table", [True, False])
@given(columns=batches(200), cells=st.integers(1, 9), ranks=st.integers(1, 12), seed=st.integers(0, 99))
def test_histograms(in_table: bool, columns: dict[str, pa.Array], cells: int, ranks: int, seed: int) -> None:
    rng, rows = np.random.default_rng(seed), len(columns["i"])
    arguments = {column_.expression: columns[column_.expression.name] for column_ in PARTIALS[1:]}  # type: ignore[union-attr]
    fold_input: FoldInput = fold_input_of(PARTIALS, arguments, rng.integers(0, cells, rows), cells)
    table = rng.integers(0, ranks, 30).astype(np.uint8) if in_table else None
    keys = (
        rng.integers(0, 30, rows).astype(np.uint16)
        if in_table
        else rng.integers(0, ranks, rows).astype(np.uint8)
    )
    ours, theirs = (way(ranks, Ranks(keys, table), fold_input) for way in (_compiled, _lifted))
    for column_ in PARTIALS:
        assert ours[column_][0].shape == (ranks, cells)
        assert same(column_, ours[column_], theirs[column_]), column_


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**40, 2**32, 2**32 - 1, -1, 0])
def test_sums_of_halves_are_exact_beyond_64_bits(value: int) -> None:
    codes = np.zeros(5, np.int64)
    rows = RankedRows(codes.astype(np.uint16), np.zeros(1, np.uint32), codes, 1, 1, None)
    low, high = rows.halves(np.full(5, value))
    assert low.item() + (high.item() << 32) == 5 * value


@given(st.integers(0, 9), st.integers(0, 5), st.integers(0, 4), st.integers(0, 99))
def test_cells_are_added_where_they_are(count: int, columns: int, first: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    into = rng.integers(-(2**63), 2**63 - 1, (12, 9), endpoint=True)
    rows = rng.permutation(12)[:count]
    numbers = rng.integers(-(2**63), 2**63 - 1, (count, columns), endpoint=True)
    numbers[rng.random(count) < 0.3] = 0
    expected = into.copy()
    with np.errstate(all="ignore"):
        expected[rows, first : first + columns] += numbers
    add_rows(into, rows, first, numbers)
    assert np.array_equal(into, expected)
    turned = np.asfortranarray(into)
    add_rows(turned, rows, first, numbers)
    with np.errstate(all="ignore"):
        expected[rows, first : first + columns] += numbers
    assert np.array_equal(turned, expected)
