"""How far recorded streams are from obeying a constraint: the least k for clustered arrival, ordered arrival and referential
integrity, and the distance of each row from which it follows.

Distances are numbers of arrivals. Source: Babu (2005), section 6.2.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]


def clustering(values: Ints) -> Ints:
    """For each row the arrivals with another value since the first row of its own value."""
    arrival = np.arange(len(values))
    order = np.argsort(values, kind="stable")
    begins = np.ones(len(values), bool)
    begins[1:] = values[order[1:]] != values[order[:-1]]
    starts = np.flatnonzero(begins)
    group = np.cumsum(begins) - 1
    distance = np.empty(len(values), np.int64)
    rank = arrival - starts[group]  # of a row within its value
    distance[order] = order - order[starts][group] - rank
    return distance


def scrambling(values: Ints, running: Ints | None = None) -> Ints:
    """For each row the arrivals since the first row with a larger value, itself included; 0 if no row before is larger.

    `running`: the maxima after each arrival, if they are known.
    """
    maxima = np.maximum.accumulate(values) if running is None else running
    first = np.searchsorted(maxima, values, side="right")
    distance: Ints = np.maximum(np.arange(len(values)) - first, 0)
    return distance


def join_distances(parents: Ints, parent_at: Ints, children: Ints, child_at: Ints) -> Ints:
    """For each parent row the arrivals of children after it up to its own child; 0 if that came first, -1 without one.

    `parent_at` and `child_at` are places in the order of all arrivals, ascending.
    """
    if not len(children):
        return np.full(len(parents), -1)
    order = np.argsort(children, kind="stable")
    index = np.minimum(np.searchsorted(children[order], parents), len(children) - 1)
    child = order[index]
    arrived_before = np.searchsorted(child_at, parent_at)
    distance = np.maximum(child + 1 - arrived_before, 0)
    return np.where(children[child] == parents, distance, -1)


def least_k(distances: Ints) -> int:
    """The least k with which a constraint holds."""
    return int(distances.max(initial=0))
