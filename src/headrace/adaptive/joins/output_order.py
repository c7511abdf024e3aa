"""The order in which the combinations of a join are made where it is known how many rows each side adds to each new row.

The first phase of a join finds for each new row how many rows of each other side it may be joined with. So the rows that all hops of
an order make are known before any is made: of one new row, the products of the first numbers of its order. No statistic is needed.
Source: Babu (2005), section 5.2.2, where the second phase is taken to cost the same in every order: its nested loops store nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headrace.adaptive.filters.order_cost import Ints


def rows_made(counts: Mapping[int, Ints], order: Sequence[int]) -> int:
    """The rows that all hops make; `counts[side]` has the number of each new row's partners in a side."""
    rows_by_hop = np.multiply.accumulate([counts[side].astype(np.float64) for side in order])
    return int(rows_by_hop.sum())


def fewest_first(counts: Mapping[int, Ints]) -> list[int]:
    """At each hop the side with which it makes fewest rows, given those before; the first of equal ones."""
    rest, order = dict(counts), list[int]()
    row_counts: np.ndarray | None = None
    while len(rest) > 1:
        hop = {
            side: counted if row_counts is None else row_counts * counted for side, counted in rest.items()
        }
        best = min(rest, key=lambda side: float(hop[side].sum()))
        row_counts = hop[best].astype(np.float64)
        order.append(best)
        del rest[best]
    return [*order, *rest]
