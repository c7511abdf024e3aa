"""Rows of a chunk of many queries are given to their queries, whether those of one are together or not."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.operators.families.pane_queries import _MANY_ROWS, _indices

NUMBERS = np.array([3, 4, 9, 20, 21])


@pytest.mark.parametrize("together", [1, 3, 4, 5, 2_000])
@pytest.mark.parametrize("rows", [0, 1, _MANY_ROWS - 1, _MANY_ROWS, 3 * _MANY_ROWS + 7])
def test_each_row_has_the_place_of_its_query(rows: int, together: int) -> None:
    places = np.repeat(np.random.default_rng(rows).integers(0, 5, rows // together + 1), together)[:rows]
    assert np.array_equal(_indices(NUMBERS, NUMBERS[places]), places)
