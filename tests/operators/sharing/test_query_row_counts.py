"""Rows of a state table are counted by query, whatever its chunks and the range of the numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.base import block_codes
from headrace.operators.base.operator import QUERY_NUMBER
from headrace.operators.families.family import QueryRowCounts


@given(
    st.lists(st.lists(st.integers(0, 12), max_size=30), min_size=1, max_size=4),
    st.sampled_from((1, 10**9)),
    st.sampled_from((0, 1 << 12)),
)
def test_queries_are_counted_in_any_chunks(chunks: list[list[int]], step: int, few: int) -> None:
    rows = np.concatenate([np.array(chunk, np.int64) for chunk in chunks]) * step - 5
    column = pa.chunked_array([np.array(chunk, np.int64) * step - 5 for chunk in chunks])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_codes, "_FEW", few)
        counted = QueryRowCounts.of(pa.table({QUERY_NUMBER: column}))
    numbers, counts = np.unique(rows, return_counts=True)
    assert (counted.numbers.tolist(), counted.rows.tolist()) == (numbers.tolist(), counts.tolist())


@given(st.lists(st.integers(0, 9), max_size=20), st.sets(st.integers(0, 9), min_size=1))
def test_rows_of_some_queries_are_theirs_also_of_queries_without_rows(
    rows: list[int], chosen: set[int]
) -> None:
    counted = QueryRowCounts.of(pa.table({QUERY_NUMBER: pa.array(rows, pa.int64())}))
    queries = np.array(sorted(chosen), np.int64)
    assert counted.among(queries).tolist() == [rows.count(query) for query in queries.tolist()]
