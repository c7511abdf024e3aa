"""A tumbling join in both plans: the pairs of the definition, no broken promise on any edge, and no state that is not needed."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.plans import in_order
from benchmarks.baselines.plans.flows import NEVER, Flow, Rows, is_grammatical, is_in_order
from benchmarks.baselines.plans.out_of_order import Meld
from benchmarks.baselines.plans.plan import Node, run
from benchmarks.baselines.plans.tumbling_join import TumblingJoin
from tests.benchmarks.test_plans_of_operators import ROWS, both


@given(streams=st.tuples(ROWS, ROWS, ROWS), size=st.integers(1, 7), window=st.integers(1, 12))
def test_both_plans_find_the_pairs_of_the_definition_and_every_edge_keeps_its_promises(
    streams: tuple[list[tuple[int, int]], ...], size: int, window: int
) -> None:
    """M1 with M2 union C, as in experiment E12; sorting and merging first is the baseline Sort + join."""
    sources = both(streams, size)
    loose = run(
        [Node("union", Meld.of(2), ("s1", "s2")), Node("join", TumblingJoin(window), ("s0", "union"))],
        sources,
    )
    strict = run(
        [
            *(Node(f"sort {number}", in_order.Sort(), (f"s{number}",)) for number in range(3)),
            Node("union", in_order.Merge.of(2), ("sort 1", "sort 2")),
            Node("join", TumblingJoin(window), ("sort 0", "union")),
        ],
        sources,
    )
    wanted = Counter(
        (at, key, other)
        for at, key in streams[0]
        for other, second in [*streams[1], *streams[2]]
        if key == second and at // window == other // window
    )
    for ran in (loose, strict):
        rows = ran.rows("join")
        assert Counter(zip(rows.at.tolist(), rows.key.tolist(), rows.value.tolist(), strict=True)) == wanted
        assert all(is_grammatical(edge) for edge in ran.edges.values())
        assert all(held[-1] == 0 for held in ran.held.values()), "state after the last punctuation"
    assert is_in_order(strict.edges["union"])
    for step, held in enumerate(loose.held["join"]):
        reached = [
            max([NEVER, *(flow.bound for flow in loose.edges[edge][: step + 1] if flow.bound is not None)])
            for edge in ("s0", "union")
        ]
        needed = sum(
            int((flow.rows.at // window >= bound // window).sum())
            for edge, bound in (("s0", reached[1]), ("union", reached[0]))
            for flow in loose.edges[edge][: step + 1]
        )
        assert held == needed


def test_what_is_complete_is_before_the_window_that_the_other_input_has_reached() -> None:
    """Figure 7-2 as repaired: a stored row may meet a later one of its window, so the pair's time is not complete yet."""
    join, one = TumblingJoin(10), np.zeros(1, np.int64)
    first = join.take(Flow(Rows(one + 12, one, one), 15), Flow(bound=16))
    assert first.bound == 10
    assert join.take(Flow(), Flow(Rows(one + 17, one, one))).rows.at.tolist() == [12]
