"""The search of a SteM finds every row that may be joined, whatever part of its hashes the searching rows have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.joins.probing.stems import Stem
from headrace.operators.rows.sorted_rows import Sorted

RANGE = 5


def sorted_rows(
    rng: np.random.Generator, rows: int, hashes: int, times: int
) -> tuple[np.ndarray, np.ndarray]:
    hash_, at = rng.integers(0, hashes, rows), rng.integers(0, times, rows)
    order = np.lexsort((at, hash_))
    return hash_[order], at[order]


@given(
    st.integers(0, 2**32),
    st.sampled_from((1, 7, 300)),
    st.sampled_from((3, 5000)),
    st.sampled_from((0, 1, 30, 1500)),
    st.sampled_from((1, 40, 2000)),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.sampled_from((None, RANGE)),
)
def test_a_part_of_the_rows_finds_what_all_find(
    seed: int, hashes: int, times: int, stored: int, new: int, part: tuple[float, float], longest: int | None
) -> None:
    """Every pair of equal hashes within the bounds is found, in rows of one piece that follow each other."""
    rng = np.random.default_rng(seed)
    hash_, at = sorted_rows(rng, stored, hashes, times)
    stem = Stem((Sorted(pa.table({"n": at}), hash_, at, longest, None),), longest)
    searching, begins = sorted_rows(rng, new, hashes + 2, times)
    chosen = slice(*sorted(int(share * new) for share in part))
    searching, begins = searching[chosen], begins[chosen]
    ends = begins + rng.integers(0, 2 * RANGE, len(begins))
    found = stem.search((begins, ends), searching)
    (low,), (matches,) = found.low, found.matches
    assert (found.counts == matches).all()
    for row in range(0, len(searching), 1 + len(searching) // 50):
        inside = (hash_ == searching[row]) & (at <= ends[row])
        inside &= True if longest is None else at >= begins[row] - longest
        assert np.arange(low[row], low[row] + matches[row]).tolist() == np.flatnonzero(inside).tolist()


@pytest.mark.parametrize("portion", [100, 1000])
def test_portions_of_many_rows_walk_through_their_part_alone(
    portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows are as many as those of their part of the piece, so nothing is bisected row by row."""
    rng = np.random.default_rng(3)
    hash_, at = sorted_rows(rng, 10_000, 3000, 1000)
    stem = Stem((Sorted(pa.table({"n": at}), hash_, at, RANGE, None),), RANGE)
    monkeypatch.delattr("headrace.operators.joins.probing.stems.bisected")
    for start in range(0, 10_000, portion):
        part = slice(start, start + portion)
        assert (stem.search((at[part], at[part]), hash_[part]).counts > 0).all()
