"""Traces on which the choice of caches is judged: random joins whose candidates have known values, and a chain of three streams of which
one bursts; and what fixed plans cost over it.

Source: Babu (2005), sections 5.5 and 5.7 (experiment 5.8; bars B10 and B11 of the guide).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.join_traces import Update, in_turn, updates
from benchmarks.models.caches.global_caches import GlobalSegment
from benchmarks.models.caches.traced_join import TracedJoin
from headrace.adaptive.caches.cost_model import CacheCosts, PipelineLoad, value_of
from headrace.adaptive.caches.offline_selection import Candidate, Chosen, is_shared, net_value
from headrace.adaptive.caches.segments import Equality, Orders, Segment, candidates

Instance = tuple[PipelineLoad, list[Candidate]]

CHAIN_ORDERS: Orders = ((1, 2), (0, 2), (1, 0))
CHAIN: tuple[Equality, ...] = (((0, "A"), (1, "A")), ((1, "B"), (2, "B")))
OF_T = GlobalSegment(Segment(2, 0, 1, (0, 1)), (0, 1))
"""The cache of R ⋈ S for rows of T."""
OF_R = GlobalSegment(Segment(0, 0, 1, (1, 2)), (0, 1, 2))
"""The cache of (S ⋈ T) ⋉ R for rows of R."""
SIZE = 100
"""Rows of each window."""


def instances(count: int, *, shared: bool) -> Iterator[Instance]:
    """Random joins of four to six windows, with rates and costs over three orders of magnitude, that have candidates."""
    rng = np.random.default_rng(11)
    while count:
        windows = int(rng.integers(4, 7))
        orders: Orders = tuple(
            tuple(int(other) for other in rng.permutation([one for one in range(windows) if one != window]))
            if rng.random() < 0.3
            else tuple(other for other in range(windows) if other != window)
            for window in range(windows)
        )
        rates, costs = (10 ** rng.uniform(-1, 2, (windows, windows)) for _ in range(2))
        load = PipelineLoad(tuple(map(tuple, rates.tolist())), tuple(map(tuple, costs.tolist())))
        found = []
        for number, segment in enumerate(candidates(orders)):
            cache = CacheCosts(0.5, 0.5, float(rng.random()))
            group = str(segment.windows) if shared else str(number)
            found.append(Candidate(segment, value_of(load, segment, cache), group))
        if found and len(found) <= 12 and is_shared(found) == shared:
            count -= 1
            yield load, found


def plain_costs(load: PipelineLoad) -> dict[tuple[int, int], float]:
    """By pipeline and place, the cost without a cache."""
    windows = len(load.rates)
    return {
        (pipeline, place): load.plain(pipeline, place)
        for pipeline in range(windows)
        for place in range(windows - 1)
    }


def cost(load: PipelineLoad, found: Sequence[Candidate], chosen: Chosen) -> float:
    """Of all processing: what is not saved."""
    return sum(plain_costs(load).values()) - net_value([one for one in found if one.segment in chosen])


def chain(rows: int, burst: tuple[int, int] = (0, 0), repeats: int = 5) -> list[Update]:
    """R(A) ⋈ S(A, B) ⋈ T(B), of T each value several times in a row; within the burst R has twenty times as many rows, of few values."""
    draws = [in_turn(SIZE, 1, ("A",)), in_turn(SIZE, 1, ("A", "B")), in_turn(SIZE, repeats, ("B",))]
    calm, bursting = (1.0, 1.0, 5.0), (20.0, 1.0, 5.0)

    def rates(number: int) -> tuple[float, ...]:
        return bursting if burst[0] <= number < burst[1] else calm

    return list(updates(draws, rates, (SIZE,) * 3, rows, np.random.default_rng(3)))


def costs_by_chunk(trace: list[Update], cache: GlobalSegment, chunk: int) -> list[int]:
    """The costs of a plan with one cache from the first update on."""
    join, costs = TracedJoin(CHAIN, CHAIN_ORDERS), []
    join.use(cache)
    filled = [update for update in trace if not update[2]]
    for window, row, _ in filled:
        join.hold(window, row)
    for number, update in enumerate(trace[len(filled) :]):
        before = join.counts.cost
        join.change(*update)
        costs += [0] if number % chunk == 0 else []
        costs[-1] += join.counts.cost - before
    return costs
