"""Ranks of values among the constants of a part, from keys that all parts share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Column
from headrace.operators.query_index.boxes.box_index import AttributeIndex
from headrace.operators.query_index.boxes.cut_ranks import Keys, cut_ranks
from headrace.schema import BIGINT

NOTHING = np.empty(0, np.int64)


def attribute(cuts: list[int]) -> AttributeIndex:
    return AttributeIndex(Column("i", BIGINT), np.array(cuts, np.int64), None, NOTHING, NOTHING, NOTHING, ())


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@given(data=st.data())
def test_keys_are_ranked_among_the_cuts_of_every_part(bits: int, data: st.DataObject) -> None:
    whole = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    near = st.builds(
        lambda base, by: max(-(2 ** (bits - 1)), base - by), st.just(data.draw(whole)), st.integers(0, 300)
    )
    values = data.draw(st.lists(st.none() | (near if data.draw(st.booleans()) else whole), max_size=40))
    column = pa.array([None, *values, None], pa.from_numpy_dtype(f"int{bits}")).slice(1, len(values))
    keys = Keys.of(column)
    for part in range(2):
        cuts = sorted(data.draw(st.sets(whole | near, max_size=8), f"cuts of part {part}"))
        indexed = attribute(cuts)
        expected = [indexed.null if v is None else sum(cut <= v for cut in cuts) for v in values]
        assert cut_ranks(indexed, keys).of(slice(None)).tolist() == expected


def test_a_small_range_of_small_integers_is_not_narrowed_past_its_end() -> None:
    keys = Keys.of(pa.array([-128, 127, 0] * 64, pa.int8()))
    assert keys.low == -128
    assert keys.keys.tolist() == [0, 255, 128] * 64
