"""Comparison of two filters over profiled rows of which only some filters are known."""

from __future__ import annotations

import numpy as np

from headrace.adaptive.filters.order_cost import Order
from headrace.adaptive.filters.profile_window import DropProfile


def pair_drops(held: DropProfile, order: Order, one: int, other: int) -> tuple[int, int]:
    """Of the rows that no filter before position `one` drops: how many the filters at positions `one` and `other` drop each.

    Over rows of which both, and all filters before `one`, are known.
    """
    before, pair = list(order[:one]), [order[one], order[other]]
    comparable = held.known[:, [*before, *pair]].all(axis=1) & ~held.dropped[:, before].any(axis=1)
    drops = np.count_nonzero(held.dropped[comparable][:, pair], axis=0)
    return int(drops[0]), int(drops[1])
