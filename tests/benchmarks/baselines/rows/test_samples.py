"""Samples are the same however rows were cut, and every row, or key, has the same chance."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.rows.samples import KeySample, Reservoir
from headrace.operators.base.group_codes import hashes


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.integers(0, 60), max_size=5),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_a_reservoir_does_not_depend_on_cuts_order_or_merges(
    drawn: list[int], cuts: list[int], size: int, seed: int
) -> None:
    keys, rows = np.array(drawn, np.int64), np.arange(len(drawn))
    whole = Reservoir.empty(size, seed, 4).absorb(keys, rows)
    parts = np.split(
        np.random.default_rng(seed).permutation(len(rows)), sorted(min(c, len(rows)) for c in cuts)
    )
    merged = Reservoir.empty(size, seed, 4)
    for part in parts:
        merged = merged.merged(Reservoir.empty(size, seed, 4).absorb(keys[part], rows[part]))
    assert merged.rows.tolist() == whole.rows.tolist()
    assert merged.offsets.tolist() == whole.offsets.tolist()
    assert merged.seen.tolist() == whole.seen.tolist() == np.bincount(keys, minlength=4).tolist()
    for key in range(4):
        mine = whole.rows[whole.offsets[key] : whole.offsets[key + 1]]
        assert len(mine) == min(size, (keys == key).sum())
        assert (keys[mine] == key).all()


def test_every_row_has_the_same_chance_of_being_in_a_reservoir() -> None:
    times = np.zeros(100)
    for seed in range(3000):
        times[Reservoir.empty(10, seed, 1).absorb(np.zeros(100, np.int64), np.arange(100)).rows] += 1
    assert abs(times - 300).max() < 5 * np.sqrt(300 * 0.9)


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 8), st.integers(0, 3), st.integers(0, 60))
def test_a_sample_of_keys_holds_all_their_rows_whatever_the_cut(
    drawn: list[int], size: int, seed: int, cut: int
) -> None:
    codes = hashes(pa.array(drawn, pa.int64()))
    whole = KeySample.empty(size, seed).absorb(codes)
    assert (
        KeySample.empty(size, seed).absorb(codes[cut:]).absorb(codes[:cut]).keys.tolist()
        == whole.keys.tolist()
    )
    held = whole.holds(codes)
    inside, outside = set(np.array(drawn)[held].tolist()), set(np.array(drawn)[~held].tolist())
    assert not inside & outside
    assert len(inside) == min(size, len(set(drawn)))


def test_a_sample_of_keys_estimates_how_many_there_are() -> None:
    codes = hashes(pa.array(np.arange(20_000)))
    estimates = [KeySample.empty(400, seed).absorb(codes).number() for seed in range(20)]
    assert abs(np.mean(estimates) / 20_000 - 1) < 0.05
    assert np.std(estimates) / 20_000 < 0.1
