"""Look-ups by key in the rows of a stream, while rows are added and dropped, as by comparing every row."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models.constraints.synopsis import Arrivals, Synopsis

KEYS = st.integers(0, 4)
EPOCHS = st.lists(st.tuples(st.lists(KEYS, max_size=6), st.integers(0, 2**12 - 1)), min_size=1, max_size=6)


@given(EPOCHS, st.lists(KEYS, max_size=5), st.integers(0, 2**12 - 1))
def test_look_ups_are_those_of_all_rows_one_by_one(
    epochs: list[tuple[list[int], int]], values: list[int], chosen: int
) -> None:
    synopsis, place = Synopsis(["a"], []), 0
    wanted = np.array(values, np.int64)
    for keys, kept in epochs:
        places = place + np.arange(len(keys))
        place += len(keys)
        synopsis.add(Arrivals("s", places, {"a": np.array(keys, np.int64)}, np.ones(len(keys), bool)), {})
        among = _bits(chosen, len(synopsis))
        held = synopsis.columns["a"].tolist()
        rows = [[row for row, key in enumerate(held) if key == value and among[row]] for value in values]
        newest = synopsis.row_of("a", wanted, among)
        index, row = synopsis.pairs_of("a", wanted, among)
        assert newest.tolist() == [found[-1] if found else -1 for found in rows]
        assert list(zip(index.tolist(), row.tolist(), strict=True)) == [
            (number, one) for number, found in enumerate(rows) for one in found
        ]
        synopsis.keep(_bits(kept, len(synopsis)))


def _bits(number: int, count: int) -> np.ndarray:
    """Some of so many rows."""
    return np.array([number >> place % 12 & 1 for place in range(count)], bool)
