"""The time of A-Greedy by what it is spent on: filters on rows, filters on profiled rows, the window, its matrix view, and corrections.

Filters are lookups in ten thousand values, as in the thesis' experiments (Babu 2005, table 4.2), on epochs of 20,000 rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import numpy as np

from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.profile_window import DropProfile

PARTS: Final = ("rows", "profiled rows", "window", "view", "corrections")
POINTS: Final = ((3, 0.01), (3, 0.05), (8, 0.01), (8, 0.05))
"""Filters, and the share of dropped rows that is profiled."""
_CHUNK, _CHUNKS, _KEYS = 20_000, 60, 20_000


def breakdown(filters: int, share: float, seed: int = 1) -> dict[str, float]:
    """By part, the share of the time."""
    rng = np.random.default_rng(seed)
    known = [np.sort(rng.choice(_KEYS, _KEYS // 2, replace=False)) for _ in range(filters)]
    ordering, spent = AGreedy(tuple(range(filters)), np.ones(filters)), dict.fromkeys(PARTS, 0.0)
    for _ in range(_CHUNKS):
        values = rng.integers(0, _KEYS, (filters, _CHUNK))
        started = time.perf_counter()
        first = np.full(_CHUNK, filters)
        alive = np.arange(_CHUNK)
        for position, one in enumerate(ordering.plan):
            passes = _found(known[one], values[one, alive])
            first[alive[~passes]] = position
            alive = alive[passes]
        evaluated = time.perf_counter()
        lost = np.flatnonzero(first < filters)
        chosen = lost[rng.random(len(lost)) < share]
        dropped = np.stack([~_found(known[one], values[one, chosen]) for one in range(filters)], axis=1)
        profile = DropProfile.whole(dropped, np.ones(filters))
        profiled = time.perf_counter()
        entered, expired = ordering.window.add(profile)
        ordering.costs = ordering.window.costs(ordering.costs)
        kept = time.perf_counter()
        ordering.view.add(entered, 1)
        ordering.view.add(expired, -1)
        viewed = time.perf_counter()
        if ordering.view.violation(ordering.costs, ordering.slack) is not None:
            ordering.reoptimize()
        ended = time.perf_counter()
        times = (started, evaluated, profiled, kept, viewed, ended)
        for part, begin, end in zip(PARTS, times[:-1], times[1:], strict=True):
            spent[part] += end - begin
    total = sum(spent.values())
    return {part: seconds / total for part, seconds in spent.items()}


def _found(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Whether each value is among sorted ones."""
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return known[places] == values


def breakdowns() -> Mapping[tuple[int, float], dict[str, float]]:
    """By point."""
    return {point: breakdown(*point) for point in POINTS}
