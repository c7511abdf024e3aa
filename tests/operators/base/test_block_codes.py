"""(block, group) pairs are those that rows have, however groups were numbered before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.base.block_codes import are_distinct, blocks_seen, bounds_of, by_block_and_group
from headrace.operators.base.group_codes import group


@given(
    st.integers(1, 40),
    st.sampled_from((1, 2, 7, 100)),
    st.integers(1, 5),
    st.sampled_from((1, 700, 10**6)),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_pairs_are_the_same_whether_groups_were_looked_for_or_not(
    keys: int, step: int, spread: int, gap: int, in_order: bool, random: object
) -> None:
    """Keys of a narrow range with holes, in blocks that follow each other or not, perhaps with gaps between them."""
    rows = 4000
    drawn = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    key, block = drawn.integers(0, keys, rows) * step - 3, drawn.integers(-2, spread, rows) * gap
    block = np.sort(block) if in_order else block
    pair_sets = []
    for blocks in (1, blocks_seen(block), 2):
        groups = group([pa.array(key)], rows, small=0, blocks=blocks)
        pairs = by_block_and_group(block, groups)
        names = groups.keys[0].to_numpy()[pairs.group_indices]
        if pairs.sizes is not None:
            assert pairs.sizes.sum() == rows
        assert (np.diff(pairs.blocks) >= 0).all()
        assert (pairs.blocks[pairs.codes] == block).all()
        assert (names[pairs.codes] == key).all()
        pair_sets.append(set(zip(pairs.blocks.tolist(), names.tolist(), strict=True)))
    assert pair_sets[0] == pair_sets[1] == pair_sets[2] == set(zip(block.tolist(), key.tolist(), strict=True))


def test_groups_are_looked_for_where_places_without_rows_would_be_many() -> None:
    rows, few, holes = 8000, pa.array(np.arange(8000) % 100), pa.array(np.arange(8000) % 100 * 9)
    assert group([few], rows, small=0, blocks=2).sizes is None, (
        "100 groups in 2 blocks: all pairs are counted"
    )
    assert group([few], rows, small=0, blocks=60).sizes is not None
    assert group([holes], rows, small=0, blocks=2).count == 100


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(2**62, 2**62 + 3)), min_size=1),
    st.integers(1, 3),
)
def test_rows_of_integers_are_distinct_if_none_is_there_twice(
    rows: list[tuple[int, int]], at_once: int
) -> None:
    batches = [
        pa.table({"a": pa.array(a, pa.int32()), "b": b})
        for a, b in (zip(*rows[low : low + at_once], strict=True) for low in range(0, len(rows), at_once))
    ]
    assert are_distinct(pa.concat_tables(batches)) == (len(set(rows)) == len(rows))


def test_only_integers_of_few_combinations_are_looked_at() -> None:
    numbers = pa.array([1, 2, 3])
    assert are_distinct(pa.table({"a": numbers, "b": pa.array([1, None, 3])})) is None
    assert are_distinct(pa.table({"a": numbers, "b": pa.array(["x", "y", "z"])})) is None
    assert are_distinct(pa.table({"a": numbers.slice(0, 0)})) is None
    assert are_distinct(pa.table({"a": numbers, "b": pa.array([0, 1, 4096])})) is None
    assert are_distinct(pa.table({"a": pa.array([0, 4095])}))
    assert bounds_of(pa.chunked_array([[3, 1], [2**40]])) == (1, 2**40)
