"""The compiled layout of lanes, and bit slices, are those of the numpy forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.native.lanes import picked
from headrace.operators.query_index.matching.prepare import truths, words_of
from headrace.operators.shared_aggregation.bit_slices import BitSlices, Short
from headrace.operators.shared_aggregation.lanes import laid_out

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(INT64, st.integers(-3, 3), st.integers(0, 255), st.sampled_from([-(2**63), 2**63 - 1]))


@given(st.lists(VALUES, max_size=400), st.integers(1, 300), st.booleans(), st.integers(0, 99))
def test_lanes_hold_the_rows_that_a_stable_sort_gives(
    values: list[int], count: int, sorts: bool, seed: int
) -> None:
    codes = np.random.default_rng(seed).integers(0, count, len(values))
    by = np.array(values, np.int64) if sorts else None
    ours, theirs = (laid_out(codes, count, by, exact=False, compiled=way) for way in (True, False))
    assert ours.row.dtype == np.uint32
    for mine, expected in ((ours.row, theirs.row), (ours.mask, theirs.mask), (ours.starts, theirs.starts)):
        assert np.array_equal(mine, expected)
    there = truths(ours.mask, len(ours.row))
    assert sorted(ours.row[there].tolist()) == list(range(len(values)))
    assert codes[ours.row[there]].tolist() == sorted(codes.tolist())


@pytest.mark.parametrize("count", [8192, 8193, 65_536, 70_000])
def test_more_cells_leave_fewer_bits_of_the_value_or_none(count: int) -> None:
    rng = np.random.default_rng(count)
    codes, values = rng.integers(0, count, 50_000), rng.integers(-1000, 1000, 50_000)
    ours, theirs = (laid_out(codes, count, values, exact=False, compiled=way) for way in (True, False))
    assert np.array_equal(ours.row, theirs.row)


def numbers_of(slices: BitSlices, lanes: int) -> np.ndarray:
    """The numbers that the slices mean, wrapped to 64 bits."""
    numbers = np.full(
        lanes, np.int64(slices.least).view(np.uint64) if slices.least < 0 else slices.least, np.uint64
    )
    if slices.bases is not None:
        numbers += np.repeat(slices.bases, 64)
    for bit, words in enumerate(slices.slices):
        numbers += truths(words, lanes).astype(np.uint64) << np.uint64(bit)
    return numbers.view(np.int64)


@given(st.lists(VALUES, min_size=1, max_size=200), st.integers(0, 99), st.booleans())
def test_slices_mean_the_integers_of_valid_lanes(values: list[int], seed: int, sorts: bool) -> None:
    rng, column = np.random.default_rng(seed), np.array(sorted(values) if sorts else values, np.int64)
    lanes = -(-len(values) // 64) * 64
    row = rng.integers(0, len(values), lanes).astype(np.uint32)
    row.sort()
    valid = words_of(rng.random(lanes) < rng.choice([0.0, 0.5, 1.0]))
    there = truths(valid, lanes)
    compiled = BitSlices.compiled(column, row, valid)
    plain = BitSlices.of(Short.of(column).taken(row), there)
    for slices in (compiled, plain):
        assert np.array_equal(numbers_of(slices, lanes)[there], column[row][there])
        assert all((words & ~valid == 0).all() for words in slices.slices)
    assert (compiled.bases is None) == (plain.bases is None) or column.max() - column.min() > 2**53
    by_word = np.array([truths(words, lanes) for words in compiled.slices]).reshape(-1, lanes // 64, 64)
    needed = [max(np.flatnonzero(of_word.any(axis=1)), default=-1) + 1 for of_word in by_word.swapaxes(0, 1)]
    assert (compiled.widths >= needed).all()


def test_words_of_similar_numbers_have_bases() -> None:
    column = 10**12 + np.arange(640) * 1000
    row, valid = np.arange(640, dtype=np.uint32), np.full(10, ~np.uint64(0))
    slices = BitSlices.compiled(column, row, valid)
    assert slices.bases is not None
    assert slices.bases.tolist() == [64_000 * word for word in range(10)]
    assert slices.widths.tolist() == [
        int(np.ptp(column[low : low + 64])).bit_length() for low in range(0, 640, 64)
    ]
    assert np.array_equal(numbers_of(slices, 640), column)


def test_keys_by_lane() -> None:
    rng = np.random.default_rng(1)
    row = rng.integers(0, 1000, 640).astype(np.uint32)
    for keys in (rng.integers(0, 60_000, 1000).astype(np.uint16), rng.integers(-9, 2**40, 1000)):
        assert np.array_equal(picked(keys, row), keys[row])
