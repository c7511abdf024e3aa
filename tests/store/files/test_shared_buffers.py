"""Which columns are one memory, and what becomes of them when rows are chosen."""

from __future__ import annotations

import pyarrow as pa

from headrace.store.files.shared_buffers import equal_columns_of, filtered, shared_buffers_of

NUMBERS = pa.chunked_array([[1, 2], [3, None, 5]], pa.int64())
STAMPS = pa.chunked_array([chunk.view(pa.timestamp("us")) for chunk in NUMBERS.chunks])
TEXTS = pa.chunked_array([pa.array(part).dictionary_encode() for part in (["u", "v", "u"], ["q", "v"])])


def test_rows_are_chosen_from_columns_in_pieces_with_nulls_and_dictionaries() -> None:
    table = pa.table({"a": NUMBERS, "text": TEXTS, "b": STAMPS, "c": NUMBERS})
    assert shared_buffers_of(table) == [[2, 0], [3, 0]]
    mask = pa.array([True, False, True, True, False])
    for rows, chosen in ((table, mask), (table.slice(1, 3), mask[1:4]), (table.slice(0, 0), mask[:0])):
        picked = filtered(rows, chosen)
        picked.validate(full=True)
        assert picked.equals(rows.filter(chosen))


def test_the_same_numbers_with_other_nulls_or_at_another_place_are_another_column() -> None:
    values = pa.array([1, 2, 3, 4], pa.int64()).buffers()[1]
    some, others = (
        pa.array(valid).buffers()[1] for valid in ([True, False, True, True], [True, True, False, True])
    )
    columns = [pa.Array.from_buffers(pa.int64(), 3, [bits, values]) for bits in (None, some, others)]
    moved = pa.Array.from_buffers(pa.int64(), 3, [some, values], offset=1)
    narrow = pa.Array.from_buffers(pa.int32(), 3, [None, values])
    truths = pa.Array.from_buffers(pa.bool_(), 3, [None, values])
    every = [*columns, moved, narrow, truths, truths]
    assert shared_buffers_of(pa.table(every, names=[f"c{index}" for index in range(len(every))])) == []


def test_columns_of_equal_numbers_are_those_with_the_same_bytes() -> None:
    numbers = pa.array([7, 1, 2, 3, 9])
    columns = {
        "numbers": numbers,
        "same": pa.array([7, 1, 2, 3, 9]).view(pa.timestamp("us")),
        "differs_within": pa.array([7, 1, 5, 3, 9]),
        "slice": pa.array([0, 7, 1, 2, 3, 9, 4])[1:6],
        "narrow": numbers.cast(pa.int32()),
        "with_null": pa.array([7, 1, None, 3, 9]),
        "zero": pa.array([0.0] * 5),
        "negative_zero": pa.array([0.0, 0.0, -0.0, 0.0, 0.0]),
        "truths": pa.array([True] * 5),
        "texts": pa.array(["a"] * 5),
    }
    assert equal_columns_of(pa.table(columns)) == [[1, 0], [3, 0]]
    assert equal_columns_of(pa.table({"a": numbers[:0], "b": numbers[:0]})) == []
    several = pa.chunked_array([numbers, numbers])
    assert equal_columns_of(pa.table({"a": several, "b": several})) == []
