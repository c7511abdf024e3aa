"""A sample of rows of which filters that cost much are evaluated on few of the rows that cheap ones drop: each of these counts for
several.

Where one filter costs many times as much as another, the cheap one comes first unless it drops next to nothing. So what a costly filter does is of
interest on the rows that cheap ones leave; of the others a part shows how they are correlated: of the rows that the same cheap filters
drop, one of eight. So what cheap filters drop is exact, and every row that is chosen is known whole.
Source: stratified sampling (Cochran, Sampling Techniques, 1977, chapter 5).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.adaptive.filters.order_cost import Bools, Floats, Ints

CHEAPER: Final = 8.0
"""How many times as much as a cheap filter the dearest one costs."""
ONE_OF: Final = 8
"""Of so many rows that cheap filters drop one is evaluated by the costly ones."""


def cheap(costs: Floats) -> Bools:
    """Which filters are cheap; none where all cost about as much."""
    return np.asarray(costs * CHEAPER <= costs.max())


def thinned(dropped: Bools) -> tuple[Ints, Ints]:
    """The rows of a sample that costly filters are evaluated on, and how many each counts for; `dropped` by each cheap one.

    >>> thinned(np.array([[True]] * 10 + [[False]] * 2))
    (array([ 0,  8, 10, 11]), array([8, 2, 1, 1]))
    """
    sets = dropped @ (1 << np.arange(dropped.shape[1]))
    by_set = np.argsort(sets, kind="stable")
    _, firsts, numbers, counts = np.unique(
        sets[by_set], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.arange(len(sets)) - firsts[numbers]
    each = np.where(sets[by_set] > 0, ONE_OF, 1)
    is_chosen = rank % each == 0
    chosen, weights = by_set[is_chosen], np.minimum(each, counts[numbers] - rank)[is_chosen]
    order = np.argsort(chosen)
    return chosen[order], weights[order]
