"""The division of slots (parts of the key space) among state tasks: the range that each of a number of tasks owns."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np


@cache
def bounds_of_slots(tasks: int, slots: int) -> tuple[tuple[int, int], ...]:
    """The slot range [low, high) of each of `tasks` state tasks."""
    edges = np.linspace(0, slots, tasks + 1).astype(int).tolist()
    return tuple(pairwise(edges))
