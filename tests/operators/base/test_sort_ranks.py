"""Ranks of doubles sort as ORDER BY does: NaN above every number, -0.0 as 0.0, NULLs at one end."""

from __future__ import annotations

import itertools
import math

import pyarrow as pa
import pytest

from headrace.operators.base.sort_ranks import sort_rank
from headrace.reference.values import sort_key

VALUES = (
    1.5,
    None,
    math.nan,
    -0.0,
    math.inf,
    5e-324,
    0.0,
    -math.inf,
    -1.5,
    -math.nan,
    -5e-324,
    None,
    1e308,
    -1e308,
)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_doubles(kind: pa.DataType, *, descending: bool, nulls_first: bool) -> None:
    values = pa.array(VALUES, kind)
    keys = [sort_key(value, descending=descending, nulls_first=nulls_first) for value in values.to_pylist()]
    for part in (slice(None), slice(2, 11)):
        ranks = sort_rank(values[part], descending, nulls_first)
        for (one, first), (other, second) in itertools.product(zip(ranks, keys[part], strict=True), repeat=2):
            assert (one < other) == (first < second)
            assert (one == other) == (first == second)
