"""The extent of panes in sorted tables of blocks of several levels, and the rows of some blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.panes.pane_keys import at_keys, block_key, extent
from headrace.operators.panes.panes import HIGHEST

BLOCKS = st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9)) | st.just((0, HIGHEST)), max_size=8)


@given(st.lists(BLOCKS, max_size=4))
def test_the_extent_is_that_of_the_rows_of_level_0(tables: list[list[tuple[int, int]]]) -> None:
    """Tables without rows, of one level and of several, and with rows past all panes."""
    sorted_tables = [
        pa.table({KEY: pa.array(sorted(block_key(*block) for block in blocks), pa.int64())})
        for blocks in tables
    ]
    panes = [pane for blocks in tables for level, pane in blocks if not level and pane < HIGHEST]
    assert extent(sorted_tables) == ((min(panes), max(panes)) if panes else None)


@given(st.lists(BLOCKS, max_size=4), st.sets(st.tuples(st.integers(0, 2), st.integers(-9, 9)), max_size=6))
def test_the_rows_of_some_blocks_are_those_with_their_keys(
    tables: list[list[tuple[int, int]]], wanted: set[tuple[int, int]]
) -> None:
    """Tables without rows, several rows of one block, and blocks in no table or in several."""
    keys = [sorted(block_key(*block) for block in blocks) for blocks in tables]
    sorted_tables = [
        pa.table({KEY: pa.array(of_table, pa.int64()), "row": np.arange(len(of_table))}) for of_table in keys
    ]
    chosen = [block_key(*block) for block in wanted]
    rows = [
        (key, row)
        for part in at_keys(sorted_tables, chosen)
        for key, row in zip(*part.to_pydict().values(), strict=True)
    ]
    assert rows == [(key, row) for of_table in keys for row, key in enumerate(of_table) if key in set(chosen)]
