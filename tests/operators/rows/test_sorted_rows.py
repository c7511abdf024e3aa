"""Rows of a side of a join: the order of new rows and of merged tables, also where equal hashes come in no order of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.rows import sorted_rows
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import HASH, in_order

Rows = list[tuple[int, int]]
SOME = st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 6)), max_size=40)


def table(rows: Rows, first: int) -> pa.Table:
    """Rows of (hash, time), and the number of each."""
    hashes, times = zip(*rows, strict=True) if rows else ((), ())
    numbers = np.arange(first, first + len(rows))
    return pa.table({HASH: pa.array(hashes, pa.int64()), TIME: pa.array(times, pa.int64()), "n": numbers})


def ordered(parts: Sequence[Rows]) -> list[tuple[int, int, int]]:
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    whole = in_order([table(rows, first) for rows, first in zip(parts, starts, strict=False)])
    return list(zip(*(whole.column(name).to_pylist() for name in (HASH, TIME, "n")), strict=True))


def expected(parts: Sequence[Rows]) -> list[tuple[int, int, int]]:
    """Python's sort is stable."""
    rows = [(hash_, at, number) for number, (hash_, at) in enumerate(row for part in parts for row in part)]
    return sorted(rows, key=lambda row: row[:2])


@given(parts=st.lists(SOME, min_size=1, max_size=4), presorted=st.booleans())
def test_rows_are_in_order_of_hash_and_time_and_else_as_they_came(parts: list[Rows], presorted: bool) -> None:
    """Few rows are merged as many are."""
    parts = [sorted(rows) for rows in parts] if presorted else parts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_rows, "_LONG", 1)
        assert ordered(parts) == expected(parts)
    assert ordered(parts) == expected(parts)
