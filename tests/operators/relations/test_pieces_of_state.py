"""Rows of state are read in pieces of one memory each, without a copy of large ones."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.relations import instant_rows


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4), st.integers(0, 6))
def test_pieces_have_all_rows_in_one_chunk_each(sizes: list[list[int]], few: int) -> None:
    number, tables = 0, list[pa.Table]()
    for chunks in sizes:
        parts = []
        for size in chunks:
            parts.append(pa.table({"n": pa.array(range(number, number + size), pa.int64())}))
            number += size
        tables.append(pa.concat_tables(parts) if parts else pa.table({"n": pa.array([], pa.int64())}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instant_rows, "_FEW", few)
        pieces = instant_rows._pieces(tables)
    assert sorted(row for piece in pieces for row in piece["n"].to_pylist()) == list(range(number))
    assert all(piece["n"].num_chunks == 1 for piece in pieces)


def test_large_pieces_are_the_memory_of_the_table() -> None:
    table = pa.concat_tables([pa.table({"n": range(10_000)}), pa.table({"n": range(5_000)})])
    pieces = instant_rows._pieces([table, table.slice(0, 7), table.slice(10, 3)])
    assert [piece.num_rows for piece in pieces] == [10, 10_000, 5_000]
    chunks = [piece["n"].chunk(0).buffers()[1].address for piece in pieces[1:]]
    assert chunks == [chunk.buffers()[1].address for chunk in table["n"].chunks]


def test_rows_in_many_small_chunks_are_copied_once() -> None:
    table = pa.concat_tables([pa.table({"n": [number]}) for number in range(5_000)])
    (piece,) = instant_rows._pieces([table])
    assert piece["n"].to_pylist() == list(range(5_000))
