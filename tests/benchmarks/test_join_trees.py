"""Every tree of joins finds what nested loops find, each inner result is the join of its inputs, and its counters are those of its shape."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.join_trees import JoinTree, _Node, leaves, sorted_rows, trees
from benchmarks.suite.joins_trees import counted
from tests.examples import examples

Row = tuple[int, int]
"""(key, time)."""
RANGES = (4, 6, 3, 5)


def loops(rows: list[list[Row]], streams: tuple[int, ...]) -> Counter[tuple[int, int]]:
    """The results as (instant, end)."""
    found: Counter[tuple[int, int]] = Counter()
    for combination in product(*(rows[stream] for stream in streams)):
        at = max(t for _, t in combination)
        until = min(t + RANGES[stream] for (_, t), stream in zip(combination, streams, strict=True))
        if len({k for k, _ in combination}) == 1 and at <= until:
            found[at, until] += 1
    return found


def streams_below(node: _Node) -> tuple[int, ...]:
    return tuple(
        leaf
        for child in node.children
        for leaf in ((child,) if isinstance(child, int) else streams_below(child))
    )


@examples(40)
@given(data=st.data(), many=st.integers(2, 4))
def test_every_tree_finds_the_results_of_loops_and_stores_the_join_of_its_inputs(
    data: st.DataObject, many: int
) -> None:
    tree = data.draw(st.sampled_from(list(trees(range(many)))), "tree")
    assert not isinstance(tree, int)
    assert sorted(leaves(tree)) == list(range(many))
    plan, rows = JoinTree(tree), [list[Row]() for _ in range(many)]
    found: Counter[tuple[int, int]] = Counter()
    for start in range(0, 12, 3):
        arrived = []
        for stream in range(many):
            new = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(start, start + 2)), max_size=3))
            rows[stream] += new
            key, at = (np.array([row[place] for row in new], np.int64) for place in (0, 1))
            arrived.append(sorted_rows(at, key, at + RANGES[stream]) if new else None)
        found.update(plan.take(arrived, start + 3))
        for node, stored in plan.root.inner():
            below = loops(rows, streams_below(node))
            live = Counter({span: n for span, n in below.items() if span[1] >= start + 3})
            held = [] if stored is None else zip(stored.at.tolist(), stored.until().tolist(), strict=True)
            assert Counter(held) == live
    assert found == loops(rows, tuple(range(many)))


def test_an_mjoin_stores_streams_alone_and_makes_the_same_pair_again_for_each_probe() -> None:
    """One pair of the first two streams, and five rows of the third: five times in an MJoin, once in an XJoin."""
    one = np.array([1], np.int64)
    works = {}
    for tree in ((0, 1, 2), ((0, 1), 2)):
        plan = JoinTree(tree)
        for step in range(7):
            at = one * step
            row = sorted_rows(at, one, at + 100)
            plan.take([row if step == 0 else None, row if step == 1 else None, row if step > 1 else None], 0)
        works[tree] = plan.work
    mjoin, xjoin = works[0, 1, 2], works[(0, 1), 2]
    assert (mjoin.inner_stored, xjoin.inner_stored, mjoin.made, xjoin.made) == (0, 1, 0, 1)
    assert mjoin.stored == xjoin.stored == 7
    assert (mjoin.compared, xjoin.compared) == (5 * 2, 1 + 5)


def test_bars_hold_at_a_small_size() -> None:
    assert not [str(ratio) for ratio in counted(15_000)[1] if not ratio.passed]
